//! Makes Rust of the protocol's service. Its messages are those of `punctual-proto`.

use std::error::Error;

const PROTO: &str = "../proto/proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let descriptors = protox::compile(["punctual/worker/v1/worker.proto"], [PROTO])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .extern_path(".punctual.worker.v1", "::punctual_proto::wire")
        .codec_path("crate::codec::FrameCodec")
        .compile_fds(descriptors)?;
    Ok(())
}

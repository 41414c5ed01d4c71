//! Makes Rust of the protocol's messages.

use std::error::Error;

/// Kinds of messages that are large or rare, behind a pointer: a frame of many small messages would take many times its own size in memory
/// if each had room for the largest.
const BOXED: [&str; 3] = [
    ".punctual.worker.v1.ToWorker.kind.assign",
    ".punctual.worker.v1.ToScheduler.kind.hello",
    ".punctual.worker.v1.ToScheduler.kind.finished",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["punctual/worker/v1/worker.proto"], ["proto"])?;
    let mut config = prost_build::Config::new();
    for path in BOXED {
        config.boxed(path);
    }
    config.compile_fds(descriptors)?;
    Ok(())
}

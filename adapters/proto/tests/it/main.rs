//! Tests of the worker protocol on the wire.

mod connections;
mod frames;
mod garbage;
mod largest;
mod newer_peers;
mod refusals;
mod round_trips;
mod samples;
mod strategies;
mod versions;
mod written_down;

#[test]
fn no_test_file_is_forgotten() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap();
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is not run");
    }
}

//! Tests of what the crate does as a whole.

mod accounted;
mod attempts;
mod called;
mod day;
mod docs;
mod findings;
mod fires;
mod heal;
mod misfires;
mod mutilated;
mod pages;
mod parts;
mod paused;
mod regressions;
mod rehearsal;
mod reports;
mod requests;
mod results;
mod retries;
mod rows;
mod shrink;
mod story;
mod swarm;
mod tabletop;
mod tasks;
mod told;

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

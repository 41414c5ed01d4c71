//! Checks of the repository itself: what depends on what, and what was forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the workspace").to_owned()
}

/// The files that git knows, or would know if they were added.
fn files() -> Vec<PathBuf> {
    let listing = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists files");
    assert!(listing.status.success(), "git ls-files: {}", listing.status);
    let names = String::from_utf8(listing.stdout).expect("file names are UTF-8");
    let files: Vec<_> = names.lines().map(|name| root().join(name)).filter(|path| path.is_file()).collect();
    assert!(files.len() > 50, "the repository has more files than {}", files.len());
    files
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn packages() -> Vec<Value> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo tells its metadata");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("metadata is JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

/// What each package depends on to do its work: neither for tests nor to be built.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let normal = |package: &Value| -> BTreeSet<String> {
        let dependencies = package["dependencies"].as_array().expect("a list of dependencies");
        dependencies.iter().filter(|dependency| dependency["kind"].is_null()).map(|dependency| text(&dependency["name"])).collect()
    };
    packages().iter().map(|package| (text(&package["name"]), normal(package))).collect()
}

#[test]
fn arrows_between_crates_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("punctual-core", &[] as &[&str]),
        ("punctual-driver", &["punctual-core"]),
        ("punctual-proto", &["punctual-core"]),
        ("punctual-spec", &["punctual-core"]),
        ("punctual-store", &["punctual-core", "punctual-driver"]),
        ("punctual-signals", &["punctual-driver"]),
        ("punctual-grpc", &["punctual-core", "punctual-driver", "punctual-proto"]),
        ("punctual-worker", &["punctual-core", "punctual-driver", "punctual-grpc", "punctual-spec"]),
        (
            "punctual",
            &[
                "punctual-core",
                "punctual-driver",
                "punctual-grpc",
                "punctual-signals",
                "punctual-spec",
                "punctual-store",
                "punctual-worker",
            ],
        ),
        ("punctual-sim", &["punctual-core", "punctual-driver", "punctual-proto", "punctual-spec"]),
        ("punctual-chaos", &["punctual-core", "punctual-sim", "punctual-spec", "punctual-store", "punctual-testbed", "punctual-worker"]),
        ("punctual-benches", &["punctual-core", "punctual-driver", "punctual-spec", "punctual-store", "punctual-testbed"]),
        ("punctual-testbed", &[]),
        ("xtask", &[]),
        ("punctual-tests", &[]),
    ]);
    for (package, dependencies) in edges() {
        let own: Vec<_> = dependencies.iter().map(String::as_str).filter(|name| name.starts_with("punctual")).collect();
        let allowed = allowed.get(package.as_str()).unwrap_or_else(|| panic!("{package} is new: say here what it may depend on"));
        for dependency in own {
            assert!(allowed.contains(&dependency), "{package} -> {dependency} points the wrong way");
        }
    }
}

#[test]
fn core_depends_on_nothing_that_touches_the_world() {
    let edges = edges();
    let of = |package: &str| edges[package].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("punctual-core"), ["jiff", "rustc-hash", "serde_json", "thiserror"]);
    for world in ["rusqlite", "sqlx", "axum", "reqwest", "redis"] {
        assert!(!of("punctual-driver").contains(&world), "the driver knows {world}");
    }
}

#[test]
fn sql_is_in_the_store_only() {
    let patterns = ["SELECT ", "INSERT INTO", "UPDATE ", "DELETE FROM"];
    let own = root().join("tests/tidy/main.rs");
    for path in files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs") && *path != own) {
        // The tables of claims are in databases of users.
        let in_store = ["adapters/store", "adapters/worker/src/once", "adapters/worker/examples", "testbed"]
            .iter()
            .any(|folder| path.starts_with(root().join(folder)));
        // Tests may look into a database from outside.
        let in_tests = path.components().any(|part| part.as_os_str() == "tests");
        if !in_store && !in_tests {
            let text = read(&path);
            let found = patterns.iter().find(|pattern| text.contains(*pattern));
            assert!(found.is_none(), "{} speaks SQL: {}", path.display(), found.unwrap_or(&""));
        }
    }
}

/// A module file that no `mod` names is dead, and a test file that no runner names is worse: it seems to test something.
#[test]
fn every_rust_file_is_named_by_a_module() {
    let files = files();
    let targets: BTreeSet<PathBuf> = packages()
        .iter()
        .flat_map(|package| package["targets"].as_array().cloned().unwrap_or_default())
        .filter_map(|target| target["src_path"].as_str().map(PathBuf::from))
        .collect();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs") && !targets.contains(*path)) {
        let (folder, name) = match path.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod") => (path.parent().and_then(Path::parent), path.parent().and_then(Path::file_name)),
            _ => (path.parent(), path.file_stem()),
        };
        let (folder, name) = (folder.expect("a folder"), name.and_then(|name| name.to_str()).expect("a name"));
        let beside = folder.with_extension("rs");
        let parents = ["mod.rs", "lib.rs", "main.rs"].map(|parent| folder.join(parent));
        let declares = |text: &str| text.lines().any(|line| line.trim_start().trim_start_matches("pub").contains(&format!("mod {name};")));
        let is_named = parents.iter().chain([&beside]).filter(|parent| parent.is_file()).any(|parent| declares(&read(parent)));
        let by_target = targets.iter().filter(|target| target.parent() == Some(folder)).any(|target| declares(&read(target)));
        assert!(is_named || by_target, "{} is named by no module", path.display());
    }
}

#[test]
fn features_for_tests_are_off_by_default() {
    for package in packages() {
        let default = package["features"]["default"].as_array().cloned().unwrap_or_default();
        assert!(default.is_empty(), "{} has default features: {default:?}", package["name"]);
    }
}

#[test]
fn every_error_code_has_a_section() {
    let pages = read(&root().join("docs/errors.md"));
    let mut codes = BTreeSet::new();
    for path in files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let text = read(&path);
        for (index, _) in text.match_indices("PUN-") {
            let digits: String = text[index + 4..].chars().take_while(char::is_ascii_digit).collect();
            if digits.len() == 3 {
                codes.insert(format!("PUN-{digits}"));
            }
        }
    }
    assert!(codes.len() > 20, "only {} codes were found", codes.len());
    let missing: Vec<_> = codes.iter().filter(|code| !pages.contains(code.as_str())).collect();
    assert!(missing.is_empty(), "docs/errors.md says nothing about {missing:?}");
}

#[test]
fn links_between_pages_lead_somewhere() {
    for path in files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = read(&path);
        for (index, _) in text.match_indices("](") {
            let target: String = text[index + 2..].chars().take_while(|character| !matches!(character, ')' | '#' | '\n')).collect();
            if target.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let file = path.parent().expect("a folder").join(&target);
            assert!(file.exists(), "{} links to {target}, which is not there", path.display());
        }
    }
}

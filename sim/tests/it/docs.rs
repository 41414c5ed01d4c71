//! What docs/simulation.md lists is what there is.

use std::fs;
use std::path::Path;

use punctual_sim::bank::BANK;
use punctual_sim::check::CATALOGUE;
use punctual_sim::plan::Family;

/// The text as one line, so that where it is broken doesn't matter.
fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/simulation.md");
    fs::read_to_string(page).expect("the page is there").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_guard_is_listed_with_what_notices_its_absence() {
    let page = page();
    for row in BANK {
        let name = row.guard.name();
        let (_, entry) = page.split_once(&format!("- `{name}`: ")).unwrap_or_else(|| panic!("{name} is not listed"));
        let entry = entry.split(" - `").next().unwrap_or(entry);
        let noticed = row.properties.iter().map(|property| format!("`{property}`")).collect::<Vec<_>>().join(" or ");
        assert!(entry.contains(&format!("Noticed by {noticed}.")), "{name} is noticed by {noticed}: {entry}");
        for other in row.with {
            assert!(entry.contains(&format!("`{}`", other.name())), "{name} is switched off with {}: {entry}", other.name());
        }
    }
}

#[test]
fn every_property_and_family_is_listed() {
    let page = page();
    for property in CATALOGUE {
        assert!(page.contains(&format!("`{}`", property.id)), "{} is not listed", property.id);
    }
    for family in Family::ALL {
        assert!(page.contains(&format!("- `{}`: ", family.name())), "{} is not listed", family.name());
    }
}

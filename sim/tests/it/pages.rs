//! The report's pages: text, JSON, HTML.

use punctual_sim::rehearsal::Options;
use punctual_sim::report::Report;

use crate::day::day;
use crate::told::{MINUTE, SECOND, Story};

/// The report on a whole day of the example shop.
fn shop() -> Report {
    let options = Options { seed: 42, ..Options::default() };
    let verdicts =
        ["fire.never_early", "fire.accounted", "fire.no_duplicate", "effect.once", "fence.monotone", "lease.exclusive", "state.legal"];
    let verdicts: Vec<_> = verdicts.iter().chain(&["heal.converges", "heal.no_orphans"]).map(|property| (*property, Ok(()))).collect();
    day(42).report_with(&verdicts).about("examples/shop.yaml", options.command("examples/shop.yaml"))
}

#[test]
fn a_day_of_the_example_shop_finds_its_flaw_first() {
    let report = shop();
    if let Some(folder) = std::env::var_os("REPORT_PAGES") {
        let folder = std::path::PathBuf::from(folder);
        std::fs::write(folder.join("report.html"), report.to_html()).unwrap();
        std::fs::write(folder.join("report.json"), report.to_json()).unwrap();
        std::fs::write(folder.join("report.txt"), report.to_text()).unwrap();
    }
    assert_eq!((report.findings[0].rule.as_str(), report.findings[0].about.as_deref()), ("overload", Some("import-feed")));
    assert!(report.total.fired > 5_000 && report.timeline.buckets.len() > 250);
}

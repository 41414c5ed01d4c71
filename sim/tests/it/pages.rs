//! The report's pages: text, JSON, HTML.

use expect_test::expect;
use punctual_sim::plan::{Fault, FaultKind, Selector};
use punctual_sim::rehearsal::Options;
use punctual_sim::report::Report;

use crate::day::day;
use crate::reports::hour;
use crate::told::{MINUTE, Story};

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
        std::fs::write(folder.join("hostile.html"), hostile().to_html()).unwrap();
    }
    assert_eq!((report.findings[0].rule.as_str(), report.findings[0].about.as_deref()), ("overload", Some("import-feed")));
    assert!(report.total.fired > 5_000 && report.timeline.buckets.len() > 250);
}

#[test]
fn the_page_of_a_terminal_says_the_same() {
    let broken = Err("instance 3-4 had its effect twice".to_owned());
    let report = hour().report_with(&[("effect.once", broken), ("heal.converges", Ok(()))]);
    let report = report.about("tasks.yaml", "punctual rehearse tasks.yaml --seed 1");
    expect![[r#"
        tasks.yaml, rehearsed for 1 hour from 2027-01-15 08:00 UTC, with seed 1
        1 promise violated: effect.once.

          5 of 6 fire times fired, 1 dropped on record, 0 undecided
          of the fired 3 succeeded, 1 ended wrong, 0 cancelled, 1 unfinished
          8 attempts: 3 retries, 1 lost worker, 0 timeouts
          late by 200ms (p50), 2m (p99), 2m at most
          0 faults came over 3 schedulers, 4 workers; all times are UTC

          VIOLATED effect.once: instance 3-4 had its effect twice

        What to look at

          NOTE     idle: Nobody triggered it in this rehearsal of 1 hour, so nothing is known of it.
                   -> Rehearse more hours, or begin nearer to its fire time with --start. [trigger]

         Task fired of dropped ok wrong cancelled open retries late p50 p99 max run max
         pay      5  6       1  3     1         0    1       3    200ms  2m  2m      1m
         idle     0  0       0  0     0         0    0       0        -   -   -       -

         Service calls failed retries calls/instance usual/min worst/min    at
         bank        8      4       3            1.6         1         1 08:10

        Again: punctual rehearse tasks.yaml --seed 1
    "#]]
    .assert_eq(&report.to_text());
}

#[test]
fn the_same_run_gives_the_same_pages() {
    let (one, other) = (shop(), shop());
    assert_eq!(one, other);
    assert_eq!((one.to_html(), one.to_json(), one.to_text()), (other.to_html(), other.to_json(), other.to_text()));
}

#[test]
fn json_reads_back_as_the_same_report() {
    for report in [shop(), hour().report().nondeterministic()] {
        assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
    }
}

const SCRIPT: &str = "<script>alert(1)</script>";
const BREAKOUT: &str = "\"'></title></svg></style><img src=x onerror=alert(2)>";

/// A run all of whose names are hostile.
fn hostile() -> Report {
    let yaml = format!(
        "tasks:\n- {{name: \"{SCRIPT}\", trigger: {{fixed_rate: 1m}}, command: x, retry: {{max_attempts: 9}}, \
         rehearsal: {{downstream: {BREAKOUT:?}}}}}\n\
         - {{name: {BREAKOUT:?}, trigger: {{cron: '* * * * *'}}, command: x}}\n"
    );
    let yaml = yaml.replace("\\'", "'");
    let mut story = Story::of(&yaml, 1);
    let fire = story.fired(SCRIPT, MINUTE);
    for attempt in 0..40 {
        let at_ms = MINUTE + attempt * 1_000;
        story.fails(fire, at_ms, at_ms + 100, at_ms + 900);
    }
    let kind = FaultKind::RetryStorm { downstream: 0 };
    story.fault(Fault { at_ms: MINUTE, lasts_ms: MINUTE, kind, on: Selector::World });
    let verdicts = [(SCRIPT, Err(format!("{BREAKOUT} {SCRIPT}"))), (BREAKOUT, Ok(()))];
    story.report_with(&verdicts).about(format!("{SCRIPT}.yaml"), format!("punctual rehearse '{SCRIPT}' {BREAKOUT}"))
}

#[test]
fn hostile_names_stay_names() {
    let report = hostile();
    assert!(report.findings.iter().any(|finding| finding.rule == "retry-amplification"), "they get into findings too");
    let html = report.to_html();
    for tag in ["<script", "<img", "</title></svg>", "</style><"] {
        assert!(!html.contains(tag), "{tag} got through");
    }
    let escaped = ["&lt;script&gt;alert(1)&lt;/script&gt;", "&#60;script&#62;alert(1)&#60;/script&#62;"];
    assert!(escaped.iter().map(|text| html.matches(text).count()).sum::<usize>() >= 5);
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert_eq!(html.matches("<title>").count(), html.matches("</title>").count());
}

#[test]
fn a_terminal_obeys_no_name() {
    let mut report = hour().report();
    report.tasks[0].name = "evil\u{1b}[2Jname".to_owned();
    report.about.file = Some("a\nb\u{7}".to_owned());
    let text = report.to_text();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()) && text.contains("evil [2Jname"));
}

#[test]
fn nothing_unseen_turns_the_direction_of_a_page() {
    let mut report = hour().report();
    report.tasks[0].name = "\u{202e}evil\u{2066}\u{200b}\u{2028}".to_owned();
    report.about.file = Some("\u{202e}a.yaml".to_owned());
    for page in [report.to_text(), report.to_html()] {
        assert!(!page.contains(['\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}']));
        assert!(page.contains("\\u{202e}"), "it is said that there is something");
    }
    assert!(report.to_html().contains("<bdi>"), "names in other scripts stay where they are");
}

#[test]
fn after_a_crash_nothing_is_said_about_the_file() {
    let crashed = hour().report().crashed("assertion failed");
    assert!(crashed.findings.is_empty());
    let text = crashed.to_text();
    assert!(text.contains("The run broke off, so nothing is said about the task file.") && !text.contains("Nothing to change"), "{text}");
    assert!(text.contains("VIOLATED crash: assertion failed"));
}

#[test]
fn what_fired_is_what_became_of_it() {
    let report = shop();
    for numbers in report.tasks.iter().map(|task| &task.numbers).chain([&report.total]) {
        assert_eq!(numbers.fired, numbers.in_state("succeeded") + numbers.gone_wrong() + numbers.cancelled() + numbers.unfinished);
    }
}

#[test]
fn the_page_needs_nothing_from_anywhere() {
    let html = shop().to_html();
    for outside in ["http:", "https:", "src=", "<link", "<script", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("default-src 'none'") && html.contains("prefers-color-scheme: dark"));
    assert!(html.contains("--seed 42"), "the command that does it again");
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
}

#[test]
fn a_violated_promise_is_the_first_thing_on_the_page() {
    let twice = Err("instance 3-4 had its effect twice".to_owned());
    let html = hour().report_with(&[("fire.accounted", Ok(())), ("effect.once", twice)]).to_html();
    let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(place("1 promise violated: effect.once.") < place("instance 3-4 had its effect twice"));
    assert!(place("instance 3-4 had its effect twice") < place("What to look at"));
}

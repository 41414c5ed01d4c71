//! What the parser accepts and refuses beyond the corpus, and what it says.

use crate::{at, next_times, schedule};
use proptest::prelude::*;
use punctual_core::cron::{CronError, Dialect, Expression, Field, GapPolicy, OverlapPolicy, Schedule, validate_zone_name};

fn refusal(text: &str, dialect: Option<Dialect>) -> String {
    Expression::parse(text, dialect).expect_err(text).to_string()
}

#[test]
fn messages_name_the_field_and_say_what_to_do() {
    let cases = [
        ("0 38 23 * * *", Some(Dialect::Unix5), "drop the seconds field `0` in front, or choose the dialect seconds6"),
        ("* * * * *", Some(Dialect::Seconds6), "the seconds field in front is missing"),
        ("* * * * *", Some(Dialect::Quartz), "five fields where quartz has six: the seconds field"),
        ("* * * * * * * *", None, "8 fields"),
        ("*/90 * * * *", None, "choose an interval trigger"),
        ("*/0 * * * *", None, "`*/0` in the minute field has a step of zero"),
        ("* 24 * * *", None, "`24` in the hour field is out of range: 0 to 23"),
        ("? * * * *", None, "`?` in the minute field"),
        ("0 0 30 2 *", None, "no date ever matches day-of-month `30` in month `2`"),
        ("0 0 1 JANUARY *", None, "three letters"),
        ("0 0 * * L", None, "name the weekday (SAT), or FRIL"),
        ("@every 5m", None, "choose an interval trigger"),
        ("@reboot", None, "`@reboot` is not a macro"),
        ("0 0 12 * * *", Some(Dialect::Quartz), "quartz wants exactly one `?`"),
        ("0 0 12 ? * 2-6", None, "Sunday is 1 in quartz and 0 in seconds6"),
        ("0 0 12 ? * MON-FRI 2030-2020", None, "`2030-2020` in the year field"),
        ("0 0 1 * \u{661}", None, "only ASCII"),
        ("0 9 * *\u{a0}*", None, "only ASCII"),
        ("  \t ", None, "is empty"),
    ];
    for (text, dialect, expected) in cases {
        let message = refusal(text, dialect);
        assert!(message.contains(expected), "`{text}` says: {message}");
    }
}

#[test]
fn errors_carry_the_field_and_the_text() {
    let error = Expression::parse("0 0 * * MON,5#6", None).unwrap_err();
    assert!(matches!(&error, CronError::Malformed { field: Field::Weekday, text, .. } if text == "5#6"), "{error}");
    let long = "*".repeat(1_025);
    assert_eq!(Expression::parse(&long, None), Err(CronError::TooLong { bytes: 1_025 }));
}

#[test]
fn the_number_of_fields_decides_the_dialect() {
    let dialect = |text: &str| Expression::parse(text, None).unwrap().dialect();
    assert_eq!(dialect("* * * * *"), Dialect::Unix5);
    assert_eq!(dialect("* * * * * *"), Dialect::Seconds6);
    assert_eq!(dialect("0 0 12 ? * MON-FRI"), Dialect::Quartz);
    assert_eq!(dialect("0 0 12 ? * FRI#2"), Dialect::Quartz);
    assert_eq!(dialect("0 0 12 1 * ?"), Dialect::Quartz);
    assert_eq!(dialect("0 0 12 1 * ? 2030"), Dialect::Quartz);
    assert_eq!(dialect("@daily"), Dialect::Unix5);
    assert_eq!(Expression::parse("@daily", Some(Dialect::Quartz)), Expression::parse("@daily", None));
}

#[test]
fn texts_that_mean_the_same_are_equal() {
    let same = |left: &str, right: &str| assert_eq!(Expression::parse(left, None), Expression::parse(right, None), "{left} and {right}");
    same("0 0 * * 7", "0 0 * * sun");
    same("0 0 * * 7-2", "0 0 * * SUN-TUE");
    same("0 0 * * 7-7", "0 0 * * 0");
    same("0 0 * * 5-7/2", "0 0 * * FRI,SUN");
    same("0 0 * * 1/2", "0 0 * * 1,3,5");
    same("0 0 28-2 * *", "0 0 1,2,28-31 * *");
    same("0 0 l * fril", "0 0 L * FRIL");
    same("00005 0 * * *", "5 0 * * *");
}

#[test]
fn working_days_stay_in_their_month() {
    let times = |text: &str, after: &str| next_times(&schedule(text, "UTC"), at(after), 2);
    // 1 August 2026 is a Saturday; 31 May 2026 a Sunday.
    assert_eq!(times("0 0 1W 8 *", "2026-01-01T00:00:00Z")[0], at("2026-08-03T00:00:00Z"));
    assert_eq!(times("0 0 31W 5 *", "2026-01-01T00:00:00Z")[0], at("2026-05-29T00:00:00Z"));
    assert_eq!(times("0 0 LW 5 *", "2026-01-01T00:00:00Z")[0], at("2026-05-29T00:00:00Z"));
    assert_eq!(times("0 0 L-30 * *", "2026-01-15T00:00:00Z"), [at("2026-03-01T00:00:00Z"), at("2026-05-01T00:00:00Z")]);
}

#[test]
fn zone_names_are_names_of_places() {
    // `Factory` is the database's word for a machine that was never told where it is.
    for name in jiff::tz::db().available().filter(|name| name.as_str() != "Factory") {
        assert_eq!(validate_zone_name(name.as_str()), Ok(()));
    }
    let refused = [
        "",
        "GMT+5",
        "UTC-3",
        "+05:00",
        "../../etc/passwd",
        "/etc/localtime",
        "Europe//Berlin",
        "Europe/",
        "Europe/Berlin\0",
        "Europe Berlin",
        "localtime",
        "Local",
        "posix/Europe/Berlin",
        "right/UTC",
        "Z\u{fc}rich",
        "a/../b",
        "Europe\\Berlin",
        "C:",
    ];
    for name in refused {
        assert!(matches!(validate_zone_name(name), Err(CronError::ZoneName { .. })), "{name:?}");
    }
    for name in ["Etc/GMT+5", "GMT+0", "UTC", "America/Argentina/ComodRivadavia", "EST5EDT", "W-SU"] {
        assert_eq!(validate_zone_name(name), Ok(()));
    }
    let message = validate_zone_name("GMT+5").unwrap_err().to_string();
    assert!(message.contains("`GMT+5`") && message.contains("Etc/GMT-5"), "{message}");
}

#[test]
fn policies_and_dialects_have_names() {
    for name in ["unix5", "seconds6", "quartz"] {
        assert_eq!(name.parse::<Dialect>().unwrap().to_string(), name);
    }
    for name in ["after_gap", "skip", "shift_forward"] {
        assert_eq!(name.parse::<GapPolicy>().unwrap().to_string(), name);
    }
    for name in ["first", "both", "last"] {
        assert_eq!(name.parse::<OverlapPolicy>().unwrap().to_string(), name);
    }
    let error = "second".parse::<OverlapPolicy>().unwrap_err().to_string();
    assert_eq!(error, "unknown overlap policy `second`: use one of first, both, last");
}

/// A million are held in memory.
#[test]
fn expressions_and_schedules_are_small() {
    assert!(size_of::<Expression>() <= 64, "{}", size_of::<Expression>());
    assert!(size_of::<Schedule>() <= 80, "{}", size_of::<Schedule>());
}

/// Characters that cron texts are made of, so that drawn texts get past the first check.
const CRON_CHARACTERS: &str = "[0-9*/,\\-?LW#@ \tA-Za-z]{0,60}";

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_ends_at_once_with_one_verdict(text in prop_oneof![".{0,80}", CRON_CHARACTERS, "([0-9*/,\\-?LW#]{1,4} ){4,6}[0-9*/,\\-?LW#]{1,4}"]) {
        let dialects = [None, Some(Dialect::Unix5), Some(Dialect::Seconds6), Some(Dialect::Quartz)];
        for dialect in dialects {
            let verdict = Expression::parse(&text, dialect);
            prop_assert_eq!(&verdict, &Expression::parse(&text, dialect));
            match verdict {
                Err(error) => prop_assert!(!error.to_string().is_empty()),
                Ok(expression) => {
                    prop_assert!(!expression.describe().is_empty());
                    let schedule = Schedule::new(expression, crate::zone("America/New_York"), GapPolicy::default(), OverlapPolicy::default());
                    let after = at("1970-01-01T12:00:00Z");
                    prop_assert!(schedule.next_after(after).is_none_or(|next| next > after));
                }
            }
        }
        let _ = validate_zone_name(&text);
    }
}

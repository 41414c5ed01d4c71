//! The report as a page of a terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::{Class, DownstreamReport, Judged, Numbers, Report, TaskReport, words};

/// The page is not wider than this.
const WIDTH: usize = 100;

/// The page.
pub(super) fn render(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a text can't fail.
    let _ = write(&mut page, report);
    page
}

fn write(page: &mut String, report: &Report) -> std::fmt::Result {
    let about = &report.about;
    let file = about.file.as_deref().unwrap_or("A rehearsal");
    writeln!(page, "{}, rehearsed {}, with seed {}", clean(file), period(report), about.seed)?;
    writeln!(page, "{}\n", headline(report))?;
    writeln!(page, "{}", summary(report))?;
    verdicts(page, report, |judged| matches!(judged, Judged::Violated(_)))?;
    writeln!(page, "{}", heading(report))?;
    for finding in &report.findings {
        let about = finding.about.as_deref().map(|about| format!(" {}:", clean(about))).unwrap_or_default();
        let field = finding.field.as_deref().map(|field| format!(" [{field}]")).unwrap_or_default();
        writeln!(page)?;
        wrap(page, &format!("{:<8}{about} {}", finding.severity.name().to_uppercase(), clean(&finding.what)), 2, 11)?;
        wrap(page, &format!("-> {}{field}", clean(&finding.advice)), 11, 14)?;
    }
    writeln!(page)?;
    verdicts(page, report, |judged| matches!(judged, Judged::Unknown(_)))?;
    writeln!(page, "{}", tasks(&report.tasks))?;
    if !report.downstreams.is_empty() {
        writeln!(page, "\n{}", downstreams(report))?;
    }
    if let Some(command) = &about.command {
        writeln!(page, "\nAgain: {}", clean(command))?;
    }
    Ok(())
}

/// Of which time the report is: `for 24 hours from 2027-01-15 08:00 UTC, then 1h 56m without faults`.
pub(super) fn period(report: &Report) -> String {
    let about = &report.about;
    let mut text = format!("for {} from {}", words::hours(about.heal_at_ms), words::date_and_time(about.starts_at, 0));
    let rest_ms = about.horizon_ms.saturating_sub(about.heal_at_ms);
    if rest_ms > 0 {
        text.push_str(&format!(", then {} without faults", words::duration(rest_ms)));
    }
    text
}

/// What stands over the findings.
pub(super) fn heading(report: &Report) -> &'static str {
    match (report.class, report.findings.is_empty()) {
        (Class::Crashed, _) => "The run broke off, so nothing is said about the task file.",
        (_, true) => "Nothing to change was found.",
        (_, false) => "What to look at",
    }
}

/// The promises of which that is to be said, and what; those that were held need no line.
fn verdicts(page: &mut String, report: &Report, is_meant: impl Fn(&Judged) -> bool) -> std::fmt::Result {
    let mut is_any = false;
    for verdict in report.verdicts.iter().filter(|verdict| is_meant(&verdict.judged)) {
        let (sign, why) = match &verdict.judged {
            Judged::Held => continue,
            Judged::Unknown(why) => ("unknown ", why),
            Judged::Violated(witness) => ("VIOLATED", witness),
        };
        writeln!(page, "  {sign} {}: {}", clean(&verdict.property), clean(why))?;
        is_any = true;
    }
    if is_any { writeln!(page) } else { Ok(()) }
}

/// How it went, in a sentence.
pub(super) fn headline(report: &Report) -> String {
    let violated: Vec<&str> =
        report.verdicts.iter().filter(|verdict| verdict.violation().is_some()).map(|verdict| verdict.property.as_str()).collect();
    let held = report.verdicts.iter().filter(|verdict| verdict.judged == Judged::Held).count() as u64;
    let unknown = report.verdicts.len() as u64 - held - violated.len() as u64;
    match report.class {
        Class::Held if report.verdicts.is_empty() => "No promise was judged.".to_owned(),
        Class::Held if unknown == 0 => format!("All {} were held.", words::count(held, "promise")),
        Class::Held => format!("{} {} held; of {unknown} nothing can be said.", words::count(held, "promise"), words::was(held)),
        Class::SafetyViolated | Class::LivenessViolated => {
            format!("{} violated: {}.", words::count(violated.len() as u64, "promise"), violated.join(", "))
        }
        Class::Crashed => "The simulated world crashed.".to_owned(),
        Class::Nondeterministic => "The same seed gave two different runs.".to_owned(),
    }
}

fn summary(report: &Report) -> String {
    let Numbers { expected, fired, attempts, retries, lost_workers, timeouts, unfinished, lateness, .. } = &report.total;
    let about = &report.about;
    let shape = format!("{}, {}", words::count(about.schedulers as u64, "scheduler"), words::count(about.workers as u64, "worker"));
    let mut text = format!(
        "  {} of {} fired, {} dropped on record, {} undecided\n  of the fired {} succeeded, {} ended wrong, {} cancelled, {} unfinished\n",
        words::thousands(*fired),
        words::count(*expected, "fire time"),
        words::thousands(report.total.dropped_total()),
        words::thousands(report.total.undecided()),
        words::thousands(report.total.in_state("succeeded")),
        words::thousands(report.total.gone_wrong()),
        words::thousands(report.total.cancelled()),
        words::thousands(*unfinished)
    );
    text.push_str(&format!(
        "  {}: {}, {}, {}\n",
        words::count(*attempts, "attempt"),
        words::count(*retries, "retry"),
        words::count(*lost_workers, "lost worker"),
        words::count(*timeouts, "timeout")
    ));
    text.push_str(&format!(
        "  late by {} (p50), {} (p99), {} at most\n",
        words::duration(lateness.p50_ms),
        words::duration(lateness.p99_ms),
        words::duration(lateness.max_ms)
    ));
    text.push_str(&format!("  {} came over {shape}; all times are UTC\n", words::count(about.faults as u64, "fault")));
    text
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head.iter().copied());
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if index == 0 { CellAlignment::Left } else { CellAlignment::Right });
        column.set_padding((if index == 0 { 1 } else { 0 }, 1));
    }
    table
}

fn trimmed(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn tasks(tasks: &[TaskReport]) -> String {
    let mut table =
        table(&["Task", "fired", "of", "dropped", "ok", "wrong", "cancelled", "open", "retries", "late p50", "p99", "max", "run max"]);
    for TaskReport { name, numbers, .. } in tasks {
        let late = |ms: u64| if numbers.lateness.count == 0 { "-".to_owned() } else { words::duration(ms) };
        let number = words::thousands;
        table.add_row([
            shortened(&clean(name)),
            number(numbers.fired),
            number(numbers.expected),
            number(numbers.dropped_total()),
            number(numbers.in_state("succeeded")),
            number(numbers.gone_wrong()),
            number(numbers.cancelled()),
            number(numbers.unfinished),
            number(numbers.retries),
            late(numbers.lateness.p50_ms),
            late(numbers.lateness.p99_ms),
            late(numbers.lateness.max_ms),
            if numbers.runs.count == 0 { "-".to_owned() } else { words::duration(numbers.runs.max_ms) },
        ]);
    }
    trimmed(&table)
}

fn downstreams(report: &Report) -> String {
    let mut table = table(&["Service", "calls", "failed", "retries", "calls/instance", "usual/min", "worst/min", "at"]);
    for downstream in &report.downstreams {
        let DownstreamReport {
            name, calls, failures, retries, amplification_per_mille, usual_per_minute, peak_per_minute, peak_at_ms, ..
        } = downstream;
        table.add_row([
            shortened(&clean(name)),
            words::thousands(*calls),
            words::thousands(*failures),
            words::thousands(*retries),
            words::times(*amplification_per_mille),
            words::thousands(*usual_per_minute),
            words::thousands(*peak_per_minute),
            if *calls == 0 { "-".to_owned() } else { words::clock(report.about.starts_at, *peak_at_ms) },
        ]);
    }
    trimmed(&table)
}

/// A name that leaves room for the numbers.
fn shortened(name: &str) -> String {
    if name.chars().count() <= 28 { name.to_owned() } else { name.chars().take(27).chain(['…']).collect() }
}

/// With nothing in it that a terminal would obey.
fn clean(text: &str) -> String {
    words::shown(text).replace('\n', " ")
}

/// Breaks a text between words; lines after the first are indented by `next`.
fn wrap(page: &mut String, text: &str, first: usize, next: usize) -> std::fmt::Result {
    let mut line = " ".repeat(first);
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(page, "{line}")?;
            line = " ".repeat(next);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(page, "{line}")
}

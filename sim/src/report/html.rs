//! The report as one page of HTML that needs nothing else: no scripts, no fonts, no files.
//!
//! Everything in the template is escaped but the shapes of the plots, which [`plots`](super::plots) makes and escapes itself. The page's
//! own policy forbids scripts, should anything slip through.

use askama::Template;

use super::findings::{Finding, Severity};
use super::plots::{Axes, Plot, Row, Tick, service_class};
use super::{Class, Judged, Numbers, Report, text, words};
use crate::check::CATALOGUE;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
    title: &'a str,
    headline: String,
    /// Class of the banner.
    tone: &'static str,
    facts: Vec<String>,
    tiles: Vec<Tile>,
    plots: Vec<Plot>,
    ticks: Vec<Tick>,
    faults: Vec<Row>,
    lanes: Vec<Row>,
    tasks: Vec<Line>,
    downstreams: Vec<Line>,
    promises: Vec<Promise<'a>>,
    violated: Vec<(&'a str, &'a str)>,
}

/// A number to see at a glance.
struct Tile {
    number: String,
    what: &'static str,
    note: String,
    tone: &'static str,
}

/// A property with what it says, and a class for its verdict.
struct Promise<'a> {
    property: &'a str,
    says: String,
    class: &'static str,
}

/// A row of a table: its name, what stands under it, a class for its mark, and its cells.
struct Line {
    name: String,
    note: String,
    mark: String,
    cells: Vec<Figure>,
}

/// A cell.
struct Figure {
    text: String,
    note: String,
    tone: &'static str,
}

impl Page<'_> {
    /// What stands over the findings, where there are none.
    fn heading(&self) -> &'static str {
        text::heading(self.report)
    }

    /// The field of a finding, where its advice doesn't name it.
    fn field<'t>(&self, finding: &'t Finding) -> Option<&'t str> {
        let field = finding.field.as_deref()?;
        let name = field.rsplit('.').next().unwrap_or(field);
        let is_named = self.pieces(&finding.advice).iter().any(|(is_code, words)| *is_code && words.contains(name));
        (!is_named).then_some(field)
    }

    /// A text in pieces: whether it stood between backticks, and the words.
    fn pieces<'t>(&self, text: &'t str) -> Vec<(bool, &'t str)> {
        text.split('`').enumerate().map(|(index, words)| (index % 2 == 1, words)).filter(|(_, words)| !words.is_empty()).collect()
    }
}

/// The page.
pub(super) fn render(report: &Report) -> String {
    let axes = Axes::of(report);
    let mut plots = vec![axes.lateness(), axes.backlog()];
    if !report.downstreams.is_empty() {
        plots.push(axes.retries());
    }
    let page = Page {
        report,
        title: report.about.file.as_deref().unwrap_or("A rehearsal"),
        headline: text::headline(report),
        tone: tone(report),
        facts: facts(report),
        tiles: tiles(report),
        plots,
        ticks: axes.ticks(),
        faults: axes.faults(),
        lanes: axes.lanes(),
        tasks: report
            .tasks
            .iter()
            .map(|task| Line { name: task.name.clone(), note: task.trigger.clone(), mark: String::new(), cells: task_cells(&task.numbers) })
            .collect(),
        downstreams: downstreams(report),
        promises: promises(report),
        violated: report.verdicts.iter().filter_map(|verdict| Some((verdict.property.as_str(), verdict.violation()?))).collect(),
    };
    page.render().expect("a page of texts and numbers")
}

/// A class for the banner: promises first, then the worst finding.
fn tone(report: &Report) -> &'static str {
    match (report.class, report.findings.first().map(|finding| finding.severity)) {
        (Class::Held, Some(Severity::Serious | Severity::Warning)) => "warn",
        (Class::Held, _) => "good",
        _ => "bad",
    }
}

/// The promises, the broken ones first.
fn promises(report: &Report) -> Vec<Promise<'_>> {
    let says = |id: &str| CATALOGUE.iter().find(|property| property.id == id).map_or("", |property| property.says);
    let promise = |verdict: &'_ super::Verdict| match &verdict.judged {
        Judged::Violated(_) => ("broken", says(&verdict.property).to_owned()),
        Judged::Unknown(why) => ("unknown", format!("{}: {why}", says(&verdict.property))),
        Judged::Held => ("", says(&verdict.property).to_owned()),
    };
    let mut promises: Vec<Promise> = Vec::new();
    for verdict in &report.verdicts {
        let (class, says) = promise(verdict);
        promises.push(Promise { property: &verdict.property, says, class });
    }
    promises.sort_by_key(|promise| ["broken", "unknown", ""].iter().position(|class| *class == promise.class));
    promises
}

fn facts(report: &Report) -> Vec<String> {
    let about = &report.about;
    vec![
        text::period(report),
        words::count(report.tasks.len() as u64, "task"),
        words::count(about.schedulers as u64, "scheduler"),
        format!("{} with {}", words::count(about.workers as u64, "worker"), words::count(about.slots.into(), "slot")),
        words::count(about.faults as u64, "fault"),
        format!("seed {}", about.seed),
    ]
}

fn tiles(report: &Report) -> Vec<Tile> {
    let Numbers { expected, fired, attempts, retries, unfinished, lateness, queue_wait, .. } = &report.total;
    let dropped = report.total.dropped_total();
    let wrong = report.total.gone_wrong();
    let tile = |number: String, what, note: String, is_bad: bool| Tile { number, what, note, tone: if is_bad { "warn" } else { "" } };
    let mut fates: Vec<String> =
        report.total.dropped.iter().map(|(name, count)| format!("{} {}", words::thousands(*count), words::name(name))).collect();
    fates.sort();
    vec![
        tile(words::thousands(*fired), "fired", format!("of {}", words::count(*expected, "fire time")), false),
        tile(
            words::thousands(report.total.in_state("succeeded")),
            "succeeded",
            words::share(report.total.in_state("succeeded"), *fired),
            false,
        ),
        tile(words::thousands(wrong), "ended wrong", words::share(wrong, *fired), wrong > 0),
        tile(words::thousands(report.total.cancelled()), "cancelled", words::share(report.total.cancelled(), *fired), false),
        tile(words::thousands(dropped), "dropped", if fates.is_empty() { "nothing".to_owned() } else { fates.join(", ") }, dropped > 0),
        tile(
            words::thousands(*unfinished),
            "unfinished",
            match report.total.undecided() {
                0 => "when the run ended".to_owned(),
                undecided => format!("and {} undecided", words::count(undecided, "fire time")),
            },
            *unfinished > 0,
        ),
        tile(words::thousands(*retries), "retries", format!("in {}", words::count(*attempts, "attempt")), false),
        tile(
            words::duration(lateness.p99_ms),
            "late, 99 of 100",
            format!("half {}, most {}", words::duration(lateness.p50_ms), words::duration(lateness.max_ms)),
            false,
        ),
        tile(words::duration(queue_wait.max_ms), "longest wait", "for a first worker".to_owned(), false),
    ]
}

fn figure(text: String) -> Figure {
    Figure { text, note: String::new(), tone: "" }
}

/// A count that is better zero.
fn unwanted(count: u64, tone: &'static str, note: String) -> Figure {
    Figure { text: words::thousands(count), note, tone: if count > 0 { tone } else { "zero" } }
}

fn task_cells(numbers: &Numbers) -> Vec<Figure> {
    let spread = |count: u64, ms: u64| figure(if count == 0 { "–".to_owned() } else { words::duration(ms) });
    let list = |counts: &std::collections::BTreeMap<String, u64>| {
        counts.iter().map(|(name, count)| format!("{} {}", words::thousands(*count), words::name(name))).collect::<Vec<_>>().join(", ")
    };
    vec![
        Figure { text: words::thousands(numbers.fired), note: format!("of {}", words::count(numbers.expected, "fire time")), tone: "" },
        unwanted(numbers.dropped_total(), "warn", list(&numbers.dropped)),
        Figure { text: words::thousands(numbers.in_state("succeeded")), note: list(&numbers.states), tone: "" },
        unwanted(numbers.gone_wrong(), "bad", list(&numbers.states)),
        unwanted(numbers.cancelled(), "", list(&numbers.states)),
        unwanted(numbers.unfinished, "warn", String::new()),
        unwanted(numbers.retries, "", format!("{} in all", words::count(numbers.attempts, "attempt"))),
        unwanted(numbers.lost_workers, "", String::new()),
        unwanted(numbers.timeouts, "warn", String::new()),
        unwanted(numbers.limit_reached, "", String::new()),
        spread(numbers.lateness.count, numbers.lateness.p50_ms),
        spread(numbers.lateness.count, numbers.lateness.p99_ms),
        spread(numbers.lateness.count, numbers.lateness.max_ms),
        spread(numbers.queue_wait.count, numbers.queue_wait.max_ms),
        spread(numbers.runs.count, numbers.runs.max_ms),
        figure(words::thousands(numbers.peak_running)),
    ]
}

fn downstreams(report: &Report) -> Vec<Line> {
    let line = |(service, downstream): (usize, &super::DownstreamReport)| Line {
        name: downstream.name.clone(),
        note: downstream.tasks.join(", "),
        mark: service_class(service),
        cells: vec![
            figure(words::thousands(downstream.instances)),
            figure(words::thousands(downstream.calls)),
            Figure { text: words::thousands(downstream.failures), note: words::share(downstream.failures, downstream.calls), tone: "" },
            figure(words::thousands(downstream.retries)),
            figure(words::times(downstream.amplification_per_mille)),
            figure(words::thousands(downstream.usual_per_minute)),
            Figure {
                text: words::thousands(downstream.peak_per_minute),
                note: format!("{} of them retries", words::thousands(downstream.peak_retries_per_minute)),
                tone: "",
            },
            figure(if downstream.calls == 0 { "–".to_owned() } else { words::clock(report.about.starts_at, downstream.peak_at_ms) }),
        ],
    };
    report.downstreams.iter().enumerate().map(line).collect()
}

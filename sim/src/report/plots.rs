//! The plots, as small vector images.
//!
//! Only shapes are drawn: a plot is stretched to the width that there is, and what is written around it (ticks, names) is text of the
//! page that keeps its size. All shapes get their colours from the page's classes, so that light and dark are the page's business.
//! Numbers and text that go into a shape pass through here and nowhere else, and text is escaped.

use std::fmt::Write;

use super::{Cell, FaultSpan, Lane, Report, words};

/// Every plot is this wide and its own height high, in units of its own.
const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 100.0;
/// Services that have a colour of their own; the rest share one.
pub(super) const SERVICE_COLOURS: usize = 6;

/// The marks of the scale of lateness: durations that people know, about ten times the one before.
const DURATIONS_MS: [u64; 9] = [10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 43_200_000, 604_800_000];

/// A plot with what is written around it.
pub(super) struct Plot {
    pub(super) title: &'static str,
    pub(super) hint: String,
    /// Shapes, as markup.
    pub(super) shapes: String,
    /// Where on the left, from the bottom, in percent, and what.
    pub(super) ticks: Vec<(String, String)>,
    /// A class and what it stands for.
    pub(super) legend: Vec<(String, String)>,
}

/// A moment under the plots.
pub(super) struct Tick {
    /// From the left, in percent.
    pub(super) at: String,
    pub(super) label: String,
    /// Left out where there is little room.
    pub(super) is_minor: bool,
}

/// A row of the timeline.
pub(super) struct Row {
    pub(super) label: String,
    pub(super) hint: String,
    pub(super) shapes: String,
}

/// The axes that all plots of a report share.
pub(super) struct Axes<'a> {
    report: &'a Report,
    end_ms: f64,
    bucket: f64,
}

impl<'a> Axes<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        let end_ms = (report.timeline.bucket_ms * report.timeline.buckets.len() as u64).max(1) as f64;
        Axes { report, end_ms, bucket: WIDTH / report.timeline.buckets.len().max(1) as f64 }
    }

    fn x(&self, at_ms: u64) -> f64 {
        at_ms as f64 / self.end_ms * WIDTH
    }

    /// Whole hours, or whatever gives a handful of ticks, by the clock in UTC.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        const STEPS_MS: [i64; 13] = [
            60_000,
            300_000,
            600_000,
            900_000,
            1_800_000,
            3_600_000,
            7_200_000,
            10_800_000,
            21_600_000,
            43_200_000,
            86_400_000,
            604_800_000,
            2_592_000_000,
        ];
        let end_ms = self.end_ms as i64;
        let step = STEPS_MS.into_iter().find(|step| end_ms / step <= 9).unwrap_or(end_ms / 8);
        let start = self.report.about.starts_at;
        let first = start.div_euclid(step) * step + if start.rem_euclid(step) == 0 { 0 } else { step };
        let mut ticks = Vec::new();
        let mut at = first;
        while at - start <= end_ms {
            let offset = u64::try_from(at - start).unwrap_or(0);
            let label = if step >= 86_400_000 { words::day(start, offset) } else { words::time_of_day(start, offset) };
            ticks.push(Tick { at: number(self.x(offset) / WIDTH * 100.0), label, is_minor: ticks.len() % 2 == 1 });
            at += step;
        }
        ticks
    }

    fn span(&self, bucket: usize) -> String {
        let bucket_ms = self.report.timeline.bucket_ms;
        let from = bucket as u64 * bucket_ms;
        let start = self.report.about.starts_at;
        format!("{} to {}", words::clock(start, from), words::clock(start, from + bucket_ms))
    }

    /// What lies behind every plot: lines, and faults that lasted a while.
    fn ground(&self, lines: &[f64]) -> String {
        let mut shapes = String::new();
        for fault in self.report.timeline.faults.iter().filter(|fault| fault.until_ms - fault.from_ms >= self.report.timeline.bucket_ms) {
            rect(&mut shapes, "shade", self.x(fault.from_ms), 0.0, self.x(fault.until_ms) - self.x(fault.from_ms), HEIGHT, None);
        }
        for y in lines {
            line(&mut shapes, "grid", 0.0, HEIGHT - y, WIDTH, HEIGHT - y);
        }
        let healed = self.x(self.report.about.heal_at_ms);
        line(&mut shapes, "healed", healed, 0.0, healed, HEIGHT);
        shapes
    }

    /// A wide invisible target for each bucket, which tells its numbers.
    fn targets(&self, shapes: &mut String, tell: impl Fn(usize) -> Option<String>) {
        for bucket in 0..self.report.timeline.buckets.len() {
            if let Some(told) = tell(bucket) {
                rect(
                    shapes,
                    "target",
                    bucket as f64 * self.bucket,
                    0.0,
                    self.bucket,
                    HEIGHT,
                    Some(&format!("{}\n{told}", self.span(bucket))),
                );
            }
        }
    }

    /// Lateness, on a logarithmic scale.
    pub(super) fn lateness(&self) -> Plot {
        let buckets = &self.report.timeline.buckets;
        let most = buckets.iter().map(|bucket| bucket.lateness.max_ms).max().unwrap_or(0);
        let top = DURATIONS_MS.iter().position(|ms| *ms >= most).unwrap_or(DURATIONS_MS.len() - 1).max(2);
        let marks = &DURATIONS_MS[..=top];
        let log = |ms: u64| (ms as f64).log10();
        let (low, high) = (log(marks[0]), log(marks[top]));
        let y = |ms: u64| (log(ms.max(1)).clamp(low, high) - low) / (high - low) * HEIGHT;
        let lines: Vec<f64> = marks.iter().map(|ms| y(*ms)).collect();
        let mut shapes = self.ground(&lines);
        // Between the median and the 99th percentile lies what most people get.
        for (index, bucket) in buckets.iter().enumerate().filter(|(_, bucket)| bucket.lateness.count > 0) {
            let (top, bottom) = (y(bucket.lateness.p99_ms), y(bucket.lateness.p50_ms));
            rect(&mut shapes, "band", index as f64 * self.bucket, HEIGHT - top, self.bucket, top - bottom, None);
        }
        for (class, of) in [("max", 0), ("p99", 1), ("p50", 2)] {
            let points = buckets.iter().map(|bucket| {
                let spread = bucket.lateness;
                (spread.count > 0).then(|| y([spread.max_ms, spread.p99_ms, spread.p50_ms][of]))
            });
            steps(&mut shapes, class, self.bucket, points);
        }
        self.targets(&mut shapes, |index| {
            let spread = buckets[index].lateness;
            let [p50, p99, max] = [spread.p50_ms, spread.p99_ms, spread.max_ms].map(words::duration);
            (spread.count > 0)
                .then(|| format!("{} began\nlate by {p50} (p50), {p99} (p99), {max} at most", words::count(spread.count, "run")))
        });
        Plot {
            title: "Lateness",
            hint: "From the fire time to the handler's beginning, on a scale that grows tenfold or so from line to line.".to_owned(),
            shapes,
            ticks: marks.iter().map(|ms| (number(y(*ms)), words::duration(*ms))).collect(),
            legend: [("p50", "half of the runs"), ("p99", "99 of 100"), ("max", "the latest")].map(pair).into(),
        }
    }

    /// Backlog and running, as areas on one scale.
    pub(super) fn backlog(&self) -> Plot {
        let buckets = &self.report.timeline.buckets;
        let most = buckets.iter().map(|bucket| bucket.backlog.max(bucket.running)).max().unwrap_or(0);
        let scale = Scale::up_to(most);
        let mut shapes = self.ground(&scale.lines());
        area(&mut shapes, "backlog", self.bucket, buckets.iter().map(|bucket| scale.y(bucket.backlog)));
        area(&mut shapes, "running", self.bucket, buckets.iter().map(|bucket| scale.y(bucket.running)));
        self.targets(&mut shapes, |index| {
            let bucket = &buckets[index];
            Some(format!(
                "{} waiting\n{} running\n{} fired",
                words::thousands(bucket.backlog),
                words::thousands(bucket.running),
                words::thousands(bucket.fires)
            ))
        });
        Plot {
            title: "Backlog and running",
            hint: "Most instances at one moment that were due and had no worker (amber), and that a worker had (blue); where both are, they mix.".to_owned(),
            shapes,
            ticks: scale.ticks(),
            legend: [("backlog", "waiting"), ("running", "running")].map(pair).into(),
        }
    }

    /// Retries for each service, one on the other.
    pub(super) fn retries(&self) -> Plot {
        let buckets = &self.report.timeline.buckets;
        let most = buckets.iter().map(|bucket| bucket.retries.iter().sum::<u64>()).max().unwrap_or(0);
        let scale = Scale::up_to(most);
        let mut shapes = self.ground(&scale.lines());
        for (index, bucket) in buckets.iter().enumerate() {
            let mut below = 0;
            for (service, count) in bucket.retries.iter().enumerate().filter(|(_, count)| **count > 0) {
                let (bottom, top) = (scale.y(below), scale.y(below + count));
                rect(
                    &mut shapes,
                    &service_class(service),
                    index as f64 * self.bucket,
                    HEIGHT - top,
                    self.bucket * 0.92,
                    top - bottom,
                    None,
                );
                below += count;
            }
        }
        let names: Vec<&str> = self.report.downstreams.iter().map(|downstream| downstream.name.as_str()).collect();
        self.targets(&mut shapes, |index| {
            let told: Vec<String> = buckets[index]
                .retries
                .iter()
                .zip(&names)
                .filter(|(count, _)| **count > 0)
                .map(|(count, name)| format!("{name}: {}", words::thousands(*count)))
                .collect();
            (!told.is_empty()).then(|| told.join("\n"))
        });
        let legend = names.iter().enumerate().map(|(service, name)| (service_class(service), (*name).to_owned()));
        Plot {
            title: "Retries for each service",
            hint: "Calls of second and later attempts.".to_owned(),
            shapes,
            ticks: scale.ticks(),
            legend: legend.collect(),
        }
    }

    /// The faults: a row for each family.
    pub(super) fn faults(&self) -> Vec<Row> {
        let faults = &self.report.timeline.faults;
        self.report
            .about
            .families
            .iter()
            .map(|family| {
                let mut shapes = String::new();
                let of_family: Vec<&FaultSpan> = faults.iter().filter(|fault| fault.family == *family).collect();
                for fault in &of_family {
                    let (from, until) = (self.x(fault.from_ms), self.x(fault.until_ms));
                    let start = self.report.about.starts_at;
                    let told = match fault.until_ms - fault.from_ms {
                        0 => format!("{}\n{}", fault.what, words::clock(start, fault.from_ms)),
                        lasts => format!("{}\n{}, for {}", fault.what, words::clock(start, fault.from_ms), words::duration(lasts)),
                    };
                    // What lasts seconds is to be seen too.
                    rect(&mut shapes, "fault", from, 8.0, (until - from).max(1.6), HEIGHT - 16.0, Some(&told));
                }
                Row { label: family.clone(), hint: words::count(of_family.len() as u64, "fault"), shapes }
            })
            .collect()
    }

    /// The tasks with the most trouble: a row for each.
    pub(super) fn lanes(&self) -> Vec<Row> {
        self.report.timeline.lanes.iter().map(|lane| self.lane(lane)).collect()
    }

    fn lane(&self, lane: &Lane) -> Row {
        let task = &self.report.tasks[lane.task];
        let mut shapes = String::new();
        for cell in &lane.cells {
            let told = format!("{}\n{}", self.span(cell.bucket), tell(cell));
            // On a phone it is a pixel wide, and must not fall between two.
            let width = self.bucket.max(3.2);
            let left = cell.bucket as f64 * self.bucket;
            let mut top = 8.0;
            for (class, share) in shares(cell) {
                let height = share * (HEIGHT - 16.0);
                rect(&mut shapes, class, left, top, width, height, Some(&told));
                top += height;
            }
        }
        Row { label: task.name.clone(), hint: task.trigger.clone(), shapes }
    }
}

/// What part of a cell has which class, from the worst to the best: one failure among many is not all of it, and is to be seen too.
fn shares(cell: &Cell) -> Vec<(&'static str, f64)> {
    let bad = cell.wrong + cell.cancelled;
    // Each instance counts once, as the worst that it was.
    let retried = cell.retried.min(cell.fired.saturating_sub(bad));
    let late = cell.late.min(cell.fired.saturating_sub(bad + retried));
    let fine = cell.fired.saturating_sub(bad + retried + late);
    let counts = [
        ("wrong", cell.wrong),
        ("dropped", cell.dropped),
        ("cancelled", cell.cancelled),
        ("retried", retried),
        ("late", late),
        ("fine", fine),
    ];
    let counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    // A tenth of the height at least.
    let weights: Vec<f64> = {
        let sum: u64 = counts.iter().map(|(_, count)| count).sum();
        counts.iter().map(|(_, count)| (*count as f64 / sum as f64).max(0.1)).collect()
    };
    let sum: f64 = weights.iter().sum();
    counts.into_iter().zip(weights).map(|((class, _), weight)| (class, weight / sum)).collect()
}

fn tell(cell: &Cell) -> String {
    let mut told = vec![format!("{} fired", words::thousands(cell.fired))];
    for (count, what) in [
        (cell.wrong, "ended wrong or not at all"),
        (cell.dropped, "fire times dropped"),
        (cell.cancelled, "cancelled"),
        (cell.retried, "needed another attempt"),
        (cell.late, "began more than a minute late"),
    ] {
        if count > 0 {
            told.push(format!("{} {what}", words::thousands(count)));
        }
    }
    told.join("\n")
}

/// The class of the service at this place.
pub(super) fn service_class(service: usize) -> String {
    format!("service-{}", service.min(SERVICE_COLOURS - 1))
}

fn pair((class, name): (&str, &str)) -> (String, String) {
    (class.to_owned(), name.to_owned())
}

/// A scale from zero, with round numbers.
struct Scale {
    step: u64,
    top: u64,
}

impl Scale {
    fn up_to(most: u64) -> Scale {
        let most = most.max(1);
        let mut step = 1;
        for factor in [2, 5, 10].iter().cycle() {
            if most.div_ceil(step) <= 4 {
                break;
            }
            // 1, 2, 5, 10, 20, 50 and so on.
            step = match factor {
                2 => step * 2,
                5 => step / 2 * 5,
                _ => step * 2,
            };
        }
        Scale { step, top: most.div_ceil(step) * step }
    }

    fn y(&self, value: u64) -> f64 {
        value as f64 / self.top as f64 * HEIGHT
    }

    fn values(&self) -> impl Iterator<Item = u64> {
        (0..=self.top / self.step).map(|index| index * self.step)
    }

    fn lines(&self) -> Vec<f64> {
        self.values().map(|value| self.y(value)).collect()
    }

    fn ticks(&self) -> Vec<(String, String)> {
        self.values().map(|value| (number(self.y(value)), words::thousands(value))).collect()
    }
}

/// A number with two decimals at most, the same on every machine.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text that stands in markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

// Classes are words of this file. Writing to a text can't fail.

fn rect(shapes: &mut String, class: &str, x: f64, y: f64, width: f64, height: f64, title: Option<&str>) {
    let (x, y, width, height) = (number(x), number(y), number(width.max(0.0)), number(height.max(0.0)));
    let _ = write!(shapes, r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}""#);
    let _ = match title {
        Some(title) => write!(shapes, "><title>{}</title></rect>", escaped(title)),
        None => write!(shapes, "/>"),
    };
}

fn line(shapes: &mut String, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
    let _ = write!(shapes, r#"<line class="{class}" x1="{}" y1="{}" x2="{}" y2="{}"/>"#, number(x1), number(y1), number(x2), number(y2));
}

/// A line from bucket to bucket, interrupted where there is nothing. A lone bucket is a short dash.
fn steps(shapes: &mut String, class: &str, bucket: f64, points: impl Iterator<Item = Option<f64>>) {
    let mut path = String::new();
    let mut runs: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for (index, point) in points.enumerate() {
        match (point, runs.last_mut()) {
            (Some(y), Some(run)) => run.push((index as f64 * bucket, HEIGHT - y)),
            _ => runs.push(Vec::new()),
        }
    }
    for run in runs.iter().filter(|run| !run.is_empty()) {
        for (place, (x, y)) in run.iter().enumerate() {
            let (command, x) = if place == 0 { ('M', *x) } else { ('L', x + bucket / 2.0) };
            let _ = write!(path, "{command}{} {}", number(x), number(*y));
        }
        let (x, y) = run[run.len() - 1];
        let _ = write!(path, "L{} {}", number(x + bucket), number(y));
    }
    let _ = write!(shapes, r#"<path class="line {class}" d="{path}"/>"#);
}

/// The area under the values of the buckets, with its upper edge as a line.
fn area(shapes: &mut String, class: &str, bucket: f64, values: impl Iterator<Item = f64>) {
    let mut edge = String::new();
    let mut end = 0.0;
    for (index, y) in values.enumerate() {
        let (from, until) = (index as f64 * bucket, (index + 1) as f64 * bucket);
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(edge, "{command}{} {}L{} {}", number(from), number(HEIGHT - y), number(until), number(HEIGHT - y));
        end = until;
    }
    if !edge.is_empty() {
        let _ = write!(shapes, r#"<path class="area {class}" d="{edge}L{} {HEIGHT}L0 {HEIGHT}Z"/>"#, number(end));
        let _ = write!(shapes, r#"<path class="line {class}" d="{edge}"/>"#);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_in_round_numbers() {
        for (most, top, step) in
            [(0, 1, 1), (4, 4, 1), (7, 8, 2), (13, 15, 5), (17, 20, 5), (99, 100, 50), (120, 150, 50), (1_001, 1_500, 500)]
        {
            let scale = Scale::up_to(most);
            assert_eq!((scale.top, scale.step), (top, step), "{most}");
        }
    }

    #[test]
    fn a_failure_among_many_has_its_share_of_a_cell() {
        let cell = Cell { fired: 100, wrong: 1, retried: 3, ..Cell::default() };
        let shares = shares(&cell);
        assert_eq!(shares.iter().map(|(class, _)| *class).collect::<Vec<_>>(), ["wrong", "retried", "fine"]);
        assert!(shares[0].1 > 0.05 && shares[0].1 < 0.2 && shares[2].1 > 0.7, "{shares:?}");
        assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn text_in_shapes_is_escaped() {
        let mut shapes = String::new();
        rect(&mut shapes, "fine", 0.0, 0.0, 1.25, 1.0, Some("<script>alert('1')</script>&\"\u{1b}"));
        assert_eq!(
            shapes,
            "<rect class=\"fine\" \
             x=\"0\" y=\"0\" width=\"1.25\" height=\"1\"><title>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot; </title></rect>"
        );
    }
}

//! Lines of attempts.

use std::future::Future;
use std::sync::Arc;

use punctual_core::ids::{Fence, InstanceId, TaskId, WorkerId};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::logs::{
    AttemptLines, Day, FoundLine, LINE_BYTES_MAX, Level, LogBatch, LogCursor, LogLine, LogPage, LogQuery, LogStore, PAGE_BYTES_MAX, TraceId,
};

use super::START;

const INSTANCE: InstanceId = InstanceId(7 << 48 | 43);
const DAY_MS: i64 = 86_400_000;

/// Opens stores of lines for the suite.
pub trait LogFactory {
    /// Opens an empty store. What it is kept in lives at least as long as the factory.
    fn open_logs(&self) -> impl Future<Output = Arc<dyn LogStore>>;
}

fn line(seq: u64, at: i64, level: Level, message: &str) -> LogLine {
    LogLine { seq, at: Timestamp(START.0 + at), level, dropped: 0, message: message.into() }
}

fn batch(instance: InstanceId, fence: u64, lines: Vec<LogLine>) -> Arc<LogBatch> {
    let trace = TraceId([9; 16]);
    let attempt = AttemptLines { instance, fence: Fence(fence), attempt: fence as u32, task: TaskId(u64::MAX >> 1), trace, lines };
    Arc::new(LogBatch { worker: WorkerId("w\u{e4}".into()), attempts: vec![attempt] })
}

async fn append(store: &Arc<dyn LogStore>, batches: Vec<Arc<LogBatch>>) {
    store.append(batches, START).await.expect("stored");
}

async fn read(store: &Arc<dyn LogStore>, query: LogQuery) -> Vec<FoundLine> {
    store.lines(query).await.expect("lines").lines
}

/// Whether a line is one of those that are asked for.
fn wants(query: &LogQuery, found: &FoundLine) -> bool {
    let line = &found.line;
    query.attempt.is_none_or(|attempt| attempt == found.attempt)
        && (line.dropped > 0 || (line.level >= query.level && query.text.as_deref().is_none_or(|text| line.message.contains(text))))
}

fn all() -> LogQuery {
    LogQuery::of(INSTANCE, START)
}

fn messages(lines: &[FoundLine]) -> Vec<&str> {
    lines.iter().map(|found| &*found.line.message).collect()
}

/// Whatever is in a line comes back.
pub async fn lines_come_back_as_they_were(factory: &impl LogFactory) {
    let store = factory.open_logs().await;
    assert_eq!(read(&store, all()).await, []);
    let strange = "\u{1b}[31m<script>alert(1)</script>\u{0}'\"\\ \u{1f600}\r";
    let mut lines: Vec<_> = (1..).zip(Level::ALL).map(|(seq, level)| line(seq, seq as i64, level, strange)).collect();
    lines.push(LogLine { seq: 6, at: Timestamp(START.0 + 6), level: Level::Warn, dropped: 17, message: "17 lines were dropped".into() });
    lines.push(line(7, 7, Level::Info, ""));
    let sent = batch(INSTANCE, 3, lines.clone());
    append(&store, vec![sent.clone(), batch(InstanceId(1), 3, vec![line(1, 0, Level::Info, "another's")])]).await;
    let found = read(&store, all()).await;
    assert_eq!(found.iter().map(|found| found.line.clone()).collect::<Vec<_>>(), lines);
    let FoundLine { fence, attempt, task, worker, trace, .. } = found[0].clone();
    assert_eq!((fence, attempt, task, worker, trace), (Fence(3), 3, TaskId(u64::MAX >> 1), sent.worker.clone(), TraceId([9; 16])));
}

/// A worker that has had no answer sends again, also to another replica, also more than was sent before.
pub async fn what_is_sent_twice_is_there_once(factory: &impl LogFactory) {
    let store = factory.open_logs().await;
    let first = batch(INSTANCE, 3, vec![line(1, 0, Level::Info, "one"), line(2, 0, Level::Info, "two")]);
    append(&store, vec![first.clone()]).await;
    append(&store, vec![first.clone(), first]).await;
    append(&store, vec![batch(INSTANCE, 3, vec![line(2, 0, Level::Error, "another two"), line(3, 0, Level::Info, "three")])]).await;
    assert_eq!(messages(&read(&store, all()).await), ["one", "two", "three"], "what is there stays as it is");
}

/// By attempt and number, whatever the order in which they came, and across days.
pub async fn lines_are_paged_in_order(factory: &impl LogFactory) {
    let store = factory.open_logs().await;
    // The second attempt's worker has a clock that is behind: its lines lie on an earlier day than the first one's.
    append(&store, vec![batch(INSTANCE, 5, (1..=4).map(|seq| line(seq, -DAY_MS, Level::Info, &format!("5.{seq}"))).collect())]).await;
    for seq in (1..=6).rev() {
        let at = if seq > 3 { DAY_MS } else { 0 };
        append(&store, vec![batch(INSTANCE, 4, vec![line(seq, at, Level::Info, &format!("4.{seq}"))])]).await;
    }
    let expected = ["4.1", "4.2", "4.3", "4.4", "4.5", "4.6", "5.1", "5.2", "5.3", "5.4"];
    assert_eq!(messages(&read(&store, all()).await), expected);
    for limit in [1, 3, 4, 10, 11] {
        let (mut got, mut after) = (Vec::new(), None);
        loop {
            let page = read(&store, LogQuery { after, limit, ..all() }).await;
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = Some(last.cursor());
            got.extend(page);
        }
        assert_eq!(messages(&got), expected, "{limit} at once");
        let newest = read(&store, LogQuery { newest: true, limit, ..all() }).await;
        assert_eq!(messages(&newest), expected[10_usize.saturating_sub(limit)..], "the last {limit}");
    }
    let behind = LogCursor { fence: Fence(4), seq: 5 };
    assert_eq!(messages(&read(&store, LogQuery { after: Some(behind), ..all() }).await), expected[5..]);
    assert_eq!(read(&store, LogQuery { after: Some(LogCursor { fence: Fence(9), seq: 0 }), ..all() }).await, []);
    let until = Some(Timestamp(START.0 - 4 * DAY_MS));
    assert_eq!(read(&store, LogQuery { from: Timestamp(START.0 - 9 * DAY_MS), until, ..all() }).await, [], "it had long ended");
    assert_eq!(read(&store, LogQuery { from: Timestamp(START.0 + 3 * DAY_MS), ..all() }).await, [], "it was not there yet");
}

/// By level, attempt and text; a notice of what is missing comes whatever is asked for.
pub async fn lines_are_searched(factory: &impl LogFactory) {
    let store = factory.open_logs().await;
    let notice = LogLine { dropped: 5, ..line(4, 0, Level::Warn, "5 lines were dropped") };
    let lines = vec![
        line(1, 0, Level::Debug, "paper 100%"),
        line(2, 0, Level::Error, "out of paper_"),
        line(3, 0, Level::Info, "Paper \u{e4}"),
        notice,
        line(5, 0, Level::Warn, "low"),
    ];
    append(&store, vec![batch(INSTANCE, 1, lines), batch(INSTANCE, 2, vec![line(1, 0, Level::Info, "again: paper")])]).await;
    for (query, expected) in [
        (LogQuery { level: Level::Warn, ..all() }, vec!["out of paper_", "5 lines were dropped", "low"]),
        (LogQuery { text: Some("paper".into()), ..all() }, vec!["paper 100%", "out of paper_", "5 lines were dropped", "again: paper"]),
        (LogQuery { text: Some("r_".into()), ..all() }, vec!["out of paper_", "5 lines were dropped"]),
        (LogQuery { text: Some("0%".into()), ..all() }, vec!["paper 100%", "5 lines were dropped"]),
        (LogQuery { text: Some("\u{e4}".into()), ..all() }, vec!["Paper \u{e4}", "5 lines were dropped"]),
        (LogQuery { text: Some("' OR 1=1".into()), ..all() }, vec!["5 lines were dropped"]),
        (LogQuery { attempt: Some(2), ..all() }, vec!["again: paper"]),
        (LogQuery { attempt: Some(2), level: Level::Error, ..all() }, vec![]),
    ] {
        let found = read(&store, query.clone()).await;
        assert_eq!(messages(&found), expected, "{query:?}");
        assert!(found.iter().all(|found| wants(&query, found)), "{query:?}");
    }
}

/// Whoever wants little is told how far was looked, and goes on from there; a page has a bounded size.
pub async fn what_was_looked_at_is_told(factory: &impl LogFactory) {
    let store = factory.open_logs().await;
    let at = |fence, seq| Some(LogCursor { fence: Fence(fence), seq });
    let wanted = |after, limit| LogQuery { text: Some("yes".into()), after, limit, ..all() };
    assert_eq!(store.lines(wanted(None, 9)).await.expect("lines"), LogPage::default());
    let lines = (1..=6).map(|seq| line(seq, 0, Level::Info, if seq % 3 == 0 { "yes" } else { "no" })).collect();
    append(&store, vec![batch(INSTANCE, 1, lines), batch(INSTANCE, 2, vec![line(1, DAY_MS, Level::Info, "no")])]).await;
    for (after, limit, seen, count, is_full) in [
        (None, 9, at(2, 1), 2, false),
        (None, 2, at(1, 6), 2, true),
        (None, 1, at(1, 3), 1, true),
        (at(1, 3), 1, at(1, 6), 1, true),
        (at(1, 6), 1, at(2, 1), 0, false),
        (at(2, 1), 1, None, 0, false),
    ] {
        let page = store.lines(wanted(after, limit)).await.expect("lines");
        assert_eq!((page.seen, page.lines.len(), page.is_full), (seen, count, is_full), "{limit} behind {after:?}");
    }
    let newest = store.lines(LogQuery { newest: true, ..wanted(None, 1) }).await.expect("lines");
    assert_eq!((newest.seen, newest.lines[0].cursor()), (at(2, 1), LogCursor { fence: Fence(1), seq: 6 }));
    let long = "x".repeat(LINE_BYTES_MAX);
    append(&store, vec![batch(INSTANCE, 3, (1..=40).map(|seq| line(seq, 0, Level::Info, &long)).collect())]).await;
    let page = store.lines(LogQuery { after: at(3, 0), ..all() }).await.expect("lines");
    assert!(page.is_full && page.seen == page.lines.last().map(FoundLine::cursor), "{:?}", page.seen);
    assert!(page.lines.iter().map(|found| found.line.cost()).sum::<usize>() <= PAGE_BYTES_MAX);
}

/// A worker whose clock is far off sends again behind midnight: the line is read once.
pub async fn what_lies_on_two_days_is_read_once(factory: &impl LogFactory) {
    let store = factory.open_logs().await;
    let sent = batch(INSTANCE, 1, vec![line(1, 400 * DAY_MS, Level::Info, "one"), line(2, 400 * DAY_MS, Level::Info, "two")]);
    for days in 0..2 {
        let now = Timestamp(START.0 + days * DAY_MS);
        store.keep(9, now).await.expect("kept");
        store.append(vec![sent.clone()], now).await.expect("stored");
    }
    for newest in [false, true] {
        assert_eq!(messages(&read(&store, LogQuery { newest, ..all() }).await), ["one", "two"]);
    }
    let first = store.lines(LogQuery { limit: 1, ..all() }).await.expect("lines");
    assert_eq!(messages(&first.lines), ["one"]);
    assert_eq!(messages(&read(&store, LogQuery { after: first.seen, ..all() }).await), ["two"]);
}

/// Old days go whole, and no others; what comes later finds a day of its own.
pub async fn old_days_are_dropped(factory: &impl LogFactory) {
    let store = factory.open_logs().await;
    let at = |days: i64| Timestamp(START.0 + days * DAY_MS);
    assert_eq!(store.keep(3, START).await.expect("kept"), [], "there is nothing yet");
    for days in 0..6 {
        store.keep(100, at(days)).await.expect("kept");
        let sent = batch(INSTANCE, 1, vec![line(days as u64 + 1, days * DAY_MS, Level::Info, &days.to_string())]);
        store.append(vec![sent], at(days)).await.expect("stored");
    }
    let dropped = store.keep(3, at(5)).await.expect("kept");
    let today = Day::of(at(5));
    assert!(dropped.iter().all(|day| *day < Day(today.0 - 2)) && dropped.contains(&Day(today.0 - 3)), "{dropped:?}");
    assert_eq!(messages(&read(&store, all()).await), ["3", "4", "5"]);
    assert_eq!(store.keep(3, at(5)).await.expect("kept"), []);
    assert_eq!(store.keep(1, at(6)).await.expect("kept").len(), 3);
    assert_eq!(read(&store, all()).await, []);
    // A worker whose clock is off has its lines kept all the same, for as long as others have.
    for (fence, off) in [(8, -400), (9, 400)] {
        store.append(vec![batch(INSTANCE, fence, vec![line(1, off * DAY_MS, Level::Info, "off")])], at(6)).await.expect("stored");
    }
    store.keep(1, at(6)).await.expect("kept");
    assert_eq!(messages(&read(&store, all()).await), ["off", "off"]);
    store.keep(1, at(7).saturating_add(Millis(1))).await.expect("kept");
    assert_eq!(read(&store, all()).await, []);
}

//! What the attempts of an instance wrote: its lines, page by page and as they come, and the output that is kept with each attempt.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use aide::OperationOutput;
use aide::generate::GenContext;
use aide::openapi::{Operation, Response};
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use punctual_driver::logs::{
    AGAIN_TIME_MAX, FoundLine, LINE_BYTES_MAX, Level, LogCursor, LogPage, LogQuery, PAGE_BYTES_MAX, PAGE_LINES_MAX, SEARCH_BYTES_MAX,
    WAIT_TIME_MAX,
};
use punctual_driver::ports::{Catalog, Clock, InstanceView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use super::events::LastEvent;
use super::extract::{Asked, Asker, Named};
use super::instances::find;
use super::{Api, ApiError, openapi, views};
use crate::logs::{WATCHERS_MAX, Watch};

/// Lines of a page that doesn't say.
const PAGE: usize = 200;
/// Events that may wait for a connection; then its stream waits.
const WAITING_MAX: usize = 4;
/// A byte of a line may take so many in JSON.
const ESCAPED_BYTES: usize = 6;

const _: () = assert!(
    WATCHERS_MAX * (PAGE_BYTES_MAX + (WAITING_MAX + 1) * ESCAPED_BYTES * LINE_BYTES_MAX) <= 128 << 20,
    "what slow clients are waited for with is bounded"
);

/// How often the store is read for lines that another replica has stored: only while somebody watches.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Lines of an attempt that has ended may still be on their way for so long: behind a full buffer of its worker, and sent a second time.
const LATE: Duration = Duration::from_millis(WAIT_TIME_MAX.0 + AGAIN_TIME_MAX.0);
/// A stream ends after so long, and its listener comes again: what they may see is looked at then.
const STREAM_TIME_MAX: Duration = Duration::from_secs(60);
/// How often something is said where there is nothing to say.
const HEARTBEAT: Duration = Duration::from_secs(5);

const _: () = assert!(LATE.as_secs() < STREAM_TIME_MAX.as_secs(), "a stream may end with its instance");

/// Which lines.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Behind the line with this `cursor`: the `next` of the page before.
    #[schemars(regex(pattern = "^[0-9]{1,19}_[0-9]{1,19}$"))]
    after: Option<String>,
    /// Of this attempt; they are counted from 1.
    attempt: Option<NonZeroU32>,
    /// That matter at least so much.
    #[schemars(regex(pattern = "^(trace|debug|info|warn|error)$"))]
    level: Option<String>,
    /// That have this text in them.
    #[schemars(length(max = 256))]
    text: Option<String>,
}

/// Which page.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageFilter {
    /// Behind the line with this `cursor`: the `next` of the page before.
    #[schemars(regex(pattern = "^[0-9]{1,19}_[0-9]{1,19}$"))]
    after: Option<String>,
    /// Of this attempt; they are counted from 1.
    attempt: Option<NonZeroU32>,
    /// That matter at least so much.
    #[schemars(regex(pattern = "^(trace|debug|info|warn|error)$"))]
    level: Option<String>,
    /// That have this text in them.
    #[schemars(length(max = 256))]
    text: Option<String>,
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
    /// The last lines instead of the first.
    #[serde(default)]
    newest: bool,
}

impl Filter {
    fn query(&self, view: &InstanceView) -> Result<LogQuery, ApiError> {
        let bad = |field, problem| ApiError::BadRequest { field, problem };
        let cursor =
            |text: &String| text.parse::<LogCursor>().map_err(|()| bad("after", format!("{text:?} is not the `cursor` of a line")));
        let after = self.after.as_ref().map(cursor).transpose()?;
        let level = match self.level.as_deref() {
            None => Level::Trace,
            Some(name) => {
                Level::from_name(name).ok_or_else(|| bad("level", format!("{name:?} is not one of trace, debug, info, warn, error")))?
            }
        };
        if self.text.as_ref().is_some_and(|text| text.len() > SEARCH_BYTES_MAX) {
            return Err(bad("text", format!("it has more than {SEARCH_BYTES_MAX} bytes")));
        }
        let text = self.text.as_deref().filter(|text| !text.is_empty()).map(Arc::from);
        Ok(LogQuery { after, attempt: self.attempt.map(NonZeroU32::get), level, text, ..of(view) })
    }
}

/// All lines of an instance.
pub(crate) fn of(view: &InstanceView) -> LogQuery {
    LogQuery { until: view.row.ended_at(), ..LogQuery::of(view.row.id, view.row.created_at()) }
}

/// A line.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LineShown {
    /// Where it is, for `after`.
    cursor: String,
    at: String,
    /// trace, debug, info, warn or error.
    level: &'static str,
    attempt: u32,
    /// Its number in its attempt.
    number: u64,
    worker: String,
    task_id: u64,
    /// The trace that the instance is, as W3C's trace context has it.
    trace_id: String,
    /// What it says, control characters and all.
    message: String,
    /// So many lines are missing here; what it says is about them. 0: it is the attempt's own.
    dropped: u64,
}

fn shown(found: &FoundLine) -> LineShown {
    LineShown {
        cursor: found.cursor().to_string(),
        at: found.line.at.to_string(),
        level: found.line.level.name(),
        attempt: found.attempt,
        number: found.line.seq,
        worker: found.worker.to_string(),
        task_id: found.task.0,
        trace_id: found.trace.to_string(),
        message: found.line.message.to_string(),
        dropped: found.line.dropped,
    }
}

/// What the attempts of an instance wrote.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Logs {
    instance: String,
    task: String,
    state: &'static str,
    /// Its lines, by attempt, in order.
    lines: Vec<LineShown>,
    /// For `after` of the next call; null: there were no more.
    next: Option<String>,
    /// What each attempt that has ended wrote, the beginning and the end of it; with the first page only.
    outputs: Vec<views::OutputShown>,
}

pub(crate) async fn page<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    Asked(asked): Asked<PageFilter>,
) -> Result<Json<Logs>, ApiError> {
    let PageFilter { after, attempt, level, text, limit, newest } = asked;
    let filter = Filter { after, attempt, level, text };
    let limit = limit.unwrap_or(PAGE);
    if !(1..=PAGE_LINES_MAX).contains(&limit) {
        return Err(ApiError::BadRequest { field: "limit", problem: format!("{limit} is not between 1 and {PAGE_LINES_MAX}") });
    }
    let view = find(&api, &id).await?;
    let found = api.logs.store().lines(LogQuery { limit, newest, ..filter.query(&view)? }).await?;
    let next = found.seen.filter(|_| found.is_full && !newest).map(|seen| seen.to_string());
    let outputs = match filter.after {
        None => api.store.outputs(view.row.id).await?,
        Some(_) => Vec::new(),
    };
    let of_attempt = |number: &u32| attempt.is_none_or(|attempt| attempt.get() == *number);
    let outputs = outputs.iter().filter(|(number, _)| of_attempt(number)).map(|(number, output)| views::output(*number, output)).collect();
    let (task, state) = (view.task_name.to_string(), view.row.state.name());
    Ok(Json(Logs { instance: id, task, state, lines: found.lines.iter().map(shown).collect(), next, outputs }))
}

/// An instance has ended, and all its lines were told.
#[derive(Serialize, JsonSchema)]
struct EndEvent {
    state: &'static str,
}

/// A stream of lines.
pub(crate) struct Stream(ReceiverStream<Result<Event, Infallible>>);

impl IntoResponse for Stream {
    fn into_response(self) -> axum::response::Response {
        Sse::new(self.0).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("still here")).into_response()
    }
}

impl OperationOutput for Stream {
    type Inner = String;

    fn operation_response(ctx: &mut GenContext, _: &mut Operation) -> Option<Response> {
        // Described here, since a stream has no schema of its own.
        drop((ctx.schema.subschema_for::<LineShown>(), ctx.schema.subschema_for::<EndEvent>()));
        let description = "Events named line (LineShown), whose id is the line's cursor, and in the end one named end (EndEvent)";
        Some(openapi::event_stream(description))
    }

    fn inferred_responses(ctx: &mut GenContext, operation: &mut Operation) -> Vec<(Option<u16>, Response)> {
        Self::operation_response(ctx, operation).into_iter().map(|response| (Some(200), response)).collect()
    }
}

/// Lines as they are stored. It goes on behind the line that was heard last, or `after`; it ends with the instance, and after a minute, and its
/// listener comes again then. Late lines of an attempt before the one that is told already are left to the pages.
pub(crate) async fn stream<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Named(id): Named,
    Asked(mut filter): Asked<Filter>,
    last: LastEvent,
) -> Result<Stream, ApiError> {
    // An id that is none of a line has been heard elsewhere.
    filter.after = last.0.filter(|id| id.parse::<LogCursor>().is_ok()).or(filter.after);
    let view = find(&api, &id).await?;
    let query = filter.query(&view)?;
    let watch = api.logs.watch(&identity.name, view.row.id).ok_or(ApiError::TooManyListeners { most: WATCHERS_MAX })?;
    let (events, stream) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        let gone = events.clone();
        tokio::select! {
            biased;
            () = gone.closed() => {}
            () = tokio::time::sleep(STREAM_TIME_MAX) => {}
            _ = tell(&api, query, &watch, &events) => {}
        }
    });
    Ok(Stream(ReceiverStream::new(stream)))
}

/// Tells lines until the instance has ended; `None`: nobody listens, or the store can't be read, and the listener comes again.
pub(super) async fn tell<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    mut query: LogQuery,
    watch: &Watch,
    events: &mpsc::Sender<Result<Event, Infallible>>,
) -> Option<()> {
    // The end of the instance, once it was seen, and when the last line came since.
    let mut ended: Option<(&'static str, Instant)> = None;
    loop {
        let is_late = ended.is_some_and(|(_, quiet_since)| quiet_since.elapsed() >= LATE);
        loop {
            let LogPage { lines, seen, is_full } = api.logs.store().lines(query.clone()).await.ok()?;
            // Also behind what was not wanted: it is not looked at again.
            query.after = seen.or(query.after);
            for line in &lines {
                let data = serde_json::to_string(&shown(line)).unwrap_or_default();
                events.send(Ok(Event::default().event("line").id(line.cursor().to_string()).data(data))).await.ok()?;
            }
            if let Some((_, quiet_since)) = ended.as_mut().filter(|_| !lines.is_empty()) {
                *quiet_since = Instant::now();
            }
            if !is_full {
                break;
            }
        }
        match ended {
            Some((state, _)) if is_late => {
                let data = serde_json::to_string(&EndEvent { state }).unwrap_or_default();
                return events.send(Ok(Event::default().event("end").data(data))).await.ok();
            }
            Some(_) => {}
            None => {
                let view = api.store.instance(query.instance).await.ok()??;
                if let Some(at) = view.row.ended_at() {
                    query.until = Some(at);
                    // What had ended long ago has nothing on its way.
                    let is_long = api.clock.now().wall.since(at).0 > LATE.as_millis() as u64;
                    let now = Instant::now();
                    let quiet_since = if is_long { now.checked_sub(LATE).unwrap_or(now) } else { now };
                    ended = Some((view.row.state.name(), quiet_since));
                    if is_long {
                        continue;
                    }
                }
            }
        }
        let _ = tokio::time::timeout(LOOK_INTERVAL, watch.came()).await;
    }
}

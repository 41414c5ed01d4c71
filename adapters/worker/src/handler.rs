//! Handlers of one's own: typed payloads in, typed results out.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use punctual_core::limits::{OUTPUT_BYTES_MAX, RESULT_BYTES_MAX};
use punctual_core::protocol::{Assignment, End};
use punctual_core::time::Millis;
use punctual_driver::logs::AttemptLog;
use punctual_driver::ports::{Ended, Stop};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::output::cut_detail;
use crate::{TaskContext, failed, failed_for_good, items, stopped_before_start};

/// Why a handler has failed.
///
/// Any error becomes one that may be retried, so `?` is enough for what may pass by itself.
pub struct HandlerError {
    is_permanent: bool,
    retry_after: Option<Millis>,
    detail: String,
}

impl HandlerError {
    /// It may go better another time: the task's retry policy decides.
    pub fn retry(detail: impl Into<String>) -> Self {
        HandlerError { is_permanent: false, retry_after: None, detail: detail.into() }
    }

    /// It may go better after this time, and not before: what the handler calls has said so. The next attempt waits at least as long,
    /// a day at most, also beyond the cap of the task's backoff. Whether there is one, its retry policy decides.
    pub fn retry_after(wait: Duration, detail: impl Into<String>) -> Self {
        let wait = Millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        HandlerError { retry_after: Some(wait), ..HandlerError::retry(detail) }
    }

    /// It would fail again: the attempt is the last.
    pub fn permanent(detail: impl Into<String>) -> Self {
        HandlerError { is_permanent: true, ..HandlerError::retry(detail) }
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, if self.is_permanent { "for good" } else { "may be retried" })
    }
}

impl<E: fmt::Display> From<E> for HandlerError {
    fn from(error: E) -> Self {
        // The alternate form of `anyhow` has the causes in it.
        HandlerError::retry(format!("{error:#}"))
    }
}

/// A handler whose types are forgotten.
pub(crate) type Erased = Arc<dyn Fn(TaskContext) -> Pin<Box<dyn Future<Output = Ended> + Send>> + Send + Sync>;

/// Forgets the types of a handler.
pub(crate) fn erase<P, R, F, H>(handler: H) -> Erased
where
    P: DeserializeOwned,
    R: Serialize,
    F: Future<Output = Result<R, HandlerError>> + Send + 'static,
    H: Fn(TaskContext, P) -> F + Send + Sync + 'static,
{
    Arc::new(move |context: TaskContext| {
        // No payload is `null`, which `()` and `Option` are read from. Text that was handed over as it is serves handlers that take text.
        let given = context.payload().unwrap_or("null");
        let as_text = || serde_json::from_value(serde_json::Value::String(given.to_owned())).ok();
        let payload = match serde_json::from_str(given).or_else(|error| as_text().ok_or(error)) {
            Ok(payload) => payload,
            Err(error) => {
                let detail = format!("the payload is not what this handler takes: {error}. Correct the task, or the worker");
                return Box::pin(std::future::ready(failed_for_good(detail)));
            }
        };
        let running = handler(context.clone(), payload);
        Box::pin(async move { into_ended(&context, running.await) })
    })
}

fn into_ended<R: Serialize>(context: &TaskContext, result: Result<R, HandlerError>) -> Ended {
    let (ended, result) = match result {
        // It was asked to end and did; what it says of itself tells why.
        Err(error) if context.is_cancelled() => (Ended { end: End::Cancelled, ..failed(&error.detail) }, String::new()),
        Err(error) if error.is_permanent => (failed_for_good(&error.detail), String::new()),
        Err(error) => (Ended { retry_after: error.retry_after, ..failed(&error.detail) }, String::new()),
        Ok(result) if context.lists() => {
            let text = serde_json::to_string(&result).map_err(|error| format!("can't be written: {error}"));
            let ended = match &text {
                Ok(text) => items::listed(succeeded(), Ok(text)),
                Err(reason) => items::listed(succeeded(), Err(reason.clone())),
            };
            (ended, String::new())
        }
        Ok(result) => match serde_json::to_string(&result) {
            Ok(text) if text == "null" => (succeeded(), String::new()),
            Ok(text) if text.len() <= RESULT_BYTES_MAX => (Ended { result: Some(Arc::from(text.as_str())), ..succeeded() }, text),
            Ok(text) if text.len() <= OUTPUT_BYTES_MAX / 2 => {
                let detail =
                    format!("the result has {} bytes, and at most {RESULT_BYTES_MAX} can be handed on: it is output only", text.len());
                (Ended { detail: Some(cut_detail(&detail)), ..succeeded() }, text)
            }
            // It has happened: to fail now would make it happen again.
            Ok(text) => (
                Ended { detail: Some(cut_detail("the result was too large to be kept")), ..succeeded() },
                format!("({} bytes)", text.len()),
            ),
            Err(error) => {
                (Ended { detail: Some(cut_detail(&format!("the result can't be written: {error}"))), ..succeeded() }, String::new())
            }
        },
    };
    Ended { output: context.output(&result), ..ended }
}

fn succeeded() -> Ended {
    Ended {
        end: End::Succeeded,
        code: None,
        detail: None,
        output: punctual_core::batch::Output::default(),
        result: None,
        items: None,
        retry_after: None,
    }
}

/// Runs a handler to its end, or until it is to end now. A panic is a failure.
pub(crate) async fn run(handler: Erased, assignment: Arc<Assignment>, mut stop: watch::Receiver<Stop>, log: Option<AttemptLog>) -> Ended {
    if *stop.borrow() != Stop::No {
        return stopped_before_start();
    }
    let context = TaskContext::new(assignment, stop.clone(), log);
    let killed = async {
        if stop.wait_for(|asked| *asked == Stop::Kill).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let running = Unwinding { context: context.clone(), handler, running: None };
    tokio::select! {
        biased;
        ended = running => ended,
        () = killed => {
            let detail = "the handler did not end within its grace and was dropped; it may have had its effect";
            Ended { end: End::Cancelled, output: context.output(""), ..failed(detail) }
        }
    }
}

/// A handler whose panics are caught, also those of its beginning.
struct Unwinding {
    context: TaskContext,
    handler: Erased,
    running: Option<Pin<Box<dyn Future<Output = Ended> + Send>>>,
}

impl Future for Unwinding {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Ended> {
        let Unwinding { context, handler, running } = &mut *self;
        // What has panicked is not polled again.
        let polled =
            std::panic::catch_unwind(AssertUnwindSafe(|| running.get_or_insert_with(|| handler(context.clone())).as_mut().poll(task)));
        polled.unwrap_or_else(|panic| {
            let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let detail = format!("the handler panicked: {}", words.unwrap_or("without words"));
            Poll::Ready(Ended { output: context.output(""), ..failed(detail) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Attempt;

    async fn length(_: TaskContext, text: String) -> Result<usize, HandlerError> {
        Ok(text.len())
    }

    #[tokio::test]
    async fn text_that_is_no_json_serves_a_handler_that_takes_text() {
        for (payload, expected) in [("hello you", "9"), ("\"hello\"", "5"), ("4711", "4"), ("", "0")] {
            let mut attempt = Attempt::default();
            attempt.assignment.payload = Some(Arc::from(payload));
            let ended = erase(length)(attempt.context()).await;
            assert_eq!((ended.end, String::from_utf8_lossy(&ended.output.bytes).into_owned()), (End::Succeeded, expected.to_owned()));
        }
    }
}

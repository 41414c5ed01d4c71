//! Lines of attempts: the worker's call, and what a replica makes of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use punctual_core::ids::{Fence, InstanceId, TaskId, WorkerId};
use punctual_core::limits::PARTITIONS_MAX;
use punctual_core::time::Timestamp;
use punctual_driver::logs::{
    AttemptLines, BATCH_BYTES_MAX, BATCH_LINES_MAX, LINE_BYTES_MAX, LINE_OVERHEAD, Level, LogBatch, LogLine, LogSink, NOTICE_BYTES_MAX,
    NotTaken, TraceId,
};
use punctual_proto::limits::{FRAME_BYTES_MAX, WORKER_ID_BYTES_MAX};
use punctual_proto::wire;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::limits::LOG_TIME_MAX;
use crate::replica::Common;
use crate::status;
use crate::wire::workers_client::WorkersClient;

const _: () = assert!(
    BATCH_BYTES_MAX + LINE_BYTES_MAX + BATCH_LINES_MAX * (LINE_OVERHEAD + NOTICE_BYTES_MAX) <= FRAME_BYTES_MAX,
    "a frame holds the largest batch: up to the line that reaches its limit, and the rest notices"
);

/// Lines as they are sent.
pub(crate) fn into_wire(batch: &LogBatch) -> wire::LogBatch {
    let line = |line: &LogLine| wire::LogLine {
        sequence: line.seq,
        at_ms: line.at.0,
        level: i32::from(line.level.code()),
        dropped: line.dropped,
        message: line.message.to_string(),
    };
    let attempts = batch.attempts.iter().map(|attempt| wire::LogLines {
        attempt: Some(wire::Attempt { instance: Some(attempt.instance.0), fence: Some(attempt.fence.0) }),
        number: attempt.attempt,
        task: Some(attempt.task.0),
        trace_id: attempt.trace.0.to_vec(),
        lines: attempt.lines.iter().map(line).collect(),
    });
    wire::LogBatch { worker: batch.worker.0.to_string(), attempts: attempts.collect() }
}

/// Lines as they came; who sent them may be anybody. Says which field is not as it should be.
pub(crate) fn from_wire(batch: wire::LogBatch) -> Result<LogBatch, &'static str> {
    let is_worker = !batch.worker.is_empty() && batch.worker.len() <= WORKER_ID_BYTES_MAX;
    let worker = is_worker.then(|| WorkerId(batch.worker.into())).ok_or("LogBatch.worker is empty or too long")?;
    if batch.attempts.len() > BATCH_LINES_MAX || batch.attempts.iter().map(|attempt| attempt.lines.len()).sum::<usize>() > BATCH_LINES_MAX {
        return Err("LogBatch has too many lines");
    }
    let attempts: Vec<_> = batch.attempts.into_iter().map(attempt_from_wire).collect::<Result<_, _>>()?;
    let lines = attempts.iter().flat_map(|attempt| &attempt.lines);
    if lines.filter(|line| line.dropped == 0).map(LogLine::cost).sum::<usize>() >= BATCH_BYTES_MAX + LINE_BYTES_MAX + LINE_OVERHEAD {
        return Err("LogBatch has too many bytes");
    }
    Ok(LogBatch { worker, attempts })
}

fn attempt_from_wire(lines: wire::LogLines) -> Result<AttemptLines, &'static str> {
    // As stores count.
    let known = |number: Option<u64>| number.filter(|number| *number <= i64::MAX as u64);
    let attempt = lines.attempt.ok_or("LogLines.attempt is missing")?;
    let instance = known(attempt.instance).map(InstanceId).filter(|instance| instance.partition().0 < PARTITIONS_MAX);
    Ok(AttemptLines {
        instance: instance.ok_or("LogLines.attempt.instance is missing, or of no partition")?,
        fence: known(attempt.fence).map(Fence).ok_or("LogLines.attempt.fence is missing, or too large")?,
        attempt: Some(lines.number).filter(|number| *number > 0).ok_or("LogLines.number is 0")?,
        task: known(lines.task).map(TaskId).ok_or("LogLines.task is missing, or too large")?,
        trace: TraceId(lines.trace_id.try_into().map_err(|_| "LogLines.trace_id has not 16 bytes")?),
        lines: lines.lines.into_iter().map(line_from_wire).collect::<Result<_, _>>()?,
    })
}

fn line_from_wire(line: wire::LogLine) -> Result<LogLine, &'static str> {
    let level = u8::try_from(line.level).ok().and_then(Level::from_code).ok_or("LogLine.level is none that this version knows")?;
    if !(1..=i64::MAX as u64).contains(&line.sequence) || line.dropped > i64::MAX as u64 {
        return Err("LogLine.sequence is 0, or a number is too large");
    }
    if !(Timestamp::MIN.0..=Timestamp::MAX.0).contains(&line.at_ms) {
        return Err("LogLine.at_ms is out of range");
    }
    if line.message.len() > if line.dropped > 0 { NOTICE_BYTES_MAX } else { LINE_BYTES_MAX } {
        return Err("LogLine.message is too long");
    }
    Ok(LogLine { seq: line.sequence, at: Timestamp(line.at_ms), level, dropped: line.dropped, message: line.message.into() })
}

/// Why lines were not taken, in gRPC's words.
pub(crate) fn into_status(reason: NotTaken) -> Status {
    match reason {
        NotTaken::Busy => Status::resource_exhausted("the lines can't be stored just now"),
        NotTaken::Never => Status::unimplemented("lines are not stored here"),
        NotTaken::Refused => Status::invalid_argument("the lines can't be stored"),
    }
}

/// A replica that lines are sent to.
pub(crate) struct Remote<'a> {
    pub(crate) common: &'a Common,
    pub(crate) client: WorkersClient<Channel>,
}

impl std::fmt::Debug for Remote<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remote")
    }
}

impl Remote<'_> {
    pub(crate) async fn send(&self, batch: Arc<LogBatch>) -> Result<(), NotTaken> {
        let mut client = self.client.clone();
        let Ok(answer) = timeout(LOG_TIME_MAX, client.log(self.common.request(into_wire(&batch)))).await else {
            return Err(NotTaken::Busy);
        };
        answer.map(drop).map_err(|refused| match refused.code() {
            Code::Unimplemented => NotTaken::Never,
            Code::InvalidArgument => {
                tracing::warn!(reason = status::in_words(&refused), "lines were refused, and are dropped");
                NotTaken::Refused
            }
            _ => NotTaken::Busy,
        })
    }
}

/// Where a replica's lines go that come from workers.
pub(crate) async fn take(sink: Option<&Arc<dyn LogSink>>, batch: LogBatch) -> Result<(), NotTaken> {
    let taking: Pin<Box<dyn Future<Output = Result<(), NotTaken>> + Send + '_>> = match sink {
        Some(sink) => sink.take(Arc::new(batch)),
        None => return Err(NotTaken::Never),
    };
    taking.await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> LogBatch {
        let line = LogLine { seq: 7, at: Timestamp(-5), level: Level::Warn, dropped: 3, message: "\u{1b}[1m<b>\0\u{1f600}".into() };
        let (instance, fence) = (InstanceId(43 << 48 | 17), Fence(18));
        let attempt = AttemptLines { instance, fence, attempt: 2, task: TaskId(9), trace: TraceId([7; 16]), lines: vec![line] };
        LogBatch { worker: WorkerId("w1".into()), attempts: vec![attempt] }
    }

    #[test]
    fn lines_come_as_they_are_sent() {
        assert_eq!(from_wire(into_wire(&batch())), Ok(batch()));
        for level in Level::ALL {
            assert!(
                wire::LogLevel::try_from(i32::from(level.code())).expect("known").as_str_name().ends_with(&level.name().to_uppercase())
            );
        }
    }

    /// So many of the longest lines.
    fn fill(batch: &mut wire::LogBatch, lines: usize) {
        let line = wire::LogLine { dropped: 0, message: "x".repeat(LINE_BYTES_MAX), ..batch.attempts[0].lines[0].clone() };
        batch.attempts[0].lines = vec![line; lines];
    }

    /// The line that reaches the limit is the last one, and notices come on top.
    #[test]
    fn the_largest_batch_is_taken() {
        let mut wire = into_wire(&batch());
        let notice = wire::LogLine { message: "x".repeat(NOTICE_BYTES_MAX), ..wire.attempts[0].lines[0].clone() };
        fill(&mut wire, BATCH_BYTES_MAX / (LINE_BYTES_MAX + LINE_OVERHEAD) + 1);
        let lines = &mut wire.attempts[0].lines;
        lines.resize(BATCH_LINES_MAX, notice);
        assert!(prost::Message::encoded_len(&wire) < FRAME_BYTES_MAX);
        from_wire(wire).expect("as a worker may send it");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        type Spoil = fn(&mut wire::LogBatch);
        let spoils: [(Spoil, &str); 17] = [
            (|batch| batch.worker.clear(), "worker"),
            (|batch| batch.worker = "w".repeat(WORKER_ID_BYTES_MAX + 1), "worker"),
            (|batch| batch.attempts = vec![batch.attempts[0].clone(); BATCH_LINES_MAX + 1], "too many"),
            (|batch| batch.attempts[0].lines = vec![batch.attempts[0].lines[0].clone(); BATCH_LINES_MAX + 1], "too many"),
            (|batch| batch.attempts[0].attempt = None, "attempt"),
            (|batch| batch.attempts[0].attempt.as_mut().unwrap().instance = Some(u64::MAX), "instance"),
            (|batch| batch.attempts[0].attempt.as_mut().unwrap().fence = None, "fence"),
            (|batch| batch.attempts[0].number = 0, "number"),
            (|batch| batch.attempts[0].task = Some(u64::MAX), "task"),
            (|batch| batch.attempts[0].trace_id.truncate(15), "trace_id"),
            (|batch| batch.attempts[0].lines[0].level = 0, "level"),
            (|batch| batch.attempts[0].lines[0].level = 300, "level"),
            (|batch| batch.attempts[0].lines[0].sequence = 0, "sequence"),
            (|batch| batch.attempts[0].lines[0].at_ms = i64::MAX, "at_ms"),
            (|batch| batch.attempts[0].lines[0].message = "x".repeat(NOTICE_BYTES_MAX + 1), "message"),
            (
                |batch| {
                    let line = &mut batch.attempts[0].lines[0];
                    (line.dropped, line.message) = (0, "x".repeat(LINE_BYTES_MAX + 1));
                },
                "message",
            ),
            (|batch| fill(batch, BATCH_BYTES_MAX / (LINE_BYTES_MAX + LINE_OVERHEAD) + 2), "too many bytes"),
        ];
        for (spoil, field) in spoils {
            let mut wire = into_wire(&batch());
            spoil(&mut wire);
            let refused = from_wire(wire).expect_err(field);
            assert!(refused.contains(field), "{refused} is about {field}");
        }
    }
}

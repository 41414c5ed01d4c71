//! What is asked of the database, as far as it concerns commits: the packet that says COMMIT, and the answer to it.
//!
//! A packet is its length in three bytes, its number in one, and what it says. A client asks one question at a time, so whatever comes after
//! a COMMIT is the answer to it.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use punctual_sim::draw::Draw;
use tokio::sync::watch;

use crate::weather::Weather;

const HEADER_BYTES: usize = 4;
/// COM_QUERY, and the statement.
const COMMIT: &[u8] = b"\x03COMMIT";
const ROLLBACK_PACKET: &[u8] = b"\x09\x00\x00\x00\x03ROLLBACK";
/// Number 1, an error: 1213, state 40001, a deadlock.
const ABORTED: &[u8] = b"\xff\xbd\x04#40001Deadlock found when trying to get lock; try restarting transaction";

/// What is to become of the answer that comes next.
const PASS: u8 = 0;
const ABORT: u8 = 1;
const LOSE: u8 = 2;

/// What becomes of a connection's commits.
pub(super) struct Commits {
    draw: Arc<Mutex<Draw>>,
    weather: watch::Receiver<Weather>,
    next: AtomicU8,
}

/// What becomes of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Carried,
    Aborted,
    AppliedAnswerLost,
    NotAppliedAnswerLost,
}

impl Commits {
    pub(super) fn new(draw: Arc<Mutex<Draw>>, weather: watch::Receiver<Weather>) -> Commits {
        Commits { draw, weather, next: AtomicU8::new(PASS) }
    }

    fn fate(&self) -> Fate {
        let rates = {
            let world = &self.weather.borrow().world;
            [world.aborts_per_mille, world.applied_lost_per_mille, world.not_applied_lost_per_mille]
        };
        let mut draw = self.draw.lock().unwrap_or_else(PoisonError::into_inner);
        let happens = rates.map(|per_mille| draw.chance(u64::from(per_mille)));
        match happens {
            [true, ..] => Fate::Aborted,
            [_, true, _] => Fate::AppliedAnswerLost,
            [_, _, true] => Fate::NotAppliedAnswerLost,
            _ => Fate::Carried,
        }
    }

    /// What becomes of what the database answers. An error breaks the connection.
    pub(super) fn answered(&self, answer: Bytes) -> io::Result<Bytes> {
        match self.next.swap(PASS, Ordering::Relaxed) {
            ABORT => {
                let mut packet = vec![ABORTED.len() as u8, 0, 0, 1];
                packet.extend_from_slice(ABORTED);
                Ok(packet.into())
            }
            LOSE => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Ok(answer),
        }
    }
}

/// Looks for commits among what a client asks.
pub(super) struct Questions {
    commits: Arc<Commits>,
    /// Bytes of the packet under way that are still to come.
    left: usize,
    /// A beginning of a packet that does not say yet what it is.
    begun: Vec<u8>,
}

impl Questions {
    pub(super) fn new(commits: Arc<Commits>) -> Questions {
        Questions { commits, left: 0, begun: Vec::new() }
    }

    /// What of it goes to the database. An error breaks the connection.
    pub(super) fn pass(&mut self, mut piece: &[u8]) -> io::Result<Bytes> {
        let mut passed = Vec::with_capacity(piece.len() + HEADER_BYTES);
        while !piece.is_empty() {
            if self.left > 0 {
                let (own, rest) = piece.split_at(self.left.min(piece.len()));
                passed.extend_from_slice(own);
                self.left -= own.len();
                piece = rest;
                continue;
            }
            let wanted = match self.begun.first_chunk::<HEADER_BYTES>() {
                None => HEADER_BYTES,
                Some(_) => HEADER_BYTES + COMMIT.len(),
            };
            let (own, rest) = piece.split_at((wanted - self.begun.len()).min(piece.len()));
            self.begun.extend_from_slice(own);
            piece = rest;
            self.decide(&mut passed)?;
        }
        Ok(passed.into())
    }

    /// Passes the packet's beginning on, as soon as it is clear what it is.
    fn decide(&mut self, passed: &mut Vec<u8>) -> io::Result<()> {
        let Some([a, b, c, number]) = self.begun.first_chunk::<HEADER_BYTES>().copied() else { return Ok(()) };
        let length = u32::from_le_bytes([a, b, c, 0]) as usize;
        let may_be_commit = number == 0 && length == COMMIT.len();
        let said = &self.begun[HEADER_BYTES..];
        if may_be_commit && said.len() < length {
            return Ok(());
        }
        let begun = std::mem::take(&mut self.begun);
        if !may_be_commit || begun[HEADER_BYTES..] != *COMMIT {
            self.left = length + HEADER_BYTES - begun.len();
            passed.extend_from_slice(&begun);
            return Ok(());
        }
        match self.commits.fate() {
            Fate::Carried => passed.extend_from_slice(&begun),
            Fate::Aborted => {
                self.commits.next.store(ABORT, Ordering::Relaxed);
                passed.extend_from_slice(ROLLBACK_PACKET);
            }
            Fate::AppliedAnswerLost => {
                self.commits.next.store(LOSE, Ordering::Relaxed);
                passed.extend_from_slice(&begun);
            }
            Fate::NotAppliedAnswerLost => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use punctual_sim::plan::{FaultKind, Shape};

    use super::*;

    fn packet(text: &[u8]) -> Vec<u8> {
        let length = (text.len() as u32).to_le_bytes();
        [&length[..3], &[0], text].concat()
    }

    fn commits(kind: Option<FaultKind>) -> Arc<Commits> {
        let mut weather = Weather::fine(Shape { schedulers: 1, workers: 1, slots: 1, partitions: 1 }, 0, 0);
        kind.into_iter().for_each(|kind| weather.begin(&[], kind, 0));
        let (_, weather) = watch::channel(weather);
        Arc::new(Commits::new(Arc::new(Mutex::new(Draw::new(1, "test"))), weather))
    }

    /// Passes the pieces that the bytes fall into, of this size.
    fn pass(commits: &Arc<Commits>, bytes: &[u8], size: usize) -> io::Result<Vec<u8>> {
        let mut questions = Questions::new(commits.clone());
        let passed: io::Result<Vec<Bytes>> = bytes.chunks(size).map(|piece| questions.pass(piece)).collect();
        passed.map(|pieces| pieces.concat())
    }

    #[test]
    fn what_is_no_commit_passes_as_it_is_however_it_falls_into_pieces() {
        let aborting = commits(Some(FaultKind::DatabaseAborts { per_mille: 1_000 }));
        let large = [&[3][..], &vec![b'x'; 70_000]].concat();
        let all =
            [packet(b"\x03COMMITS"), packet(b""), packet(b"\x03COMMI"), packet(b"\x0eCOMMIT"), packet(&large), packet(b"\x01")].concat();
        for size in [1, 2, 3, 5, 11, 1_000, usize::MAX] {
            assert_eq!(pass(&aborting, &all, size).unwrap(), all, "{size}");
        }
        let fine = commits(None);
        let commit = packet(COMMIT);
        assert_eq!(pass(&fine, &commit, 4).unwrap(), commit);
        assert_eq!(fine.answered(Bytes::from_static(b"ok")).unwrap(), "ok");
    }

    #[test]
    fn a_commit_is_aborted_as_a_deadlock_would() {
        let commits = commits(Some(FaultKind::DatabaseAborts { per_mille: 1_000 }));
        let all = [packet(b"\x03BEGIN"), packet(COMMIT)].concat();
        for size in [1, 6, 100] {
            assert_eq!(pass(&commits, &all, size).unwrap(), [&packet(b"\x03BEGIN"), ROLLBACK_PACKET].concat());
            let answer = commits.answered(Bytes::from_static(b"ok")).unwrap();
            assert_eq!((answer[0] as usize, answer[3], answer[4]), (answer.len() - HEADER_BYTES, 1, 0xff));
            assert_eq!(u16::from_le_bytes([answer[5], answer[6]]), 1213);
            assert_eq!(commits.answered(Bytes::from_static(b"ok")).unwrap(), "ok");
        }
    }

    #[test]
    fn an_answer_is_lost_with_and_without_its_commit() {
        let applied = commits(Some(FaultKind::CommitAppliedAnswerLost { per_mille: 1_000 }));
        assert_eq!(pass(&applied, &packet(COMMIT), 100).unwrap(), packet(COMMIT));
        assert!(applied.answered(Bytes::from_static(b"ok")).is_err());
        let not_applied = commits(Some(FaultKind::CommitNotAppliedAnswerLost { per_mille: 1_000 }));
        assert!(pass(&not_applied, &packet(COMMIT), 100).is_err());
    }
}

//! One direction of a connection.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use punctual_sim::draw::Draw;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::proxy::mysql::{Commits, Questions};
use crate::weather::{End, Passage, Weather};

/// Most bytes of a piece.
const PIECE_BYTES: usize = 16 << 10;
/// Most pieces that are on their way in one direction. A window, as TCP has one.
const PIECES_MAX: usize = 256;

/// One direction of a connection.
pub(super) struct Direction {
    pub(super) from: End,
    pub(super) to: End,
    pub(super) weather: watch::Receiver<Weather>,
    pub(super) filter: Filter,
    /// Draws which pieces are lost.
    pub(super) draw: Arc<Mutex<Draw>>,
}

/// What looks into the bytes.
pub(super) enum Filter {
    /// Nothing.
    None,
    /// What is asked of the database.
    Questions(Questions),
    /// What the database answers.
    Answers(Arc<Commits>),
}

impl Filter {
    pub(super) fn questions(commits: &Option<Arc<Commits>>) -> Filter {
        commits.as_ref().map_or(Filter::None, |commits| Filter::Questions(Questions::new(commits.clone())))
    }

    pub(super) fn answers(commits: &Option<Arc<Commits>>) -> Filter {
        commits.as_ref().map_or(Filter::None, |commits| Filter::Answers(commits.clone()))
    }

    /// What becomes of a piece. An error breaks the connection.
    fn pass(&mut self, piece: Bytes) -> io::Result<Bytes> {
        match self {
            Filter::None => Ok(piece),
            Filter::Questions(questions) => questions.pass(&piece),
            Filter::Answers(commits) => commits.answered(piece),
        }
    }
}

impl Direction {
    /// Carries bytes until the sender has no more, and tells the receiver so.
    ///
    /// # Errors
    ///
    /// One of the ends is gone, or the connection is to break.
    pub(super) async fn carry(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let (pieces, mut arriving) = mpsc::channel::<(Instant, io::Result<Bytes>)>(PIECES_MAX);
        let reading = async move {
            loop {
                let mut piece = vec![0; PIECE_BYTES];
                let read = from.read(&mut piece).await.map(|length| {
                    piece.truncate(length);
                    Bytes::from(piece)
                });
                let is_last = read.as_ref().map_or(true, Bytes::is_empty);
                if pieces.send((Instant::now(), read)).await.is_err() || is_last {
                    return Ok::<(), io::Error>(());
                }
            }
        };
        let writing = async {
            while let Some((sent_at, piece)) = arriving.recv().await {
                let passage = self.pass_after(sent_at).await?;
                let piece = piece?;
                if piece.is_empty() {
                    return to.shutdown().await;
                }
                if self.draw.lock().unwrap_or_else(PoisonError::into_inner).chance(u64::from(passage.lose_per_mille)) {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                to.write_all(&self.filter.pass(piece)?).await?;
            }
            Ok(())
        };
        tokio::try_join!(reading, writing).map(drop)
    }

    /// Waits until what was sent then may arrive.
    async fn pass_after(&mut self, sent_at: Instant) -> io::Result<Passage> {
        loop {
            let passage = self.weather.borrow_and_update().passage(self.from, self.to);
            let due = sent_at + Duration::from_millis(passage.delay_ms);
            if !passage.is_cut && due <= Instant::now() {
                return Ok(passage);
            }
            tokio::select! {
                biased;
                changed = self.weather.changed() => changed.map_err(io::Error::other)?,
                () = sleep_until(due), if !passage.is_cut => {}
            }
        }
    }
}

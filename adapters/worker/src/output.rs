//! What is kept of what a handler wrote and said.

use std::collections::VecDeque;
use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::limits::{DETAIL_BYTES_MAX, OUTPUT_BYTES_MAX};

/// Stands at the end of a text that was cut.
pub const CUT_MARK: &str = " … (cut)";

/// The text as a report's detail: cut to [`DETAIL_BYTES_MAX`] bytes, between two characters, with a mark where it was cut.
pub fn cut_detail(text: &str) -> Arc<str> {
    if text.len() <= DETAIL_BYTES_MAX {
        return text.into();
    }
    let end = text.floor_char_boundary(DETAIL_BYTES_MAX - CUT_MARK.len());
    format!("{}{CUT_MARK}", &text[..end]).into()
}

/// Keeps the beginning and the end of a stream of bytes in bounded memory.
///
/// Half of the limit is for the beginning, the other half is a ring with the newest bytes. As long as the whole stream fits, the two
/// together are the stream.
#[derive(Clone, Debug)]
pub struct Capture {
    limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Default for Capture {
    /// One that keeps [`OUTPUT_BYTES_MAX`] bytes.
    fn default() -> Self {
        Capture::new(OUTPUT_BYTES_MAX)
    }
}

impl Capture {
    /// One that keeps `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Capture { limit, head: Vec::new(), tail: VecDeque::new(), dropped: 0 }
    }

    /// Takes the stream's next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let head_limit = self.limit / 2;
        let (first, rest) = bytes.split_at(bytes.len().min(head_limit - self.head.len()));
        self.head.extend_from_slice(first);

        let tail_limit = self.limit - head_limit;
        let (passed, newest) = rest.split_at(rest.len().saturating_sub(tail_limit));
        let displaced = (self.tail.len() + newest.len()).saturating_sub(tail_limit);
        self.tail.drain(..displaced);
        self.tail.extend(newest);
        self.dropped += (passed.len() + displaced) as u64;
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Whether nothing has come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was kept. Where something was dropped between the beginning and the end, both are trimmed to whole characters: UTF-8 in gives
    /// UTF-8 out.
    pub fn finish(mut self) -> Output {
        if self.dropped > 0 {
            let split = split_character_bytes(&self.head);
            self.head.truncate(self.head.len() - split);
            let torn = self.tail.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
            self.tail.drain(..torn);
            self.dropped += (split + torn) as u64;
        }
        let mut bytes = self.head;
        bytes.extend(self.tail);
        Output { bytes, dropped: self.dropped }
    }

    /// What was kept, where the source was left before its end: the beginning alone, `behind` bytes of the stream having been left unread.
    pub(crate) fn finish_cut(self, behind: u64) -> Output {
        let dropped = self.dropped + behind;
        let mut bytes = self.head;
        bytes.extend(self.tail);
        let split = split_character_bytes(&bytes);
        bytes.truncate(bytes.len() - split);
        Output { bytes, dropped: dropped + split as u64 }
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// How many bytes at the end are the beginning of a character whose rest is missing.
fn split_character_bytes(bytes: &[u8]) -> usize {
    for length in 1..=bytes.len().min(3) {
        let end = &bytes[bytes.len() - length..];
        if is_continuation(end[0]) {
            continue;
        }
        return match std::str::from_utf8(end) {
            Err(error) if error.error_len().is_none() => length,
            _ => 0,
        };
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(limit: usize, chunks: &[&[u8]]) -> Output {
        let mut capture = Capture::new(limit);
        for chunk in chunks {
            capture.push(chunk);
            assert!(capture.len() <= limit);
        }
        capture.finish()
    }

    #[test]
    fn what_fits_is_kept_whole() {
        assert_eq!(captured(8, &[b"abc", b"", b"defgh"]), Output { bytes: b"abcdefgh".to_vec(), dropped: 0 });
        assert_eq!(captured(7, &["äöü€".as_bytes()]).dropped, 2 + 2);
    }

    #[test]
    fn the_middle_goes_first() {
        assert_eq!(captured(6, &[b"0123456789"]), Output { bytes: b"012789".to_vec(), dropped: 4 });
        assert_eq!(captured(7, &[b"01", b"2345678", b"9"]), Output { bytes: b"0126789".to_vec(), dropped: 3 });
        assert_eq!(captured(0, &[b"0123"]), Output { bytes: vec![], dropped: 4 });
    }

    #[test]
    fn a_detail_is_cut_between_characters_and_marked() {
        assert_eq!(&*cut_detail("short"), "short");
        for pad in 0..4 {
            let cut = cut_detail(&format!("{}{}", "x".repeat(pad), "€".repeat(DETAIL_BYTES_MAX)));
            assert!(cut.len() <= DETAIL_BYTES_MAX && cut.len() > DETAIL_BYTES_MAX - 4);
            assert!(cut.ends_with(CUT_MARK));
        }
    }

    proptest! {
        /// Whatever the limit and however the text arrives in pieces, text stays text, the ends are the stream's own, and every byte is
        /// either kept or counted.
        #[test]
        fn text_stays_text(text in "[a-zä€\u{1F600}\n]{0,60}", limit in 0_usize..80, sizes in prop::collection::vec(1_usize..9, 1..9)) {
            let mut capture = Capture::new(limit);
            let mut rest = text.as_bytes();
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (chunk, behind) = rest.split_at(rest.len().min(*size));
                capture.push(chunk);
                rest = behind;
            }
            let output = capture.finish();
            let kept = std::str::from_utf8(&output.bytes).expect("UTF-8");
            prop_assert_eq!(kept.len() as u64 + output.dropped, text.len() as u64);
            prop_assert!(kept.len() <= limit || output.dropped == 0);
            if output.dropped == 0 {
                prop_assert_eq!(kept, &text);
            } else {
                prop_assert!(kept.len() + 6 >= limit, "at most three bytes are trimmed on each side");
                let cut = (0..=kept.len()).any(|at| kept.is_char_boundary(at) && text.starts_with(&kept[..at]) && text.ends_with(&kept[at..]));
                prop_assert!(cut, "beginning and end");
            }
        }

        /// Bytes that are no text lose at most the few that could be torn characters.
        #[test]
        fn every_byte_is_kept_or_counted(bytes in prop::collection::vec(any::<u8>(), 0..100), limit in 0_usize..60) {
            let mut capture = Capture::new(limit);
            capture.push(&bytes);
            let output = capture.finish();
            prop_assert_eq!(output.bytes.len() as u64 + output.dropped, bytes.len() as u64);
        }
    }
}

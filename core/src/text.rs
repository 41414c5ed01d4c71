//! Texts that have no more room: cut between two characters, with a mark that says so.

/// Stands at the end of a text that was cut.
const MARK: char = '…';

/// The text, or so much of its beginning that it has at most so many bytes with the mark at its end. Less room than the mark takes is none.
pub fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let room = bytes_max.saturating_sub(MARK.len_utf8());
        text.truncate(text.floor_char_boundary(room));
        if bytes_max >= MARK.len_utf8() {
            text.push(MARK);
        }
    }
    text
}

/// The text, or the beginning of it and the mark: at most so many characters, for a place of that width.
pub fn cut_to_width(text: &str, chars_max: usize) -> String {
    match (chars_max.checked_sub(1), text.chars().nth(chars_max)) {
        (Some(room), Some(_)) => text.chars().take(room).chain([MARK]).collect(),
        _ => text.chars().take(chars_max).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{cut, cut_to_width};

    #[test]
    fn a_text_fits_its_place_and_says_where_it_did_not() {
        for (text, width, expected) in [("naïve", 5, "naïve"), ("naïve", 4, "naï…"), ("naïve", 1, "…"), ("naïve", 0, ""), ("", 3, "")]
        {
            assert_eq!(cut_to_width(text, width), expected);
        }
    }

    #[test]
    fn a_text_is_cut_between_characters_and_says_so() {
        assert_eq!((cut("abc".to_owned(), 3), cut(String::new(), 0)), ("abc".to_owned(), String::new()));
        assert_eq!((cut("abcd".to_owned(), 3), cut("abcdef".to_owned(), 5)), ("…".to_owned(), "ab…".to_owned()));
        assert_eq!(cut("abc".to_owned(), 2), "");
        for pad in 0..4 {
            for most in 0..20 {
                let text = format!("{}{}", "x".repeat(pad), "€".repeat(10));
                let cut = cut(text.clone(), most);
                assert!(cut.len() <= most && (most < 3 || cut.ends_with('…')) && text.starts_with(cut.trim_end_matches('…')), "{cut}");
                assert!(most < 3 || cut.len() + 3 > most, "no more than a character is lost: {cut}");
            }
        }
    }
}

//! What a code means and what to do about it: docs/errors.md, which is part of the program, code by code.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;

use super::error::ConsoleError;
use super::page::{Nav, Page, Viewer};
use super::words::Words;

const ERRORS: &str = include_str!("../../../../docs/errors.md");

/// A piece of a line.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Code(&'a str),
    Strong(&'a str),
    Emphasis(&'a str),
}

/// The pieces of a paragraph. Of links the words are shown: they lead to files of the documentation.
fn pieces(mut text: &str) -> Vec<Piece<'_>> {
    type Made = for<'a> fn(&'a str) -> Piece<'a>;
    const MARKS: [(&str, Made); 3] =
        [("`", |text| Piece::Code(text)), ("**", |text| Piece::Strong(text)), ("*", |text| Piece::Emphasis(text))];
    let mut found = Vec::new();
    while !text.is_empty() {
        if let Some((label, rest)) = link(text) {
            found.push(Piece::Text(label));
            text = rest;
            continue;
        }
        let marked = MARKS.iter().find_map(|(mark, made)| {
            let (inside, rest) = text.strip_prefix(mark)?.split_once(mark)?;
            Some((made(inside), rest))
        });
        if let Some((piece, rest)) = marked {
            found.push(piece);
            text = rest;
            continue;
        }
        let first = text.chars().next().map_or(1, char::len_utf8);
        let end = text[first..].find(['`', '*', '[']).map_or(text.len(), |end| end + first);
        found.push(Piece::Text(&text[..end]));
        text = &text[end..];
    }
    found
}

/// `[label](address)` at the beginning.
fn link(text: &str) -> Option<(&str, &str)> {
    let (label, rest) = text.strip_prefix('[')?.split_once("](")?;
    Some((label, rest.split_once(')')?.1))
}

/// The paragraphs of a code.
fn section(code: &str) -> Option<&'static str> {
    let begin = ERRORS.find(&format!("\n### {code}\n"))?;
    let rest = &ERRORS[begin + 1..];
    let rest = rest.split_once('\n')?.1;
    Some(rest.split("\n##").next().unwrap_or(rest).trim())
}

#[derive(Template)]
#[template(path = "console/help.html")]
struct HelpPage<'a> {
    p: Page,
    w: &'static Words,
    code: &'a str,
    paragraphs: Vec<Vec<Piece<'static>>>,
}

pub(super) async fn code(viewer: Viewer, Path(code): Path<String>) -> Response {
    let code = code.to_ascii_uppercase();
    let is_code = code.len() <= 10 && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let Some(text) = Some(&code).filter(|_| is_code).and_then(|code| section(code)) else {
        return ConsoleError::NoSuchPage.page(&viewer);
    };
    let paragraphs = text.split("\n\n").map(pieces).collect();
    viewer.show(&HelpPage { p: viewer.page(Nav::None, &*code), w: viewer.words(), code: &code, paragraphs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_its_section_and_no_other() {
        let text = section("PUN-406").unwrap();
        assert!(text.starts_with("**Not allowed.**") && text.contains("*What to do:*") && !text.contains("###"), "{text}");
        assert!(section("PUN-").is_none() && section("PUN-40").is_none());
        // Every code that can be met on a page.
        for line in ERRORS.lines().filter_map(|line| line.strip_prefix("### ")) {
            assert!(section(line).is_some_and(|text| text.contains("What to do")), "{line}");
        }
    }

    #[test]
    fn marks_become_pieces() {
        let read = pieces("**A.** See `x *y*`, [the *page*](a.md#b) and a_b 2 * 3.");
        let expected = [
            Piece::Strong("A."),
            Piece::Text(" See "),
            Piece::Code("x *y*"),
            Piece::Text(", "),
            Piece::Text("the *page*"),
            Piece::Text(" and a_b 2 "),
            Piece::Text("* 3."),
        ];
        assert_eq!(read, expected);
        assert_eq!(pieces("[no link"), [Piece::Text("[no link")]);
    }
}

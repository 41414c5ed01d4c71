//! The file of workers' tokens.
//!
//! A line for each: the token, or `sha256:` and its digest in hexadecimal, and behind it the ids of the workers that may show it; none means
//! any. Empty lines and those that begin with `#` say nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use punctual_grpc::{Tokens, WorkerToken};
use sha2::{Digest, Sha256};

/// Shortest token: what is shorter can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
const DIGEST: &str = "sha256:";

/// What is wrong with the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokensError {
    #[error("PUN-322: the workers' tokens can't be read from {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("PUN-322: {}, line {line}: {what}. A line is a token of at least {TOKEN_BYTES_MIN} characters, or sha256: and its digest, and then the workers that may show it", path.display())]
    Line { path: PathBuf, line: usize, what: &'static str },
    #[error("PUN-322: {} has no token. Write one line for each, such as the output of `openssl rand -hex 32`", path.display())]
    Empty { path: PathBuf },
}

/// Reads the file.
pub(crate) fn read(path: &Path) -> Result<Tokens, TokensError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| TokensError::Unreadable { path: path.to_owned(), reason: error.to_string() })?;
    let mut known = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(token) = words.next().filter(|token| !token.starts_with('#')) else { continue };
        let digest = digest_of(token).map_err(|what| TokensError::Line { path: path.to_owned(), line: index + 1, what })?;
        let workers: Vec<&str> = words.collect();
        let allows = if workers.is_empty() { WorkerToken::for_any() } else { WorkerToken::for_workers(workers) };
        known.push((digest, allows));
    }
    if known.is_empty() {
        return Err(TokensError::Empty { path: path.to_owned() });
    }
    // Digests are compared: how long that takes says nothing about the token.
    let check = move |token: &str| {
        let shown = Sha256::digest(token);
        known.iter().find(|(digest, _)| *digest == shown[..]).map(|(_, allows)| allows.clone())
    };
    Ok(Tokens::Checked(Arc::new(check)))
}

fn digest_of(token: &str) -> Result<[u8; 32], &'static str> {
    let Some(hexadecimal) = token.strip_prefix(DIGEST) else {
        return match token.len() >= TOKEN_BYTES_MIN {
            true => Ok(Sha256::digest(token).into()),
            false => Err("the token is too short"),
        };
    };
    let mut digest = [0; 32];
    if hexadecimal.len() != 64 || !hexadecimal.is_ascii() {
        return Err("the digest has not 64 digits");
    }
    for (place, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hexadecimal[2 * place..2 * place + 2], 16).map_err(|_| "the digest is not hexadecimal")?;
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use punctual_core::ids::WorkerId;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn tokens_are_taken_in_the_clear_or_as_digests_and_may_be_bound_to_workers() {
        let digest: String = Sha256::digest("another-long-token").iter().map(|byte| format!("{byte:02x}")).collect();
        let file = file(&format!("# workers\n\n a-token-for-anybody \nsha256:{digest} w1 w2\n"));
        let Tokens::Checked(check) = read(file.path()).unwrap() else { panic!("they are checked") };
        let allows = |token: &str, worker: &str| check(token).map(|token| token.allows(&WorkerId(worker.into())));
        assert_eq!(allows("a-token-for-anybody", "w9"), Some(true));
        assert_eq!((allows("another-long-token", "w2"), allows("another-long-token", "w3")), (Some(true), Some(false)));
        assert_eq!(allows(&format!("sha256:{digest}"), "w1"), None, "the digest is no token");
        assert_eq!(allows("", "w1"), None);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_and_says_where() {
        for (text, what) in [
            ("short\n", "line 1: the token is too short"),
            ("# c\nsha256:12\n", "line 2: the digest has not 64 digits"),
            (&format!("sha256:{}\n", "g".repeat(64)), "is not hexadecimal"),
            ("# nothing\n", "has no token"),
        ] {
            let error = read(file(text).path()).expect_err(text).to_string();
            assert!(error.contains(what) && error.contains("PUN-322"), "{error}");
        }
        assert!(read(Path::new("/nowhere")).expect_err("nothing there").to_string().contains("can't be read from /nowhere"));
    }
}

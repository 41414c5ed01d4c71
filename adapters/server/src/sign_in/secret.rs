//! Secrets that this program makes, and what of them is kept.

use punctual_driver::accounts::Digest;
use sha2::{Digest as _, Sha256};

/// Bytes of a secret. Nobody guesses one, whatever they know of its digest.
const SECRET_BYTES: usize = 32;
/// What tokens begin with, so that they are recognised where they should not be: in logs, in repositories.
pub(crate) const TOKEN_PREFIX: &str = "pun_";
/// Longest secret that is looked at.
const SECRET_CHARS_MAX: usize = 256;

/// A new secret, in hexadecimal.
pub(crate) fn random() -> String {
    let mut bytes = [0; SECRET_BYTES];
    // A system without random numbers is none to sign in to.
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    hexadecimal(&bytes)
}

/// A new token.
pub(crate) fn token() -> String {
    format!("{TOKEN_PREFIX}{}", random())
}

/// What is kept of a secret; `None`: it is none of ours.
pub(crate) fn digest(secret: &str) -> Option<Digest> {
    (!secret.is_empty() && secret.len() <= SECRET_CHARS_MAX).then(|| Sha256::digest(secret).into())
}

/// What forms of a session have to show: it says nothing of the session's id.
pub(crate) fn csrf_of(session: &str) -> String {
    hexadecimal(&Sha256::digest(format!("csrf {session}")))
}

/// Whether two secrets are the same. Digests are compared: how long that takes says nothing of the secrets.
pub(crate) fn are_equal(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_never_the_same() {
        let (one, other) = (token(), token());
        assert!(one != other && one.len() == TOKEN_PREFIX.len() + 64 && one.starts_with("pun_"));
        assert!(are_equal(&one, &one.clone()) && !are_equal(&one, &other));
        assert_eq!((digest(""), digest(&"x".repeat(257))), (None, None));
    }

    #[test]
    fn what_forms_show_is_bound_to_the_session_and_does_not_tell_it() {
        let session = random();
        let shown = csrf_of(&session);
        assert!(shown != csrf_of(&random()) && !shown.contains(&session));
        assert_ne!(digest(&session).map(|digest| hexadecimal(&digest)), Some(shown), "the store's digest opens no form");
    }
}

//! Passwords: argon2id, a salt of its own for each, as much work for a name that nobody has as for one that somebody has.

use std::sync::{Arc, OnceLock};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use tokio::sync::Semaphore;

/// Shortest password, in characters.
pub(crate) const PASSWORD_CHARS_MIN: usize = 12;
/// Longest one, in bytes.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1_024;
/// Passwords that are worked on at once: each takes 19 MiB, and a core.
const AT_ONCE_MAX: usize = 4;

/// Works on passwords.
#[derive(Debug)]
pub(crate) struct Passwords {
    places: Semaphore,
    /// What is checked where there is no such user.
    nobodys: OnceLock<Arc<str>>,
}

impl Passwords {
    pub(crate) fn new() -> Self {
        Passwords { places: Semaphore::new(AT_ONCE_MAX), nobodys: OnceLock::new() }
    }

    /// The hash of a password.
    pub(crate) async fn hash(&self, password: String) -> Arc<str> {
        let _place = self.places.acquire().await.expect("never closed");
        tokio::task::spawn_blocking(move || hash(&password)).await.expect("hashing has no other end")
    }

    /// Whether the password is the one of this hash. Without a hash it never is, and takes as long.
    pub(crate) async fn check(self: &Arc<Self>, password: String, hash: Option<Arc<str>>) -> bool {
        let _place = self.places.acquire().await.expect("never closed");
        let passwords = self.clone();
        let checked = tokio::task::spawn_blocking(move || match hash {
            Some(hash) => is_of(&password, &hash),
            None => {
                is_of(&password, passwords.nobodys());
                false
            }
        });
        checked.await.expect("checking has no other end")
    }

    /// Makes ready what the first check of a name that nobody has would have to make.
    pub(crate) fn nobodys(&self) -> &Arc<str> {
        self.nobodys.get_or_init(|| hash(&super::secret::random()))
    }
}

fn hash(password: &str) -> Arc<str> {
    let hash: argon2::password_hash::Result<PasswordHash> = Argon2::default().hash_password(password.as_bytes());
    hash.expect("the usual work, and a password that is not too long").to_string().into()
}

fn is_of(password: &str, hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

/// What keeps a password from being one.
pub(crate) fn problem(name: &str, password: &str) -> Option<&'static str> {
    if password.chars().count() < PASSWORD_CHARS_MIN {
        return Some("it has fewer than 12 characters");
    }
    if password.len() > PASSWORD_BYTES_MAX {
        return Some("it has more than 1024 bytes");
    }
    let mut characters = password.chars();
    let first = characters.next();
    if characters.all(|character| Some(character) == first) {
        return Some("it is one character again and again");
    }
    (!name.is_empty() && password.to_lowercase().contains(&name.to_lowercase()) && password.len() < 2 * name.len() + PASSWORD_CHARS_MIN)
        .then_some("it is little more than the name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_checked_against_its_own_hash() {
        let (one, other) = (hash("correct horse"), hash("correct horse"));
        assert!(one != other && one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one}");
        assert!(is_of("correct horse", &one) && !is_of("Correct horse", &one) && !is_of("", &one));
        assert!(!is_of("correct horse", "") && !is_of("correct horse", "correct horse"));
    }

    #[test]
    fn nobody_has_no_password_and_costs_as_much() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let passwords = Arc::new(Passwords::new());
        assert!(!runtime.block_on(passwords.check("correct horse".to_owned(), None)));
        let work = |hash: &str| hash.split('$').nth(3).map(str::to_owned);
        assert_eq!(work(passwords.nobodys()), work(&hash("x")), "the same work");
    }

    #[test]
    fn what_can_be_guessed_is_no_password() {
        assert_eq!(problem("ann", "correct horse battery"), None);
        assert_eq!(problem("ann", "пароль-на-дванадцять"), None);
        for bad in ["", "short", "aaaaaaaaaaaaaaaa", "administrator1", &"x1".repeat(600)] {
            assert!(problem("administrator", bad).is_some(), "{bad}");
        }
    }
}

//! What the sign-in keeps in memory: whether there is one, and what guards it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ipnet::IpNet;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::accounts::{Accounts, Digest};
use punctual_driver::ports::StoreError;

use super::oidc::Oidc;
use super::password::Passwords;
use super::secret;
use super::throttle::Throttle;

/// How long the link for the first user is good.
pub(crate) const FIRST_RUN_TIME_MAX: Millis = Millis::from_secs(3_600);

/// Where the API listens, and through whom it is reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    /// Whether others than this machine reach it.
    pub(crate) is_beyond: bool,
    /// Whether it speaks TLS itself.
    pub(crate) is_tls: bool,
    /// Proxies that say for whom they ask.
    pub(crate) proxies: Vec<IpNet>,
}

/// The sign-in's own memory.
#[derive(Debug)]
pub(crate) struct Access {
    pub(super) reach: Reach,
    pub(super) throttle: Throttle,
    pub(super) passwords: Arc<Passwords>,
    /// What forms have to show where nobody signs in.
    pub(super) csrf: Arc<str>,
    /// There is always a user once there was one.
    has_users: AtomicBool,
    first_run: Mutex<Option<(Digest, Timestamp)>>,
    started: Instant,
    /// The provider that people sign in with, where there is one.
    pub(super) oidc: Option<Oidc>,
}

impl Access {
    pub(crate) fn new(reach: Reach, oidc: Option<Oidc>) -> Self {
        Access {
            reach,
            throttle: Throttle::new(),
            passwords: Arc::new(Passwords::new()),
            csrf: secret::random().into(),
            has_users: AtomicBool::new(false),
            first_run: Mutex::new(None),
            started: Instant::now(),
            oidc,
        }
    }

    /// Whether whoever asks has to sign in: from the first user on, and where others than this machine ask, or people have accounts elsewhere.
    pub(crate) async fn must_sign_in(&self, store: &impl Accounts) -> Result<bool, StoreError> {
        Ok(self.reach.is_beyond || self.oidc.is_some() || self.has_users(store).await?)
    }

    /// Whether there is a user.
    pub(crate) async fn has_users(&self, store: &impl Accounts) -> Result<bool, StoreError> {
        if !self.has_users.load(Ordering::Relaxed) && !store.users(None, 1).await?.is_empty() {
            self.has_users.store(true, Ordering::Relaxed);
            // Another replica may have made the first one: the link of this one is good for nothing any more.
            self.end_first_run();
        }
        Ok(self.has_users.load(Ordering::Relaxed))
    }

    /// Makes the key of the link for the first user.
    pub(crate) fn begin_first_run(&self, now: Timestamp) -> String {
        let key = secret::random();
        let until = now.saturating_add(FIRST_RUN_TIME_MAX);
        *self.first_run.lock().unwrap_or_else(PoisonError::into_inner) = secret::digest(&key).map(|digest| (digest, until));
        key
    }

    /// Whether this is the key of the link, and it is still good.
    pub(crate) fn is_first_run(&self, key: &str, now: Timestamp) -> bool {
        let first_run = *self.first_run.lock().unwrap_or_else(PoisonError::into_inner);
        first_run.is_some_and(|(digest, until)| secret::digest(key) == Some(digest) && now < until)
    }

    /// The link is good for nothing any more.
    pub(crate) fn end_first_run(&self) {
        *self.first_run.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What works on passwords.
    pub(crate) fn passwords(&self) -> &Arc<Passwords> {
        &self.passwords
    }

    /// Takes a try to sign in.
    pub(super) fn take_try(&self, name: &str, address: Option<IpAddr>) -> Result<(), std::time::Duration> {
        self.throttle.take(name, address, self.started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_good_for_an_hour_and_until_it_is_used() {
        let access = Access::new(Reach::default(), None);
        assert!(!access.is_first_run("", Timestamp(0)));
        let key = access.begin_first_run(Timestamp(1_000));
        assert!(access.is_first_run(&key, Timestamp(1_000)) && access.is_first_run(&key, Timestamp(3_600_999)));
        assert!(!access.is_first_run(&key, Timestamp(3_601_000)) && !access.is_first_run("", Timestamp(1_000)));
        assert!(!access.is_first_run(&secret::random(), Timestamp(1_000)));
        access.end_first_run();
        assert!(!access.is_first_run(&key, Timestamp(1_000)));
    }
}

//! An effect that happens once an instance, however many attempts there are.
//!
//! Punctual runs an attempt at least once: a worker may die between its work and its report, and an attempt that was taken for lost may
//! turn out to be running. What has to happen once needs a memory where the effect is. These helpers keep it there:
//!
//! | feature | what happens once |
//! | --- | --- |
//! | `once-mysql`, `once-postgres`, `once-sqlite` | a transaction of `sqlx` 0.9 in your database |
//! | `once-redis` | commands of `redis` 1 on your Redis |
//!
//! In a database the claim is a row with the instance's key, written in *your* transaction: claim and effect are committed together or not
//! at all. Its table is unique by key. Of two attempts that claim at the same time the second one waits for the first one's end, or its
//! statement fails and the attempt may be retried; never are both [`Claim::First`]. An attempt that ends without a commit leaves nothing
//! behind. This holds at every isolation level.
//!
//! The claim has to come before the effect in the transaction, and nothing may be committed after [`Claim::Repeated`] but what may happen
//! again. An effect elsewhere, such as a mail, is not in the transaction and not protected.

use std::fmt::Write;

use punctual_core::ids::Fence;

use crate::TaskContext;

#[cfg(feature = "once-mysql")]
pub mod mysql;
#[cfg(feature = "once-postgres")]
pub mod postgres;
#[cfg(feature = "once-redis")]
pub mod redis;
#[cfg(feature = "once-sqlite")]
pub mod sqlite;

/// Longest name of a [step](Key::step), in bytes.
pub const STEP_BYTES_MAX: usize = 64;
/// Longest key, in bytes: the columns of the tables hold it whole.
pub const KEY_BYTES_MAX: usize = 255;

/// Whether this attempt is the one that has the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The first: go on, and commit.
    First,
    /// Another attempt has committed the effect, a newer one or an older one: leave it.
    Repeated,
}

/// What is to happen once, and which attempt asks. [`TaskContext::once`] makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    instance: String,
    step: String,
    fence: Fence,
}

impl Key {
    pub(crate) fn new(context: &TaskContext) -> Key {
        Key { instance: context.idempotency_key(), step: String::new(), fence: context.fence() }
    }

    /// One of several effects of the instance, each of which happens once.
    ///
    /// # Panics
    ///
    /// Where the name is empty or longer than [`STEP_BYTES_MAX`] bytes.
    pub fn step(&self, name: &str) -> Key {
        assert!((1..=STEP_BYTES_MAX).contains(&name.len()), "a step's name has 1 to {STEP_BYTES_MAX} bytes");
        Key { step: name.to_owned(), ..self.clone() }
    }

    /// The key as it is stored: the [idempotency key](TaskContext::idempotency_key), with `#` and the step's name behind it where it is a
    /// step.
    pub fn text(&self) -> String {
        let mut text = self.instance.clone();
        if !self.step.is_empty() {
            let _ = write!(text, "#{}", self.step);
        }
        assert!(text.len() <= KEY_BYTES_MAX, "two numbers, an instant and a step fit");
        text
    }

    /// The attempt's fence.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The fence where numbers have a sign. It comes from a sequence of 48 bits.
    #[cfg(any(feature = "once-postgres", feature = "once-sqlite"))]
    fn signed_fence(&self) -> i64 {
        i64::try_from(self.fence.0).unwrap_or(i64::MAX)
    }
}

/// Whole seconds, as the databases count ages.
#[cfg(any(feature = "once-mysql", feature = "once-postgres", feature = "once-sqlite"))]
fn seconds(age: std::time::Duration) -> i64 {
    // A thousand years: further back than any calendar of theirs complains about.
    i64::try_from(age.as_secs()).unwrap_or(i64::MAX).min(1_000 * 366 * 24 * 3_600)
}

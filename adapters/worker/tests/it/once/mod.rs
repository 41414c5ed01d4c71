//! Effects that happen once, against real databases.

mod redis;
mod sql;

use punctual_core::ids::{Fence, InstanceId};
use punctual_core::time::Timestamp;
use punctual_worker::once::Key;
use punctual_worker::testing::Attempt;

/// An attempt of one of many instances.
pub(crate) fn key(instance: u64, fence: u64) -> Key {
    let mut attempt = Attempt::default();
    attempt.assignment.instance = InstanceId(instance);
    attempt.assignment.fire_time = Timestamp(i64::try_from(instance).expect("a small number") * 1_000);
    attempt.assignment.fence = Fence(fence);
    attempt.context().once()
}

/// Numbers that look random and are the same each time.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn attempts_share_their_key_and_steps_have_their_own() {
    assert_eq!(key(1, 1).text(), key(1, 2).text());
    assert_ne!(key(1, 1).text(), key(2, 1).text());
    assert_eq!(key(1, 1).step("charge").text(), format!("{}#charge", key(1, 1).text()));
    assert_eq!(key(1, 1).step("charge").step("mail"), key(1, 1).step("mail"));
}

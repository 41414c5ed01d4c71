//! Firings that came to no good end: what somebody has to look at.

use punctual_core::instance::State;
use punctual_driver::ports::{Catalog, InstanceFilter, InstanceView, StoreError};

/// States that a firing is in which has failed.
pub(crate) const FAILED: [State; 3] = [State::Failed, State::TimedOut, State::DeadLettered];

/// The latest firings that have failed, the last one to end first, whatever became of them since: of the newest by their fire times.
pub(crate) async fn latest<S: Catalog>(store: &S, limit: usize) -> Result<Vec<InstanceView>, StoreError> {
    let mut failures = Vec::new();
    for state in FAILED {
        let filter = InstanceFilter { state: Some(state), whole: true, limit, ..InstanceFilter::default() };
        failures.extend(store.instances(filter).await?);
    }
    failures.sort_by_key(|view| std::cmp::Reverse(view.row.ended_at()));
    failures.truncate(limit);
    Ok(failures)
}

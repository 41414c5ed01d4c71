//! Opens what commands work on.

use std::path::Path;
use std::sync::Arc;

use punctual_driver::ports::{StoreError, TaskDocument};
use punctual_spec::spec::TaskSpec;
use punctual_spec::zones::Zones;
use punctual_store::{Decode, Options, SqliteStore};

/// The store at this path; it is made where it is missing.
pub(crate) fn store(path: &Path, zones: &Arc<Zones>) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(Options::new(path, decode(zones)))
}

/// Makes definitions of stored documents.
pub(crate) fn decode(zones: &Arc<Zones>) -> Decode {
    let zones = zones.clone();
    Arc::new(move |document: &str| {
        punctual_spec::decode(document, &zones).map_err(|findings| findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    })
}

/// A task's document and definition.
pub(crate) fn document(spec: &TaskSpec, zones: &Zones) -> anyhow::Result<TaskDocument> {
    let definition = spec
        .to_definition(zones)
        .map_err(|findings| anyhow::anyhow!("{}", findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?;
    Ok(TaskDocument { definition: Arc::new(definition), document: Arc::from(spec.to_json()) })
}

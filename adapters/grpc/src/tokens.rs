//! Who may speak, and as which worker.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use punctual_core::ids::WorkerId;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::limits::TOKEN_BYTES_MAX;

/// Where a token stands, and what stands before it.
const METADATA: &str = "authorization";
const SCHEME: &str = "Bearer ";

/// What checks a token; `None`: it is not a worker's. Called once for each stream, and not allowed to block. Compare digests, not tokens:
/// how long a comparison takes must not tell how much of a token was right.
pub type TokenCheck = dyn Fn(&str) -> Option<WorkerToken> + Send + Sync;

/// How the tokens of workers are checked.
#[derive(Clone)]
pub enum Tokens {
    /// Not at all: whoever reaches the port is a worker. On the loopback only.
    Unchecked,
    /// By this.
    Checked(Arc<TokenCheck>),
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tokens::Unchecked => "Unchecked",
            Tokens::Checked(_) => "Checked",
        })
    }
}

/// What a token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerToken {
    /// `None`: all workers.
    workers: Option<BTreeSet<Arc<str>>>,
}

impl WorkerToken {
    /// One that any worker may show.
    pub fn for_any() -> Self {
        WorkerToken { workers: None }
    }

    /// One that only these workers may show.
    pub fn for_workers<W: Into<Arc<str>>>(workers: impl IntoIterator<Item = W>) -> Self {
        WorkerToken { workers: Some(workers.into_iter().map(Into::into).collect()) }
    }

    /// Whether who shows it may speak as this worker.
    pub fn allows(&self, worker: &WorkerId) -> bool {
        self.workers.as_ref().is_none_or(|workers| workers.contains(&worker.0))
    }
}

impl Tokens {
    /// What this call may do.
    pub(crate) fn check(&self, metadata: &MetadataMap) -> Result<WorkerToken, Status> {
        let Tokens::Checked(check) = self else { return Ok(WorkerToken::for_any()) };
        let Some(value) = metadata.get(METADATA) else {
            return Err(Status::unauthenticated("this scheduler wants a token. Start the worker with one"));
        };
        let token = value.to_str().ok().and_then(|value| value.strip_prefix(SCHEME)).filter(|token| token.len() <= TOKEN_BYTES_MAX);
        let Some(token) = token else {
            return Err(Status::unauthenticated(format!("`{METADATA}` is not `{SCHEME}` and a token of at most {TOKEN_BYTES_MAX} bytes")));
        };
        check(token).ok_or_else(|| Status::unauthenticated("this token is not a worker's, or no longer one"))
    }
}

/// Shows this token in a call.
pub(crate) fn metadata_of(token: &str) -> Option<(&'static str, tonic::metadata::MetadataValue<tonic::metadata::Ascii>)> {
    let mut value: tonic::metadata::MetadataValue<tonic::metadata::Ascii> = format!("{SCHEME}{token}").parse().ok()?;
    // Kept out of logs and of the table of headers that HTTP/2 shares between calls.
    value.set_sensitive(true);
    (token.len() <= TOKEN_BYTES_MAX && !token.is_empty()).then_some((METADATA, value))
}

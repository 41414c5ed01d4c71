//! What the API says when it can't do what was asked: problem details (RFC 9457) with a code that docs/errors.md explains.

use std::sync::Arc;
use std::time::Duration;

use aide::OperationOutput;
use aide::generate::GenContext;
use aide::openapi::Operation;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use punctual_core::chains::ChainProblem;
use punctual_core::ids::{InboxId, InstanceId, Version};
use punctual_core::text::cut;
use punctual_driver::ports::StoreError;
use schemars::JsonSchema;
use serde::Serialize;

use super::openapi;

use crate::identity::Role;
use crate::sign_in::oidc::OidcError;

/// A refusal.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub(crate) enum ApiError {
    #[error("there is nothing at this address; the API is under /api/v1")]
    NoSuchPage,
    #[error("this address doesn't take that method")]
    MethodNotAllowed,
    #[error("there is no task {name:?}; `punctual tasks` lists all")]
    NoSuchTask { name: String },
    #[error("there is no instance {id}; `punctual instances` lists the latest")]
    NoSuchInstance { id: String },
    #[error("{field}: {problem}")]
    BadRequest { field: &'static str, problem: String },
    #[error("{}", without_first_code(.0))]
    Chains(Vec<ChainProblem>),
    #[error("the idempotency key was used for another request; use a new one for a new request")]
    KeyTaken,
    #[error("the request's Host is not this machine: the API answers on loopback only, as 127.0.0.1 or localhost")]
    ForeignHost,
    #[error("the request comes from a page of another site: call the API from a program, without an Origin header")]
    ForeignOrigin,
    #[error(
        "the request's body is longer than {} bytes, or than {} where it has the tasks of a source; pass a reference to the data instead",
        super::BODY_BYTES_MAX,
        super::sources::BODY_BYTES_MAX
    )]
    TooLarge,
    #[error("instance {id} has not ended; wait for its end, or cancel it first")]
    StillRuns { id: InstanceId },
    #[error("instance {id} is a part of instance {whole}; run that one again, and all its parts are")]
    IsPart { id: InstanceId, whole: InstanceId },
    #[error("instance {id} has been run again since; run the newest of its runs again")]
    NotNewest { id: InstanceId },
    #[error("instance {id} is no run of a workflow, so it has no nodes")]
    NoWorkflow { id: InstanceId },
    #[error("the workflow {task:?} has no node {node:?}; `punctual instance ID` lists those of a run")]
    NoSuchNode { node: String, task: String },
    #[error(
        "node {node:?} is {state}: only one that waits or has failed can be told what it has come to. Cancel one that runs; run one again that has ended"
    )]
    NodeStands { node: String, state: &'static str },
    #[error("run {id} has ended; run its nodes again")]
    RunHasEnded { id: InstanceId },
    #[error("that can't be run again so: {why}")]
    RerunRefused { why: String },
    #[error("the range: {problem}")]
    BackfillRange { problem: String },
    #[error("task {name:?} has no fire times of its own: only cron and fixed_rate give any; use `punctual trigger`")]
    NoTimetable { name: String },
    #[error("backfill {id} of the task has not ended; wait for it, or cancel it with `punctual backfill cancel {id}`")]
    BackfillRuns { id: InboxId },
    #[error("another backfill of the task came in between; look again at what is left, and repeat the call")]
    BackfillOutdated,
    #[error("there is no backfill {id}; `punctual backfill list TASK` lists those of a task")]
    NoSuchBackfill { id: String },
    #[error("no task has the group {group:?}; a task's `group` field gives it one")]
    NoSuchGroup { group: String },
    #[error("no worker {worker:?} is connected, and none that was holds anything; `punctual status` lists them")]
    NoSuchWorker { worker: String },
    #[error("the task {task:?} was never triggered under the key {key:?}, or it is no longer remembered")]
    NoSuchTrigger { task: String, key: String },
    #[error("instance {id} has begun, and is {state}; cancel it, or wait for its end")]
    HasBegun { id: InstanceId, state: &'static str },
    #[error("the payload is not as the task's schema says: {problem}")]
    Payload { problem: String },
    #[error("a node of {task:?} calls {called:?} with a payload that is not as that task's schema says: {problem}")]
    Handed { task: String, called: String, problem: String },
    #[error(
        "the payload was written for version {written_for} of the task, and version {version} is in force, whose schema differs: {changes}"
    )]
    OlderSchema { written_for: u32, version: u32, changes: String },
    #[error("instance {id} is no dead letter; `punctual dead-letters list` shows those that there are")]
    NotDead { id: InstanceId },
    #[error("the dead letter {id} was settled before: it was run again or discarded; `punctual audit --instance {id}` says by whom")]
    Settled { id: InstanceId },
    #[error("the task is {}: read it again, and decide anew", describe_version(*.is))]
    Unexpected { is: Option<Version> },
    #[error(
        "the task {task:?} belongs to the source {source_name:?}, whose next application would undo the edit; edit it there, or add `take_over=true`"
    )]
    OwnedBy { task: String, source_name: Arc<str> },
    #[error("{}", describe_taken(.taken))]
    TakesOver { taken: Vec<(Arc<str>, Arc<str>)> },
    #[error(
        "this would remove tasks of the source whose groups you may not edit; leave out what removes (`remove`, or --remove), or name a source of your own \
         (--source)"
    )]
    RemovesOthers,
    #[error("the source is not as If-Match says: somebody has changed a task of it; read it again, and decide anew")]
    SourceChanged,
    #[error("the same call is under way under this idempotency key; ask again in a moment")]
    UnderWay,
    #[error("a checkup is under way already, and takes the database enough; ask again in a while")]
    CheckupRuns,
    #[error("{most} listen already, or half of that are your own; end one of them, or read the lists")]
    TooManyListeners { most: usize },
    #[error("the task {task:?} has no version {version}; `/versions` lists those that there are")]
    NoSuchVersion { task: String, version: u32 },
    #[error("sign in first: show a token in `Authorization: Bearer`, or the cookie of a session. The CLI takes --token or PUNCTUAL_TOKEN")]
    NotSignedIn,
    #[error("the name or the password is wrong")]
    WrongPassword,
    #[error("too many tries to sign in; the next one is in {} s", wait.as_millis().div_ceil(1_000))]
    TooManyTries { wait: Duration },
    #[error("this takes {}", describe_needed(*.role, .group.as_deref()))]
    Forbidden { role: Role, group: Option<Arc<str>> },
    #[error("the address asks for {name:?}, which there is not{}", describe_queries(.nearest.as_deref(), .all))]
    UnknownQuery { name: String, nearest: Option<String>, all: String },
    #[error("it would change, replace or remove what you do not see; take other names, or a source of your own")]
    OutOfReach,
    #[error("the request does not show that it comes from a page of this server; open the page again, and repeat it there")]
    Forged,
    #[error("the token is unknown, has expired or was revoked; make a new one with `punctual tokens create`")]
    NoSuchTokenShown,
    #[error("the link for the first user has been used or has expired; the server prints a new one when it starts, while there is no user")]
    LinkOver,
    #[error("that can't be a password: {problem}")]
    UnfitPassword { problem: &'static str },
    #[error("there is a user {name:?}; choose another name")]
    NameTaken { name: String },
    #[error("there is no user {name:?}; `punctual users list` shows all")]
    NoSuchUser { name: String },
    #[error("nobody would be left who may change users; make somebody else an admin of everything first")]
    LastAdmin,
    #[error("the first user has to be an admin of everything: from then on everybody signs in, and somebody has to add the others")]
    FirstNotAdmin,
    #[error("a token may do no more than its owner and whoever makes it")]
    MoreThanOwner,
    #[error("a token does not make tokens and sets no passwords, unless it is an admin's; sign in with a name and a password for that")]
    NotByToken,
    #[error("there is no token {id}; `punctual tokens list` shows those that there are")]
    NoSuchToken { id: u64 },
    #[error("what is asked or answered here has a secret in it, which is never kept: send it without `Idempotency-Key`")]
    NeverKept,
    #[error("{owner:?} has {} tokens; revoke one that is not needed", punctual_driver::accounts::TOKENS_MAX)]
    TooManyTokens { owner: String },
    #[error("signing in with the provider has failed: {0}")]
    Oidc(#[from] OidcError),
    #[error("nothing fires for now: {reason}")]
    Trouble { reason: Arc<str> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Most tasks of other sources that are named at once.
const TAKEN_TOLD_MAX: usize = 20;
/// Most problems of chains that are told at once.
const CHAINS_TOLD_MAX: usize = 20;
/// Most bytes of one of them: a ring may have any length.
const CHAIN_BYTES_MAX: usize = 1_000;

/// What an address may ask for.
fn describe_queries(nearest: Option<&str>, all: &str) -> String {
    match (nearest, all) {
        (_, "") => "; nothing may stand behind the question mark here".to_owned(),
        (Some(nearest), all) => format!("; did you mean `{nearest}`? There are {all}"),
        (None, all) => format!("; there are {all}"),
    }
}

/// Which role something takes, and where.
fn describe_needed(role: Role, group: Option<&str>) -> String {
    match group {
        Some(group) => format!("the role {} in the group {group:?}, or everywhere", role.name()),
        None => format!("the role {} everywhere", role.name()),
    }
}

/// What is wrong with how tasks would follow one another, a line for each problem, with its code.
pub(crate) fn describe_chains(problems: &[ChainProblem]) -> String {
    let told = problems.iter().take(CHAINS_TOLD_MAX).map(|problem| cut(problem.to_string(), CHAIN_BYTES_MAX));
    let mut lines: Vec<String> = told.collect();
    if problems.len() > CHAINS_TOLD_MAX {
        lines.push(format!("and {} more", problems.len() - CHAINS_TOLD_MAX));
    }
    lines.join("\n")
}

/// The same for problem details, which have the first one's code in a field of its own.
fn without_first_code(problems: &[ChainProblem]) -> String {
    let text = describe_chains(problems);
    let code = problems.first().map_or("", ChainProblem::code);
    text.strip_prefix(code).and_then(|rest| rest.strip_prefix(": ")).map_or(text.clone(), str::to_owned)
}

impl ApiError {
    /// The code that docs/errors.md explains.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            ApiError::NoSuchPage => "PUN-301",
            ApiError::MethodNotAllowed => "PUN-302",
            ApiError::NoSuchTask { .. } => "PUN-303",
            ApiError::NoSuchInstance { .. } => "PUN-304",
            ApiError::BadRequest { .. } => "PUN-305",
            ApiError::Chains(problems) => problems.first().map_or("PUN-305", ChainProblem::code),
            ApiError::KeyTaken => "PUN-306",
            ApiError::ForeignHost => "PUN-307",
            ApiError::ForeignOrigin => "PUN-308",
            ApiError::Store(_) | ApiError::Trouble { .. } => "PUN-309",
            ApiError::TooLarge => "PUN-312",
            ApiError::StillRuns { .. } => "PUN-314",
            ApiError::IsPart { .. } => "PUN-315",
            ApiError::NotNewest { .. } => "PUN-316",
            ApiError::NoWorkflow { .. } => "PUN-170",
            ApiError::NoSuchNode { .. } => "PUN-171",
            ApiError::NodeStands { .. } => "PUN-172",
            ApiError::RunHasEnded { .. } => "PUN-173",
            ApiError::RerunRefused { .. } => "PUN-174",
            ApiError::BackfillRange { .. } => "PUN-360",
            ApiError::NoTimetable { .. } => "PUN-361",
            ApiError::BackfillRuns { .. } | ApiError::BackfillOutdated => "PUN-362",
            ApiError::NoSuchBackfill { .. } => "PUN-363",
            ApiError::NoSuchGroup { .. } => "PUN-317",
            ApiError::NoSuchWorker { .. } => "PUN-470",
            ApiError::NoSuchTrigger { .. } => "PUN-318",
            ApiError::HasBegun { .. } => "PUN-319",
            ApiError::Payload { .. } => "PUN-342",
            ApiError::Handed { .. } => "PUN-154",
            ApiError::OlderSchema { .. } => "PUN-343",
            ApiError::Unexpected { .. } | ApiError::SourceChanged => "PUN-440",
            ApiError::OwnedBy { .. } | ApiError::TakesOver { .. } => "PUN-441",
            ApiError::RemovesOthers => "PUN-450",
            ApiError::UnderWay => "PUN-442",
            ApiError::CheckupRuns => "PUN-455",
            ApiError::TooManyListeners { .. } => "PUN-443",
            ApiError::NoSuchVersion { .. } => "PUN-444",
            ApiError::NotDead { .. } => "PUN-344",
            ApiError::Settled { .. } => "PUN-345",
            ApiError::NotSignedIn => "PUN-403",
            ApiError::WrongPassword => "PUN-404",
            ApiError::TooManyTries { .. } => "PUN-405",
            ApiError::Forbidden { .. } => "PUN-406",
            ApiError::OutOfReach => "PUN-445",
            ApiError::UnknownQuery { .. } => "PUN-446",
            ApiError::Forged => "PUN-407",
            ApiError::NoSuchTokenShown => "PUN-408",
            ApiError::LinkOver => "PUN-409",
            ApiError::UnfitPassword { .. } => "PUN-410",
            ApiError::NameTaken { .. } => "PUN-411",
            ApiError::NoSuchUser { .. } => "PUN-412",
            ApiError::LastAdmin => "PUN-413",
            ApiError::FirstNotAdmin => "PUN-414",
            ApiError::MoreThanOwner => "PUN-415",
            ApiError::NotByToken => "PUN-416",
            ApiError::NoSuchToken { .. } => "PUN-417",
            ApiError::TooManyTokens { .. } => "PUN-418",
            ApiError::Oidc(_) => "PUN-424",
            ApiError::NeverKept => "PUN-426",
        }
    }

    /// How long whoever asked is to wait, as a header.
    pub(crate) fn retry_after(&self) -> Option<HeaderValue> {
        match self {
            ApiError::TooManyTries { wait } => Some(HeaderValue::from(wait.as_millis().div_ceil(1_000) as u64)),
            _ => None,
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            ApiError::NotSignedIn | ApiError::WrongPassword | ApiError::NoSuchTokenShown => StatusCode::UNAUTHORIZED,
            ApiError::TooManyTries { .. } => StatusCode::TOO_MANY_REQUESTS,
            ApiError::Oidc(OidcError::NoRole) => StatusCode::FORBIDDEN,
            ApiError::Oidc(OidcError::Unreachable(_)) => StatusCode::BAD_GATEWAY,
            ApiError::Oidc(_) => StatusCode::BAD_REQUEST,
            ApiError::Forbidden { .. } | ApiError::OutOfReach | ApiError::Forged | ApiError::MoreThanOwner | ApiError::NotByToken => {
                StatusCode::FORBIDDEN
            }
            ApiError::LinkOver => StatusCode::GONE,
            ApiError::UnfitPassword { .. } | ApiError::NeverKept => StatusCode::BAD_REQUEST,
            ApiError::NoSuchUser { .. } | ApiError::NoSuchToken { .. } => StatusCode::NOT_FOUND,
            ApiError::NameTaken { .. } | ApiError::LastAdmin | ApiError::FirstNotAdmin | ApiError::TooManyTokens { .. } => {
                StatusCode::CONFLICT
            }
            ApiError::NoSuchPage
            | ApiError::NoSuchTask { .. }
            | ApiError::NoSuchInstance { .. }
            | ApiError::NoSuchNode { .. }
            | ApiError::NoSuchBackfill { .. }
            | ApiError::NoSuchGroup { .. }
            | ApiError::NoSuchWorker { .. }
            | ApiError::NoSuchVersion { .. }
            | ApiError::NoSuchTrigger { .. } => StatusCode::NOT_FOUND,
            ApiError::Unexpected { .. } | ApiError::SourceChanged => StatusCode::PRECONDITION_FAILED,
            ApiError::OwnedBy { .. } | ApiError::TakesOver { .. } | ApiError::UnderWay | ApiError::CheckupRuns => StatusCode::CONFLICT,
            ApiError::RemovesOthers => StatusCode::FORBIDDEN,
            ApiError::TooManyListeners { .. } => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Payload { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            ApiError::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::BadRequest { .. }
            | ApiError::UnknownQuery { .. }
            | ApiError::Handed { .. }
            | ApiError::Chains(_)
            | ApiError::BackfillRange { .. }
            | ApiError::NoTimetable { .. } => StatusCode::BAD_REQUEST,
            ApiError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::NoWorkflow { .. } | ApiError::NodeStands { .. } | ApiError::RunHasEnded { .. } | ApiError::RerunRefused { .. } => {
                StatusCode::CONFLICT
            }
            ApiError::BackfillRuns { .. } | ApiError::BackfillOutdated => StatusCode::CONFLICT,
            ApiError::HasBegun { .. } | ApiError::OlderSchema { .. } | ApiError::NotDead { .. } | ApiError::Settled { .. } => {
                StatusCode::CONFLICT
            }
            ApiError::KeyTaken | ApiError::StillRuns { .. } | ApiError::IsPart { .. } | ApiError::NotNewest { .. } => StatusCode::CONFLICT,
            ApiError::ForeignHost | ApiError::ForeignOrigin => StatusCode::FORBIDDEN,
            ApiError::Store(_) | ApiError::Trouble { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Which tasks belong to others, and what to do about it.
fn describe_taken(taken: &[(Arc<str>, Arc<str>)]) -> String {
    let mut named: Vec<String> = taken.iter().take(TAKEN_TOLD_MAX).map(|(name, source)| format!("{name:?} (source {source:?})")).collect();
    if taken.len() > TAKEN_TOLD_MAX {
        named.push(format!("and {} more", taken.len() - TAKEN_TOLD_MAX));
    }
    let (tasks, belong) =
        if taken.len() == 1 { ("the task", "belongs to another source") } else { ("the tasks", "belong to other sources") };
    format!("{tasks} {} {belong}: edit there, or take them over (`take_over`, or --take-over); nothing was changed", named.join(", "))
}

fn describe_version(is: Option<Version>) -> String {
    is.map_or_else(|| "not there".to_owned(), |version| format!("in version {}, not in the one that was named", version.0))
}

/// Problem details, as RFC 9457 has them.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// Always `about:blank`: the code says which problem it is.
    r#type: &'static str,
    /// The status in words.
    title: Option<&'static str>,
    /// The HTTP status.
    status: u16,
    /// The code that docs/errors.md explains, such as PUN-303.
    code: &'static str,
    /// What is wrong, and what to do.
    detail: String,
}

impl OperationOutput for ApiError {
    type Inner = Problem;

    fn operation_response(ctx: &mut GenContext, _: &mut Operation) -> Option<aide::openapi::Response> {
        Some(openapi::response("A refusal", "application/problem+json", ctx.schema.subschema_for::<Problem>()))
    }

    fn inferred_responses(ctx: &mut GenContext, operation: &mut Operation) -> Vec<(Option<u16>, aide::openapi::Response)> {
        Self::operation_response(ctx, operation).into_iter().map(|response| (None, response)).collect()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let (title, code, detail) = (status.canonical_reason(), self.code(), self.to_string());
        let problem = Problem { r#type: "about:blank", title, status: status.as_u16(), code, detail };
        let body = serde_json::to_string(&problem).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        if let Some(wait) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, wait);
        }
        if matches!(self, ApiError::NotSignedIn | ApiError::NoSuchTokenShown) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"punctual\""));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::chains::Edge;

    use super::*;

    #[test]
    fn problems_of_chains_are_told_line_by_line_within_limits() {
        let missing = |name: &str| ChainProblem::NoSuchTask(Edge { after: Arc::from(name), task: Arc::from("b") });
        let ring = ChainProblem::Cycle { path: vec![Arc::from("ring"); 10_000] };
        let told = ApiError::Chains(vec![missing("x"), ring.clone()]).to_string();
        let lines: Vec<_> = told.lines().collect();
        assert!(lines[0].starts_with("the task `b` is to fire after `x`"), "{told}");
        assert!(lines[1].starts_with("PUN-152: ") && lines[1].ends_with('…') && lines[1].len() < 1_010, "{told}");
        assert_eq!(ApiError::Chains(vec![ring]).code(), "PUN-152");
        let told = describe_chains(&vec![missing("x"); 25]);
        assert_eq!((told.lines().count(), told.lines().last()), (21, Some("and 5 more")));
    }
}

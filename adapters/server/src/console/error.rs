//! What can't be done, as a page: with its code, the reason, and what to do.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_driver::ports::StoreError;

use super::page::{Nav, Page, Viewer};
use super::words::Words;
use crate::api::ApiError;
use crate::identity::Role;

/// A refusal.
#[derive(Debug)]
pub(super) enum ConsoleError {
    /// There is nothing at the address.
    NoSuchPage,
    /// The role doesn't allow it.
    Forbidden { role: Role, is_everywhere: bool },
    /// The form has not come from a page of ours, or from an old one.
    Forged,
    /// A document has to be exactly one task.
    NotOneTask { count: usize },
    /// A field of a form.
    BadForm { field: String, problem: String },
    /// The form is too large.
    TooLarge,
    /// A task of this name is there already.
    NameTaken { name: String },
    /// The task is another source's.
    OthersTask { name: String, source: String },
    /// The API's own.
    Api { status: StatusCode, code: String, detail: String },
}

impl From<ApiError> for ConsoleError {
    fn from(error: ApiError) -> Self {
        ConsoleError::Api { status: error.status(), code: error.code().to_owned(), detail: error.to_string() }
    }
}

impl From<StoreError> for ConsoleError {
    fn from(error: StoreError) -> Self {
        ApiError::from(error).into()
    }
}

impl ConsoleError {
    pub(super) fn code(&self) -> &str {
        match self {
            ConsoleError::Forbidden { .. } => "PUN-406",
            ConsoleError::Forged => "PUN-407",
            ConsoleError::NoSuchPage => "PUN-482",
            ConsoleError::NotOneTask { .. } => "PUN-483",
            ConsoleError::BadForm { .. } => "PUN-484",
            ConsoleError::NameTaken { .. } => "PUN-485",
            ConsoleError::OthersTask { .. } => "PUN-441",
            ConsoleError::TooLarge => "PUN-487",
            ConsoleError::Api { code, .. } => code,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            ConsoleError::NoSuchPage => StatusCode::NOT_FOUND,
            ConsoleError::Forbidden { .. } | ConsoleError::Forged => StatusCode::FORBIDDEN,
            ConsoleError::NotOneTask { .. } | ConsoleError::BadForm { .. } => StatusCode::BAD_REQUEST,
            ConsoleError::NameTaken { .. } | ConsoleError::OthersTask { .. } => StatusCode::CONFLICT,
            ConsoleError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ConsoleError::Api { status, .. } => *status,
        }
    }

    /// The reason, and what to do about it.
    pub(super) fn reason(&self, w: &Words) -> String {
        match self {
            ConsoleError::NoSuchPage => w.error_no_page.to_owned(),
            ConsoleError::Forbidden { role, is_everywhere } => {
                let role = match role {
                    Role::Viewer => w.role_viewer,
                    Role::Operator => w.role_operator,
                    Role::Editor => w.role_editor,
                    Role::Admin => w.role_admin,
                };
                let text = if *is_everywhere { w.error_forbidden_everywhere } else { w.error_forbidden };
                text.replace("{}", role)
            }
            ConsoleError::Forged => w.error_forged.to_owned(),
            ConsoleError::NotOneTask { count } => w.error_not_one_task.replace("{}", &count.to_string()),
            ConsoleError::BadForm { field, problem } => format!("{field}: {problem}"),
            ConsoleError::TooLarge => w.error_too_large.to_owned(),
            ConsoleError::NameTaken { name } => w.error_name_taken.replace("{}", name),
            ConsoleError::OthersTask { name, source } => w.error_others_task.replace("{name}", name).replace("{source}", source),
            ConsoleError::Api { detail, .. } => detail.clone(),
        }
    }

    /// As a page.
    pub(super) fn page(&self, viewer: &Viewer) -> Response {
        let w = viewer.words();
        let status = self.status();
        let heading = match status {
            StatusCode::NOT_FOUND => w.error_heading_gone,
            StatusCode::FORBIDDEN => w.error_heading_forbidden,
            StatusCode::SERVICE_UNAVAILABLE => w.error_heading_down,
            _ => w.error_heading,
        };
        // What the API says is in one language.
        let is_english = matches!(self, ConsoleError::Api { .. });
        let page = ErrorPage { p: viewer.page(Nav::None, heading), w, heading, code: self.code(), reason: self.reason(w), is_english };
        viewer.show_as(status, &page)
    }
}

#[derive(Template)]
#[template(path = "console/error.html")]
struct ErrorPage<'a> {
    p: Page,
    w: &'static Words,
    heading: &'static str,
    code: &'a str,
    reason: String,
    is_english: bool,
}

/// Something was looked at or done, or a page says why not.
pub(super) type Answer = Result<Response, ConsoleError>;

/// Makes pages of refusals.
pub(super) fn answered(viewer: &Viewer, answer: Answer) -> Response {
    answer.unwrap_or_else(|error| error.page(viewer))
}

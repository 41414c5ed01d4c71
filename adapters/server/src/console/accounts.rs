//! Users, tokens, and one's own account. All of it is read and done by calls of the API, which says who may.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::Response;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Catalog, Clock};
use serde_json::{Value, json};

use super::Console;
use super::call::{Call, reason};
use super::error::{Answer, ConsoleError, answered};
use super::form::{Fields, Form, Query, address, segment};
use super::instances::confirm;
use super::page::{Nav, Page, Viewer};
use super::show::MaybeTime;
use super::words::Words;
use crate::identity::Role;
use crate::sign_in::Means;

/// Rows of a page.
const PAGE: &str = "100";
const DAY_SECONDS: u64 = 86_400;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn time(value: &Value) -> Option<Timestamp> {
    let at: jiff::Timestamp = value.as_str()?.parse().ok()?;
    Some(Timestamp(at.as_millisecond()))
}

/// Roles as they are typed: a role, with @GROUP behind it for one group only, as on the command line.
fn grants_text(grants: &Value) -> String {
    let one = |grant: &Value| match grant["group"].as_str() {
        Some(group) => format!("{}@{group}", text(&grant["role"])),
        None => text(&grant["role"]),
    };
    grants.as_array().into_iter().flatten().map(one).collect::<Vec<_>>().join(", ")
}

/// The same, read.
fn grants(typed: &str) -> Value {
    let one = |grant: &str| match grant.split_once('@') {
        Some((role, group)) => json!({ "role": role.trim(), "group": group.trim() }),
        None => json!({ "role": grant }),
    };
    typed.split([',', '\n']).map(str::trim).filter(|grant| !grant.is_empty()).map(one).collect()
}

/// A user in the list.
struct UserLine {
    name: String,
    address: String,
    grants: String,
    is_disabled: bool,
    created: MaybeTime,
    password: MaybeTime,
}

fn user_line(user: &Value) -> UserLine {
    let name = text(&user["name"]);
    UserLine {
        address: format!("/users/{}", segment(&name)),
        name,
        grants: grants_text(&user["grants"]),
        is_disabled: user["disabled"] == true,
        created: MaybeTime(time(&user["created_at"])),
        password: MaybeTime(time(&user["password_at"])),
    }
}

/// A token in a list.
struct TokenLine {
    id: u64,
    name: String,
    owner: String,
    grants: String,
    created: MaybeTime,
    expires: MaybeTime,
    used: MaybeTime,
}

fn token_lines(tokens: &Value) -> Vec<TokenLine> {
    let line = |token: &Value| TokenLine {
        id: token["id"].as_u64().unwrap_or_default(),
        name: text(&token["name"]),
        owner: text(&token["owner"]),
        grants: grants_text(&token["grants"]),
        created: MaybeTime(time(&token["created_at"])),
        expires: MaybeTime(time(&token["expires_at"])),
        used: MaybeTime(time(&token["used_at"])),
    };
    tokens["tokens"].as_array().into_iter().flatten().map(line).collect()
}

/// A session in a list.
pub(super) struct SessionLine {
    pub(super) created: MaybeTime,
    pub(super) seen: MaybeTime,
    pub(super) expires: MaybeTime,
    pub(super) is_current: bool,
}

/// The sessions of a user; of nobody where nobody has signed in.
pub(super) async fn sessions<S: Catalog, C: Clock>(
    console: &Console<S, C>,
    viewer: &Viewer,
    name: &str,
) -> Result<Vec<SessionLine>, ConsoleError> {
    let found = console.get(viewer, &["users", name, "sessions"], &[]).await?;
    let line = |session: &Value| SessionLine {
        created: MaybeTime(time(&session["created_at"])),
        seen: MaybeTime(time(&session["seen_at"])),
        expires: MaybeTime(time(&session["expires_at"])),
        is_current: session["current"] == true,
    };
    Ok(found["sessions"].as_array().into_iter().flatten().map(line).collect())
}

#[derive(Template)]
#[template(path = "console/users.html")]
struct UsersPage {
    p: Page,
    w: &'static Words,
    rows: Vec<UserLine>,
    /// There is nobody yet: the first one has to be an admin of everything.
    is_first: bool,
    next: Option<String>,
    newest: Option<String>,
}

pub(super) async fn users<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer, Query(query): Query) -> Response {
    let answer = show_users(&console, &viewer, &query).await;
    answered(&viewer, answer)
}

async fn show_users<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, query: &Fields) -> Answer {
    let w = viewer.words();
    let after = query.get("after").unwrap_or_default();
    let found = console.get(viewer, &["users"], &[("limit", PAGE), ("after", after)]).await?;
    let rows: Vec<_> = found["users"].as_array().into_iter().flatten().map(user_line).collect();
    let page = UsersPage {
        p: viewer.page(Nav::Users, w.users),
        w,
        is_first: rows.is_empty() && after.is_empty(),
        rows,
        next: found["next"].as_str().map(|next| address("/users", &[("after", next)])),
        newest: query.has("after").then(|| "/users".to_owned()),
    };
    Ok(viewer.show(&page))
}

/// A secret, on the one page that has it: it is in no cookie and no address.
#[derive(Template)]
#[template(path = "console/told.html")]
struct ToldPage {
    p: Page,
    w: &'static Words,
    title: String,
    label: &'static str,
    secret: String,
    back: String,
}

pub(super) async fn add<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, form: Form) -> Response {
    let answer = do_add(&console, &form).await;
    answered(&form.viewer, answer)
}

async fn do_add<S: Catalog, C: Clock>(console: &Console<S, C>, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let name = fields.get("name").unwrap_or_default().trim();
    let mut body = reason(fields);
    body["name"] = json!(name);
    body["grants"] = grants(fields.text("grants"));
    if let Some(password) = fields.get("password") {
        body["password"] = json!(password);
    }
    let made = console.post(viewer, &["users"], body).await?;
    let (title, back) = (w.done_user_added.replace("{}", name), format!("/users/{}", segment(name)));
    match made["password"].as_str() {
        None => Ok(viewer.go(&back, true, &title)),
        Some(password) => {
            let (p, secret) = (viewer.page(Nav::Users, &title), password.to_owned());
            Ok(viewer.show(&ToldPage { p, w, title, label: w.password, secret, back }))
        }
    }
}

#[derive(Template)]
#[template(path = "console/user.html")]
struct UserPage {
    p: Page,
    w: &'static Words,
    user: UserLine,
    sessions: Vec<SessionLine>,
    tokens: Vec<TokenLine>,
    /// Whether they have more tokens than are shown.
    more_tokens: bool,
}

pub(super) async fn user<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer, Path(name): Path<String>) -> Response {
    let answer = show_user(&console, &viewer, &name).await;
    answered(&viewer, answer)
}

async fn show_user<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, name: &str) -> Answer {
    let user = console.get(viewer, &["users", name], &[]).await?;
    let tokens = console.get(viewer, &["tokens"], &[("owner", name), ("limit", PAGE)]).await?;
    let page = UserPage {
        p: viewer.page(Nav::Users, name),
        w: viewer.words(),
        user: user_line(&user),
        sessions: sessions(console, viewer, name).await?,
        tokens: token_lines(&tokens),
        more_tokens: !tokens["next"].is_null(),
    };
    Ok(viewer.show(&page))
}

/// Changes a user: `verb` of the form says what.
pub(super) async fn change<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Path(name): Path<String>, form: Form) -> Response {
    let answer = do_change(&console, &name, &form).await;
    answered(&form.viewer, answer)
}

async fn do_change<S: Catalog, C: Clock>(console: &Console<S, C>, name: &str, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let back = format!("/users/{}", segment(name));
    let (path, password_path, sessions_path) = (["users", name], ["users", name, "password"], ["users", name, "sessions"]);
    let mut body = reason(fields);
    let (method, path, asks, told): (_, &[&str], Option<(&str, &str)>, _) = match fields.get("verb").unwrap_or_default() {
        "grant" => {
            body["grants"] = grants(fields.text("grants"));
            (Method::PATCH, &path, None, w.done_user_changed)
        }
        verb @ ("disable" | "enable") => {
            let is_disabled = verb == "disable";
            body["disabled"] = json!(is_disabled);
            (Method::PATCH, &path, is_disabled.then_some((w.ask_disable, w.disable)), w.done_user_changed)
        }
        "password" => {
            body["password"] = json!(fields.text("password"));
            if *viewer.identity.name == *name && !matches!(viewer.means, Some(Means::Here)) {
                body["current"] = json!(fields.text("current"));
            }
            (Method::PUT, &password_path, None, w.done_password)
        }
        "sign-out" => (Method::DELETE, &sessions_path, Some((w.ask_sign_out, w.sign_out_everywhere)), w.done_signed_out),
        "remove" => (Method::DELETE, &path, Some((w.ask_remove_user, w.remove)), w.done_user_removed),
        other => return Err(ConsoleError::BadForm { field: "verb".to_owned(), problem: other.to_owned() }),
    };
    if let Some((ask, label)) = asks.filter(|_| !fields.has("confirmed")) {
        return Ok(confirm(viewer, fields, &ask.replace("{}", name), label, &back));
    }
    let is_removal = fields.get("verb") == Some("remove");
    console.call(Call { viewer, method, path, query: &[], body, key: None }).await?;
    Ok(viewer.go(if is_removal { "/users" } else { &back }, true, &told.replace("{}", name)))
}

/// One's own password, and one's other sessions, from the settings page.
pub(super) async fn own_password<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, form: Form) -> Response {
    let answer = set_own_password(&console, &form).await;
    answered(&form.viewer, answer)
}

async fn set_own_password<S: Catalog, C: Clock>(console: &Console<S, C>, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let (password, again) = (fields.text("password"), fields.text("again"));
    if password != again {
        return Err(ConsoleError::BadForm { field: w.password_again.to_owned(), problem: w.error_passwords_differ.to_owned() });
    }
    let name = viewer.identity.name.clone();
    let body = json!({ "password": password, "current": fields.text("current") });
    console.call(Call { viewer, method: Method::PUT, path: &["users", &name, "password"], query: &[], body, key: None }).await?;
    Ok(viewer.go("/settings", true, &w.done_password.replace("{}", &name)))
}

pub(super) async fn own_sessions<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, form: Form) -> Response {
    let answer = end_own_sessions(&console, &form).await;
    answered(&form.viewer, answer)
}

async fn end_own_sessions<S: Catalog, C: Clock>(console: &Console<S, C>, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let name = viewer.identity.name.clone();
    if !fields.has("confirmed") {
        return Ok(confirm(viewer, fields, w.ask_sign_out_others, w.sign_out_others, "/settings"));
    }
    let (path, query): (&[&str], &[_]) = (&["users", &name, "sessions"], &[("others", "true")]);
    console.call(Call { viewer, method: Method::DELETE, path, query, body: reason(fields), key: None }).await?;
    Ok(viewer.go("/settings", true, w.done_signed_out_others))
}

#[derive(Template)]
#[template(path = "console/tokens.html")]
struct TokensPage {
    p: Page,
    w: &'static Words,
    rows: Vec<TokenLine>,
    is_all: bool,
    may_see_all: bool,
    /// Somebody has signed in, whose tokens these are.
    is_user: bool,
    next: Option<String>,
    newest: Option<String>,
}

pub(super) async fn tokens<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer, Query(query): Query) -> Response {
    let answer = show_tokens(&console, &viewer, &query).await;
    answered(&viewer, answer)
}

async fn show_tokens<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, query: &Fields) -> Answer {
    let w = viewer.words();
    let is_all = query.has("all");
    let (all, all_text) = if is_all { ("true", "1") } else { ("false", "") };
    let after = query.get("after").unwrap_or_default();
    let found = console.get(viewer, &["tokens"], &[("all", all), ("limit", PAGE), ("after", after)]).await?;
    let page = TokensPage {
        p: viewer.page(Nav::Tokens, w.tokens),
        w,
        rows: token_lines(&found),
        is_all,
        may_see_all: viewer.identity.may(Role::Admin, None),
        is_user: !matches!(viewer.means, Some(Means::Here)),
        next: found["next"].as_u64().map(|next| address("/tokens", &[("all", all_text), ("after", &next.to_string())])),
        newest: query.has("after").then(|| address("/tokens", &[("all", all_text)])),
    };
    Ok(viewer.show(&page))
}

pub(super) async fn make_token<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, form: Form) -> Response {
    let answer = do_make_token(&console, &form).await;
    answered(&form.viewer, answer)
}

async fn do_make_token<S: Catalog, C: Clock>(console: &Console<S, C>, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let mut body = reason(fields);
    body["name"] = json!(fields.get("name").unwrap_or_default().trim());
    if let Some(owner) = fields.get("owner") {
        body["owner"] = json!(owner.trim());
    }
    if let Some(typed) = fields.get("grants") {
        body["grants"] = grants(typed);
    }
    if let Some(days) = fields.get("days") {
        let bad = || ConsoleError::BadForm { field: w.good_for_days.to_owned(), problem: w.error_number.replace("{}", days) };
        body["expires_in_s"] = json!(days.trim().parse::<u64>().map_err(|_| bad())?.saturating_mul(DAY_SECONDS));
    }
    let made = console.post(viewer, &["tokens"], body).await?;
    let title = w.done_token_made.replace("{}", made["name"].as_str().unwrap_or_default());
    let (p, secret) = (viewer.page(Nav::Tokens, &title), text(&made["token"]));
    Ok(viewer.show(&ToldPage { p, w, title, label: w.token, secret, back: "/tokens".to_owned() }))
}

pub(super) async fn revoke<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Path(id): Path<String>, form: Form) -> Response {
    let answer = do_revoke(&console, &id, &form).await;
    answered(&form.viewer, answer)
}

async fn do_revoke<S: Catalog, C: Clock>(console: &Console<S, C>, id: &str, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    // Only to a page of ours.
    let back = if fields.has("all") { "/tokens?all=1" } else { "/tokens" };
    if !fields.has("confirmed") {
        return Ok(confirm(viewer, fields, &w.ask_revoke.replace("{}", id), w.revoke, back));
    }
    let body = reason(fields);
    console.call(Call { viewer, method: Method::DELETE, path: &["tokens", id], query: &[], body, key: None }).await?;
    Ok(viewer.go(back, true, &w.done_revoked.replace("{}", id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_typed_as_on_the_command_line() {
        let typed = "viewer, operator@billing\n editor@a b ,";
        let read = grants(typed);
        let expected = json!([
            { "role": "viewer" }, { "role": "operator", "group": "billing" }, { "role": "editor", "group": "a b" },
        ]);
        assert_eq!((read.clone(), grants_text(&read)), (expected, "viewer, operator@billing, editor@a b".to_owned()));
        assert_eq!(grants(" "), json!([]));
        // Whether it is a role is for the API to say.
        assert_eq!(grants("boss"), json!([{ "role": "boss" }]));
    }
}

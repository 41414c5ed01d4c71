//! The pages where people sign in, and where the first user is made.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use punctual_driver::accounts::Accounts;
use punctual_driver::ports::{Actor, Catalog, Clock};
use serde::Deserialize;

use super::access::Access;
use super::oidc::{Oidc, OidcError, Pending};
use super::origin::Visitor;
use super::{Means, cookie, flow};
use crate::api::extract::{Asked, Client, Posted};
use crate::api::{Api, ApiError};
use crate::console::{Words, words};
use crate::identity::Identity;

#[derive(Template)]
#[template(path = "console/sign_in.html")]
struct SignInPage<'a> {
    w: &'static Words,
    next: &'a str,
    name: &'a str,
    problem: Option<String>,
    /// Where people sign in with a provider, where there is one.
    provider: Option<String>,
}

/// Leads on to a page of ours. A redirect would not do: what another site's page has begun takes no strict cookie along.
#[derive(Template)]
#[template(path = "console/signed_in.html")]
struct SignedInPage<'a> {
    w: &'static Words,
    next: &'a str,
}

#[derive(Template)]
#[template(path = "console/first_run.html")]
struct FirstRunPage<'a> {
    w: &'static Words,
    /// `None`: the link is over.
    key: Option<&'a str>,
    name: &'a str,
    problem: Option<String>,
}

/// What a page looks like.
const STYLE: &str = include_str!("../../templates/sign_in.css");

/// The style of both pages; a policy of ours forbids one within a page.
pub(crate) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "max-age=3600")], STYLE).into_response()
}

fn page(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, Html(text)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[derive(Deserialize)]
pub(crate) struct Wanted {
    next: Option<String>,
}

/// Where the form is. Where nobody signs in there is nothing to do here.
pub(crate) async fn sign_in_form<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    headers: HeaderMap,
    Asked(wanted): Asked<Wanted>,
) -> Result<Response, ApiError> {
    let (w, next) = (words(&headers), own_address(wanted.next.as_deref()));
    if !api.access.must_sign_in(&*api.store).await? {
        return Ok(Redirect::to(next).into_response());
    }
    let problem = (!api.access.has_users(&*api.store).await? && api.access.oidc.is_none()).then(|| w.no_user_yet.to_owned());
    Ok(page(StatusCode::OK, &SignInPage { w, next, name: "", problem, provider: provider(&api.access, next) }))
}

#[derive(Deserialize)]
pub(crate) struct SignInForm {
    name: String,
    password: String,
    next: Option<String>,
}

pub(crate) async fn sign_in<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
    client: Client,
    Posted(form): Posted<SignInForm>,
) -> Response {
    let SignInForm { name, password, next } = form;
    let next = own_address(next.as_deref());
    match flow::sign_in(&api, name.clone(), password, &headers, (&visitor, &client)).await {
        Ok(begun) => ([(header::SET_COOKIE, begun.cookie())], Redirect::to(next)).into_response(),
        Err(error) => with_retry(page(error.status(), &sign_in_again(&api.access, words(&headers), next, &name, &error)), &error),
    }
}

/// Where people sign in with the provider, and come back from to where they wanted.
fn provider(access: &Access, next: &str) -> Option<String> {
    access.oidc.is_some().then(|| format!("/sign-in/oidc?next={}", escaped(next)))
}

fn sign_in_again<'a>(access: &Access, w: &'static Words, next: &'a str, name: &'a str, error: &ApiError) -> SignInPage<'a> {
    SignInPage { w, next, name, problem: Some(told(error, w)), provider: provider(access, next) }
}

/// A refusal, in the words of whoever has tried.
fn told(error: &ApiError, w: &Words) -> String {
    match error {
        ApiError::WrongPassword => w.wrong_password.to_owned(),
        ApiError::TooManyTries { wait } => w.fill(w.too_many_tries, wait.as_millis().div_ceil(1_000)),
        ApiError::LinkOver => w.link_over.to_owned(),
        other => other.to_string(),
    }
}

/// Leads to the provider.
pub(crate) async fn oidc<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
    Asked(wanted): Asked<Wanted>,
) -> Result<Response, ApiError> {
    let Some(oidc) = &api.access.oidc else { return Err(ApiError::NoSuchPage) };
    let next = own_address(wanted.next.as_deref());
    Ok(match oidc.begin(next).await {
        Ok((url, pending)) => {
            let cookie = cookie::set_pending(Some(&pending.to_text()), visitor.is_secure);
            (cookie.map(|cookie| [(header::SET_COOKIE, cookie)]), Redirect::to(&url)).into_response()
        }
        Err(error) => {
            let error = ApiError::Oidc(error);
            page(error.status(), &sign_in_again(&api.access, words(&headers), next, "", &error))
        }
    })
}

#[derive(Deserialize)]
pub(crate) struct Answer {
    code: Option<String>,
    state: Option<String>,
    error: Option<String>,
}

/// Begins the session of whoever comes back, and says where they wanted to go.
async fn come_back<S: Catalog + Accounts, C: Clock>(
    api: &Api<S, C>,
    oidc: &Oidc,
    answer: Answer,
    headers: &HeaderMap,
    (visitor, client): (&Visitor, &Client),
) -> Result<(flow::Begun, String), ApiError> {
    let pending = cookie::pending(headers, visitor.is_secure).and_then(Pending::from_text).ok_or(OidcError::NotBegun)?;
    let (Some(code), Some(state)) = (answer.code, answer.state) else {
        let reason = answer.error.unwrap_or_default().chars().filter(char::is_ascii_graphic).take(100).collect();
        return Err(ApiError::Oidc(OidcError::Bad(reason)));
    };
    let known = oidc.end(&pending, &state, code).await?;
    let begun = flow::known(api, known, headers, (visitor, client)).await?;
    Ok((begun, pending.next))
}

/// Where the provider leads back to.
pub(crate) async fn oidc_callback<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
    client: Client,
    Asked(answer): Asked<Answer>,
) -> Result<Response, ApiError> {
    let Some(oidc) = &api.access.oidc else { return Err(ApiError::NoSuchPage) };
    let mut response = match come_back(&api, oidc, answer, &headers, (&visitor, &client)).await {
        Ok((begun, next)) => {
            let mut response = page(StatusCode::OK, &SignedInPage { w: words(&headers), next: own_address(Some(&next)) });
            response.headers_mut().append(header::SET_COOKIE, begun.cookie());
            response
        }
        Err(error) => page(error.status(), &sign_in_again(&api.access, words(&headers), "/", "", &error)),
    };
    // What it remembered is good once.
    if let Some(forgotten) = cookie::set_pending(None, visitor.is_secure) {
        response.headers_mut().append(header::SET_COOKIE, forgotten);
    }
    Ok(response)
}

/// Ends the session.
pub(crate) async fn sign_out<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Extension(visitor): Extension<Visitor>,
    Extension(identity): Extension<Identity>,
    Extension(means): Extension<Means>,
    client: Client,
) -> Result<Response, ApiError> {
    if let Means::Session { digest } = means {
        let by = Actor { by: identity.name, from: client.from, why: None };
        api.store.end_session(digest, by, api.clock.now().wall).await?;
    }
    Ok(([(header::SET_COOKIE, flow::no_cookie(&visitor))], Redirect::to("/sign-in")).into_response())
}

#[derive(Deserialize)]
pub(crate) struct Link {
    key: Option<String>,
}

pub(crate) async fn first_run_form<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    headers: HeaderMap,
    Asked(link): Asked<Link>,
) -> Result<Response, ApiError> {
    let w = words(&headers);
    let now = api.clock.now().wall;
    let is_over = api.access.has_users(&*api.store).await? || !link.key.as_deref().is_some_and(|key| api.access.is_first_run(key, now));
    let key = link.key.as_deref().filter(|_| !is_over);
    let (status, problem) = match is_over {
        true => (ApiError::LinkOver.status(), Some(told(&ApiError::LinkOver, w))),
        false => (StatusCode::OK, None),
    };
    Ok(page(status, &FirstRunPage { w, key, name: "", problem }))
}

#[derive(Deserialize)]
pub(crate) struct FirstRunForm {
    key: String,
    name: String,
    password: String,
}

pub(crate) async fn first_run<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
    client: Client,
    Posted(form): Posted<FirstRunForm>,
) -> Response {
    let FirstRunForm { key, name, password } = form;
    match flow::first_run(&api, &key, name.clone(), password, &headers, (&visitor, &client)).await {
        Ok(begun) => ([(header::SET_COOKIE, begun.cookie())], Redirect::to("/")).into_response(),
        Err(error) => {
            let key = (!matches!(error, ApiError::LinkOver)).then_some(&*key);
            let w = words(&headers);
            page(error.status(), &FirstRunPage { w, key, name: &name, problem: Some(told(&error, w)) })
        }
    }
}

fn with_retry(mut response: Response, error: &ApiError) -> Response {
    if let Some(wait) = error.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, wait);
    }
    response
}

/// An address of this server; anything else is its first page. A link that leads elsewhere after the sign-in would have our name on it.
fn own_address(wanted: Option<&str>) -> &str {
    let is_own = |wanted: &&str| {
        wanted.starts_with('/')
            && !wanted[1..].starts_with(['/', '\\'])
            && !wanted.chars().any(|character| character.is_control() || character == '\\')
            && wanted.is_ascii()
    };
    wanted.filter(is_own).unwrap_or("/")
}

/// A text as a part of an address.
pub(crate) fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_elsewhere() {
        for own in ["/", "/tasks?a=b&c", "/tasks/x"] {
            assert_eq!(own_address(Some(own)), own);
        }
        for other in
            ["", "//evil.example", "/\\evil.example", "https://evil.example", "evil", "/a\r\nx: y", "/\\\\e", "javascript:alert(1)"]
        {
            assert_eq!(own_address(Some(other)), "/", "{other}");
        }
        assert_eq!((own_address(None), escaped("/a?b=c&d").as_str()), ("/", "/a%3Fb%3Dc%26d"));
    }

    /// The pages before the sign-in are in the reader's language, too, and what they tell of what went wrong.
    #[test]
    fn pages_are_in_the_readers_language() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_LANGUAGE, "zh-CN,zh;q=0.9".parse().unwrap());
        let w = words(&headers);
        let problem = Some(told(&ApiError::WrongPassword, w));
        let page = SignInPage { w, next: "/", name: "", problem, provider: Some("/".to_owned()) }.render().unwrap();
        assert!(page.contains("lang=\"zh-CN\"") && page.contains("登录") && page.contains("用户名或密码错误"), "{page}");
        assert!(!page.contains("Sign in") && !page.contains("Password"), "{page}");
        let wait = std::time::Duration::from_millis(1_500);
        assert!(told(&ApiError::TooManyTries { wait }, w).contains("2 秒"));
    }

    #[test]
    fn what_people_write_shows_as_text() {
        let problem = Some("<i>".to_owned());
        let w = words(&HeaderMap::new());
        let page = SignInPage { w, next: "/\"><script>", name: "<b>\"", problem, provider: Some("/<u>".to_owned()) }.render().unwrap();
        assert!(!page.contains("<script>") && !page.contains("<b>") && !page.contains("<i>") && !page.contains("<u>"), "{page}");
        assert!(!page.contains("style=") && !page.contains("<style") && !page.contains("onclick"), "the policy forbids it");
    }
}

//! Who looks at a page, in which language, and what every page has.

use std::convert::Infallible;
use std::sync::Arc;

use askama::Template;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use punctual_driver::ports::{Catalog, Clock};

use super::error::ConsoleError;
use super::form::Form;
use super::show::visible;
use super::words::{EN, Words, ZH};
use super::{Console, assets};
use crate::identity::{Identity, Role};
use crate::sign_in::origin::Visitor;
use crate::sign_in::{Csrf, Means};

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lang {
    En,
    Zh,
}

impl Lang {
    /// One of two texts.
    pub(super) fn pick(self, en: &'static str, zh: &'static str) -> &'static str {
        match self {
            Lang::En => en,
            Lang::Zh => zh,
        }
    }
}

/// Who asks, as the sign-in has put it beside the request. Before that there is nobody, who may nothing.
pub(super) fn identity(extensions: &Extensions) -> Identity {
    extensions.get::<Identity>().cloned().unwrap_or_else(|| Identity { name: Arc::from("nobody"), grants: Arc::default() })
}

/// What a form has to bring back, so that only pages of ours can send one.
pub(super) fn csrf_token(extensions: &Extensions) -> Arc<str> {
    extensions.get::<Csrf>().map(|csrf| csrf.0.clone()).unwrap_or_default()
}

/// What is told once, on the page after an action.
#[derive(Clone, Debug)]
pub(super) struct Flash {
    pub(super) is_good: bool,
    pub(super) text: String,
}

/// Most bytes of such a text: it travels as a cookie.
const FLASH_BYTES_MAX: usize = 600;

/// Who looks at a page, and how.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    pub(super) lang: Lang,
    theme: &'static str,
    /// The zone that times are shown in; empty: the browser's.
    pub(super) zone: String,
    pub(super) identity: Identity,
    csrf: Arc<str>,
    flash: Option<Flash>,
    /// The page's own address.
    pub(super) address: String,
    pub(super) agent: Option<HeaderValue>,
    /// How they have shown who they are, and where they are: the calls that they make are theirs.
    pub(super) means: Option<Means>,
    pub(super) visitor: Option<Visitor>,
}

impl<S: Send + Sync> FromRequestParts<S> for Viewer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Viewer::of(&parts.headers, &parts.uri, &parts.extensions))
    }
}

impl Viewer {
    pub(super) fn of(headers: &HeaderMap, uri: &Uri, extensions: &Extensions) -> Self {
        let lang = lang_of(headers);
        let theme = match cookie(headers, "theme") {
            Some("light") => "light",
            Some("dark") => "dark",
            _ => "auto",
        };
        let zone = cookie(headers, "zone").map(decode).filter(|zone| is_zone_name(zone)).unwrap_or_default();
        let flash = cookie(headers, "flash").map(|text| {
            let decoded = decode(text);
            Flash { is_good: decoded.starts_with('+'), text: decoded.get(1..).unwrap_or_default().to_owned() }
        });
        Viewer {
            lang,
            theme,
            zone,
            identity: identity(extensions),
            csrf: csrf_token(extensions),
            flash,
            address: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
            agent: headers.get(header::USER_AGENT).cloned(),
            means: extensions.get::<Means>().cloned(),
            visitor: extensions.get::<Visitor>().cloned(),
        }
    }

    pub(super) fn words(&self) -> &'static Words {
        words_in(self.lang)
    }

    /// Refuses those who may not act as this role.
    pub(super) fn require(&self, role: Role, group: Option<&str>) -> Result<(), ConsoleError> {
        if self.identity.may(role, group) { Ok(()) } else { Err(ConsoleError::Forbidden { role, is_everywhere: group.is_none() }) }
    }

    /// What the layout needs.
    pub(super) fn page(&self, nav: Nav, title: impl Into<String>) -> Page {
        Page {
            w: self.words(),
            lang: self.words().html_lang,
            theme: self.theme,
            zone: self.zone.clone(),
            title: title.into(),
            nav,
            who: self.identity.name.clone(),
            csrf: self.csrf.clone(),
            flash: self.flash.clone(),
            address: self.address.clone(),
            style: &assets::STYLE.address,
            script: &assets::SCRIPT.address,
            icon: &assets::ICON.address,
            may_operate: self.identity.may(Role::Operator, None),
            may_edit: self.identity.may(Role::Editor, None),
            may_administer: self.identity.may(Role::Admin, None),
        }
    }

    /// A page that is there.
    pub(super) fn show(&self, template: &impl Template) -> Response {
        self.show_as(StatusCode::OK, template)
    }

    pub(super) fn show_as(&self, status: StatusCode, template: &impl Template) -> Response {
        self.rendered(status, template.render().map(visible))
    }

    /// A page with what somebody sends back: that is left as it is.
    pub(super) fn show_form(&self, template: &impl Template) -> Response {
        self.rendered(StatusCode::OK, template.render())
    }

    fn rendered(&self, status: StatusCode, text: askama::Result<String>) -> Response {
        let text = match text {
            Ok(text) => text,
            // Only a writer that fails makes a template fail, and a string doesn't.
            Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        };
        let mut response = (status, Html(text)).into_response();
        if self.flash.is_some() {
            set_cookie(&mut response, "flash=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
        }
        response
    }

    /// Goes on to another page, which says what has been done.
    pub(super) fn go(&self, to: &str, is_good: bool, text: &str) -> Response {
        let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, to.to_owned())]).into_response();
        let text = &text[..text.floor_char_boundary(FLASH_BYTES_MAX)];
        let value: String = form_urlencoded::byte_serialize(format!("{}{text}", if is_good { '+' } else { '-' }).as_bytes()).collect();
        set_cookie(&mut response, &format!("flash={value}; Path=/; Max-Age=60; HttpOnly; SameSite=Strict"));
        response
    }
}

/// Whether that may be the name of a time zone: the script asks the browser, and goes on without where it knows none.
fn is_zone_name(name: &str) -> bool {
    name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte))
}

fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

fn decode(text: &str) -> String {
    form_urlencoded::parse(format!("f={text}").as_bytes()).next().map_or_else(String::new, |(_, value)| value.into_owned())
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// The texts in the language of whoever asks, also of those who have not signed in.
pub(crate) fn words(headers: &HeaderMap) -> &'static Words {
    words_in(lang_of(headers))
}

fn words_in(lang: Lang) -> &'static Words {
    match lang {
        Lang::En => &EN,
        Lang::Zh => &ZH,
    }
}

/// The language that was chosen, else the one that the browser prefers.
fn lang_of(headers: &HeaderMap) -> Lang {
    match cookie(headers, "lang") {
        Some("en") => Lang::En,
        Some("zh") => Lang::Zh,
        _ => preferred(headers),
    }
}

/// The language that a browser asks for: Chinese where it comes before English.
fn preferred(headers: &HeaderMap) -> Lang {
    let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut best = (Lang::En, 0.0_f32);
    for part in accepted.split(',') {
        let mut pieces = part.split(';');
        let tag = pieces.next().unwrap_or_default().trim().to_ascii_lowercase();
        let weight = pieces.find_map(|piece| piece.trim().strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        let lang = match tag.split('-').next() {
            Some("zh") => Lang::Zh,
            Some("en") => Lang::En,
            _ => continue,
        };
        if weight > best.1 {
            best = (lang, weight);
        }
    }
    best.0
}

/// Where a page is in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nav {
    Overview,
    Tasks,
    Instances,
    Calendar,
    DeadLetters,
    Backfills,
    Pauses,
    Workers,
    Replicas,
    Audit,
    Users,
    Tokens,
    Settings,
    None,
}

/// A line of the navigation.
pub(super) struct Link {
    pub(super) address: &'static str,
    pub(super) label: &'static str,
    /// The path of its icon, on a square of 24.
    pub(super) icon: &'static str,
    pub(super) is_here: bool,
    /// The key behind `g` that leads there.
    pub(super) key: char,
}

/// What the layout shows.
pub(super) struct Page {
    pub(super) w: &'static Words,
    pub(super) lang: &'static str,
    pub(super) theme: &'static str,
    pub(super) zone: String,
    pub(super) title: String,
    nav: Nav,
    pub(super) who: Arc<str>,
    pub(super) csrf: Arc<str>,
    pub(super) flash: Option<Flash>,
    pub(super) address: String,
    pub(super) style: &'static str,
    pub(super) script: &'static str,
    pub(super) icon: &'static str,
    pub(super) may_operate: bool,
    pub(super) may_edit: bool,
    may_administer: bool,
}

impl Page {
    fn link(&self, nav: Nav, address: &'static str, label: &'static str, key: char, icon: &'static str) -> Link {
        Link { address, label, icon, is_here: self.nav == nav, key }
    }

    /// The navigation, in groups.
    pub(super) fn links(&self) -> [Vec<Link>; 3] {
        let w = self.w;
        let mut links = [
            vec![
                self.link(Nav::Overview, "/", w.overview, 'o', "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-4H4zM14 8h6V4h-6z"),
                self.link(Nav::Tasks, "/tasks", w.tasks, 't', "M9 6h11M9 12h11M9 18h11M4.5 6h.01M4.5 12h.01M4.5 18h.01"),
                self.link(Nav::Instances, "/instances", w.instances, 'i', "M7 5l11 7-11 7z"),
                self.link(Nav::Calendar, "/calendar", w.calendar, 'c', "M4 6h16v14H4zM4 10h16M8 3v4M16 3v4"),
            ],
            vec![
                self.link(Nav::DeadLetters, "/dead-letters", w.dead_letters, 'd', "M3 6h18v12H3zM3 7l9 6 9-6"),
                self.link(Nav::Backfills, "/backfills", w.backfills, 'b', "M4 12a8 8 0 1 0 3-6.2M4 4v5h5M12 8v4l3 2"),
                self.link(Nav::Pauses, "/pauses", w.pauses, 'p', "M8 5v14M16 5v14"),
            ],
            vec![
                self.link(Nav::Workers, "/workers", w.workers, 'w', "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01"),
                self.link(
                    Nav::Replicas,
                    "/replicas",
                    w.replicas,
                    'r',
                    "M12 4a3 3 0 1 0 .01 0M5 15a3 3 0 1 0 .01 0M19 15a3 3 0 1 0 .01 0M12 10v3M7.5 16l2-3h5l2 3",
                ),
                self.link(Nav::Audit, "/audit", w.audit, 'a', "M6 3h9l4 4v14H6zM9 12h7M9 16h7M9 8h3"),
                self.link(
                    Nav::Users,
                    "/users",
                    w.users,
                    'u',
                    "M9 5a3.5 3.5 0 1 0 .01 0M3 20c0-4 3-6 6-6s6 2 6 6M16 5.5a3 3 0 0 1 0 6M18 14.5c2 .8 3 2.6 3 5.5",
                ),
                self.link(Nav::Tokens, "/tokens", w.tokens, 'k', "M15 4a5 5 0 1 0 .01 0M11.5 12.5L4 20M7 17l2.5 2.5M15.5 8.5h.01"),
                self.link(Nav::Settings, "/settings", w.settings, 's', "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4"),
            ],
        ];
        if !self.may_administer {
            links[2].retain(|link| link.address != "/users");
        }
        links
    }
}

/// Language and theme, kept by the browser.
pub(super) async fn preferences<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Form { viewer, fields }: Form) -> Response {
    // Only a page of ours: `//host` would be another site.
    let back = fields.get("back").filter(|back| back.starts_with('/') && !back.starts_with("//") && !back.contains('\\')).unwrap_or("/");
    let mut response = match HeaderValue::from_str(back) {
        Ok(back) => (StatusCode::SEE_OTHER, [(header::LOCATION, back)]).into_response(),
        Err(_) => return ConsoleError::BadForm { field: "back".into(), problem: String::new() }.page(&viewer),
    };
    for (name, allowed) in [("lang", ["en", "zh"].as_slice()), ("theme", ["light", "dark", "auto"].as_slice())] {
        if let Some(value) = fields.get(name).filter(|value| allowed.contains(value)) {
            set_cookie(&mut response, &format!("{name}={value}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax"));
        }
    }
    // Emptied, it is the browser's again.
    if fields.is_there("zone") {
        let zone = fields.text("zone").trim();
        if !zone.is_empty() && console.api.zones.get(zone).is_err() {
            let w = viewer.words();
            return ConsoleError::BadForm { field: w.time_zone.to_owned(), problem: w.error_no_zone.replace("{}", zone) }.page(&viewer);
        }
        let (value, age): (String, _) = match zone {
            "" => (String::new(), 0),
            zone => (form_urlencoded::byte_serialize(zone.as_bytes()).collect(), 31_536_000),
        };
        set_cookie(&mut response, &format!("zone={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Grant;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn the_browser_s_first_language_counts() {
        let preferred = |value| preferred(&headers(header::ACCEPT_LANGUAGE, value));
        for (value, lang) in [
            ("zh-CN,zh;q=0.9,en;q=0.8", Lang::Zh),
            ("en-US,en;q=0.9,zh;q=0.8", Lang::En),
            ("de,zh;q=0.5,en;q=0.3", Lang::Zh),
            ("fr", Lang::En),
            ("", Lang::En),
            ("zh;q=0", Lang::En),
            (";;,=,q=", Lang::En),
        ] {
            assert_eq!(preferred(value), lang, "{value}");
        }
    }

    #[test]
    fn a_role_that_may_not_is_refused() {
        let mut extensions = Extensions::new();
        let who = |extensions: &Extensions| Viewer::of(&HeaderMap::new(), &Uri::from_static("/tasks"), extensions);
        assert!(who(&extensions).require(Role::Viewer, None).is_err(), "nobody has signed in");
        let grants = [Grant { role: Role::Viewer, group: None }, Grant { role: Role::Operator, group: Some(Arc::from("billing")) }];
        extensions.insert(Identity { name: Arc::from("ada"), grants: Arc::from(grants) });
        let viewer = who(&extensions);
        assert!(viewer.require(Role::Viewer, Some("other")).is_ok() && viewer.require(Role::Operator, Some("billing")).is_ok());
        for (role, group) in [(Role::Operator, None), (Role::Operator, Some("other")), (Role::Editor, Some("billing"))] {
            let refusal = viewer.require(role, group).unwrap_err();
            let page = refusal.page(&viewer);
            assert_eq!((refusal.code(), page.status()), ("PUN-406", StatusCode::FORBIDDEN));
        }
        let page = viewer.page(Nav::Tasks, "Tasks");
        assert!(!page.may_operate && !page.may_edit);
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let found = headers(header::COOKIE, "lang2=zh; xlang=zh; lang=en");
        assert_eq!((cookie(&found, "lang"), cookie(&found, "theme")), (Some("en"), None));
        let zone = |value| Viewer::of(&headers(header::COOKIE, value), &Uri::from_static("/"), &Extensions::new()).zone;
        assert_eq!(zone("zone=America%2FNew_York"), "America/New_York");
        assert_eq!((zone("zone=%22%3E%3Cscript%3E"), zone("zone=")), (String::new(), String::new()));
    }
}

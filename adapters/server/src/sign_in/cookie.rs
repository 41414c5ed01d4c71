//! The session's cookie.

use axum::http::{HeaderMap, HeaderValue, header};

/// Over TLS: browsers take it from this host alone, and over TLS alone.
const SECURE_NAME: &str = "__Host-punctual";
/// In the clear.
const PLAIN_NAME: &str = "punctual";

/// What a sign-in with the provider remembers, for as long as that may take.
const PENDING_NAMES: [&str; 2] = ["punctual-oidc", "__Host-punctual-oidc"];
const PENDING_SECONDS: u32 = 600;

/// What the request's cookie says, where it has one. Over TLS one that came in the clear does not count: anybody on the way may have set it.
pub(crate) fn of(headers: &HeaderMap, is_secure: bool) -> Option<&str> {
    named(headers, if is_secure { SECURE_NAME } else { PLAIN_NAME })
}

/// What a sign-in with the provider remembers.
pub(crate) fn pending(headers: &HeaderMap, is_secure: bool) -> Option<&str> {
    named(headers, PENDING_NAMES[usize::from(is_secure)])
}

/// The header that lets it remember something, or forget it. It has to come along when the provider leads back, so it is `Lax`.
pub(crate) fn set_pending(text: Option<&str>, is_secure: bool) -> Option<HeaderValue> {
    let (name, secure) = (PENDING_NAMES[usize::from(is_secure)], if is_secure { "; Secure" } else { "" });
    let seconds = if text.is_some() { PENDING_SECONDS } else { 0 };
    let text = text.unwrap_or_default();
    HeaderValue::from_str(&format!("{name}={text}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")).ok()
}

fn named<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
    let mut values = pairs.filter_map(|pair| pair.trim().split_once('=')).filter(|(key, _)| *key == name).map(|(_, value)| value);
    // Of two nobody knows which one is ours.
    values.next().filter(|_| values.next().is_none())
}

/// The header that sets it.
pub(crate) fn set(session: &str, is_secure: bool) -> HeaderValue {
    let text = match is_secure {
        true => format!("{SECURE_NAME}={session}; Path=/; HttpOnly; SameSite=Strict; Secure"),
        false => format!("{PLAIN_NAME}={session}; Path=/; HttpOnly; SameSite=Strict"),
    };
    HeaderValue::from_str(&text).expect("hexadecimal digits")
}

/// The header that takes it away.
pub(crate) fn unset(is_secure: bool) -> HeaderValue {
    HeaderValue::from_static(match is_secure {
        true => "__Host-punctual=; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=0",
        false => "punctual=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_the_name_that_belongs_to_the_connection() {
        let headers = |text: &'static str| HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(text))]);
        let both = headers("a=b; punctual=plain; __Host-punctual=secure");
        assert_eq!((of(&both, false), of(&both, true)), (Some("plain"), Some("secure")));
        assert_eq!(of(&headers("punctual=x"), true), None, "it came in the clear");
        assert_eq!(of(&headers("punctual=x; punctual=y"), false), None);
        assert_eq!(of(&headers("xpunctual=x"), false), None);
        assert_eq!(of(&HeaderMap::new(), false), None);
    }

    #[test]
    fn scripts_and_other_sites_never_get_it() {
        for is_secure in [true, false] {
            for value in [set("ab", is_secure), unset(is_secure)] {
                let text = value.to_str().unwrap();
                assert!(text.contains("; HttpOnly; SameSite=Strict") && text.contains("; Path=/;"), "{text}");
                assert_eq!((text.contains("Secure"), text.starts_with("__Host-")), (is_secure, is_secure), "{text}");
            }
        }
    }
}

//! Fields of forms and of addresses, by name, each any number of times.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;

use super::error::ConsoleError;
use super::page::{Viewer, csrf_token};

/// Fields as they were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    fn parse(bytes: &[u8]) -> Self {
        Fields(form_urlencoded::parse(bytes).into_owned().collect())
    }

    /// The last value of a field that has something in it.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(field, value)| field == name && !value.trim().is_empty()).map(|(_, value)| value.as_str())
    }

    /// The value as it was typed.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().rev().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }

    /// Whether a field was sent, with anything in it or not.
    pub(super) fn is_there(&self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| field == name)
    }

    /// All values of a field.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Whether a box is ticked.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Every field but the form's own.
    pub(super) fn others(&self) -> Vec<(String, String)> {
        self.0.iter().filter(|(field, _)| !matches!(field.as_str(), "csrf" | "confirmed" | "reason")).cloned().collect()
    }
}

/// What stands behind the question mark.
pub(super) struct Query(pub(super) Fields);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Query(Fields::parse(parts.uri.query().unwrap_or_default().as_bytes())))
    }
}

/// A form that a page of ours has sent.
pub(super) struct Form {
    pub(super) viewer: Viewer,
    pub(super) fields: Fields,
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = axum::response::Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let viewer = Viewer::of(request.headers(), request.uri(), request.extensions());
        let token = csrf_token(request.extensions());
        let bytes = match Bytes::from_request(request, state).await {
            Ok(bytes) => bytes,
            Err(rejection) if rejection.status() == axum::http::StatusCode::PAYLOAD_TOO_LARGE => {
                return Err(ConsoleError::TooLarge.page(&viewer));
            }
            Err(rejection) => return Err(ConsoleError::BadForm { field: "body".into(), problem: rejection.body_text() }.page(&viewer)),
        };
        let fields = Fields::parse(&bytes);
        if token.is_empty() || fields.get("csrf") != Some(&*token) {
            return Err(ConsoleError::Forged.page(&viewer));
        }
        Ok(Form { viewer, fields })
    }
}

/// A part of an address, with everything escaped that means something there.
pub(super) fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => escaped.push(char::from(byte)),
            // A dot alone is a step in a path, escaped or not.
            b'.' if text.len() > 2 => escaped.push('.'),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// An address with what is asked for; fields without a value are left out.
pub(super) fn address(path: &str, fields: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields.iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// What a page asks the API's stream for: whether something has changed, of all or of what is named.
pub(super) fn events(field: &str, name: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("kinds", "change");
    if !name.is_empty() {
        query.append_pair(field, name);
    }
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_one_part_of_an_address() {
        assert_eq!(segment("nightly report"), "nightly%20report");
        assert_eq!(segment("a/b?c#d%"), "a%2Fb%3Fc%23d%25");
        assert_eq!(segment("v1.2"), "v1.2");
        assert_eq!(segment("夜"), "%E5%A4%9C");
    }

    #[test]
    fn fields_are_read_as_they_were_sent() {
        let fields = Fields::parse(b"id=1-2&id=3-4&reason=+&name=a%26b&empty=");
        assert_eq!(fields.all("id").collect::<Vec<_>>(), ["1-2", "3-4"]);
        assert_eq!((fields.get("reason"), fields.get("name"), fields.get("gone")), (None, Some("a&b"), None));
        assert_eq!(
            fields.others(),
            [("id", "1-2"), ("id", "3-4"), ("name", "a&b"), ("empty", "")].map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(address("/tasks", &[("q", "a b"), ("group", "")]), "/tasks?q=a+b");
        assert_eq!(address("/tasks", &[("q", "")]), "/tasks");
    }
}

//! What seeds and addresses of replicas may look like: `host:port`, or a URL of a scheme and these two.

use std::fmt;
use std::sync::Arc;

use tonic::transport::Uri;

use crate::limits::ADDRESS_BYTES_MAX;

/// Where a replica can be reached, in one form for all ways to write it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    url: Arc<str>,
}

impl Address {
    /// Reads one. Without a scheme it is the one that `with_tls` says.
    pub(crate) fn parse(text: &str, with_tls: bool) -> Result<Address, String> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(format!("it has {} bytes, more than {ADDRESS_BYTES_MAX}", text.len()));
        }
        let url = match (text.contains("://"), with_tls) {
            (true, _) => text.to_owned(),
            (false, true) => format!("https://{text}"),
            (false, false) => format!("http://{text}"),
        };
        let uri: Uri = url.parse().map_err(|error| format!("it is no address: {error}"))?;
        let scheme = uri.scheme_str().unwrap_or_default();
        if !["http", "https"].contains(&scheme) {
            return Err(format!("its scheme is {scheme:?}, not http or https"));
        }
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err("it is not a host and a port".to_owned());
        }
        let Some(port) = authority.port_u16() else { return Err("it has no port".to_owned()) };
        if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return Err("it has something behind the port".to_owned());
        }
        Ok(Address { url: Arc::from(format!("{scheme}://{}:{port}", authority.host().to_ascii_lowercase())) })
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.url.starts_with("https:")
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_write_an_address() {
        let read = |text, with_tls| Address::parse(text, with_tls).map(|address| address.to_string());
        for (text, with_tls, url) in [
            ("127.0.0.1:7401", false, "http://127.0.0.1:7401"),
            ("Scheduler-1:7401", true, "https://scheduler-1:7401"),
            ("http://localhost:7401/", true, "http://localhost:7401"),
            ("https://[::1]:7401", false, "https://[::1]:7401"),
            ("[::1]:7401", false, "http://[::1]:7401"),
        ] {
            assert_eq!(read(text, with_tls), Ok(url.to_owned()), "{text}");
        }
        let long = format!("{}:1", "x".repeat(ADDRESS_BYTES_MAX));
        for text in ["", "host", "host:", ":7401", "ftp://host:1", "http://host:1/path", "user:pass@host:1", "host:99999", "a b:1", &long] {
            assert!(read(text, false).is_err(), "{text}");
        }
    }
}

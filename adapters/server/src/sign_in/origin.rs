//! Where a request comes from: whose page sent it, and whose machine.

use std::net::{IpAddr, Ipv6Addr};

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, header};

use super::access::Reach;
use crate::api::ApiError;
use crate::api::listener::Peer;

/// What is counted as one address: whoever has one of an IPv6 network has all of them.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// Who sent a request, as far as the connection tells, or a proxy that is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visitor {
    pub(crate) address: Option<IpAddr>,
    /// Whether it came over TLS.
    pub(crate) is_secure: bool,
    /// What the visitor calls this server.
    hosts: Vec<String>,
}

impl Visitor {
    pub(super) fn of(request: &Request, reach: &Reach) -> Self {
        let peer = request.extensions().get::<ConnectInfo<Peer>>().map(|peer| peer.0.0.ip().to_canonical());
        let is_proxy = |address: &IpAddr| reach.proxies.iter().any(|network| network.contains(address));
        let headers = request.headers();
        let mut hosts: Vec<String> = last(headers, header::HOST.as_str()).into_iter().map(str::to_owned).collect();
        if !peer.as_ref().is_some_and(is_proxy) {
            return Visitor { address: peer, is_secure: reach.is_tls, hosts };
        }
        hosts.extend(last(headers, "x-forwarded-host").map(str::to_owned));
        // Each proxy adds whom it has heard; what stands before the first that is not trusted anybody may have written.
        let forwarded = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
        let forwarded: Vec<_> = forwarded.flat_map(|value| value.split(',')).map(|text| text.trim().parse::<IpAddr>()).collect();
        let told = forwarded.into_iter().rev().map_while(Result::ok).map(|address| address.to_canonical());
        let address = told.clone().find(|address| !is_proxy(address)).or(told.last()).or(peer);
        Visitor { address, is_secure: reach.is_tls || last(headers, "x-forwarded-proto") == Some("https"), hosts }
    }
}

/// The last of a header's values.
fn last<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next().map(str::trim)
}

/// Refuses what another machine's name or another site's page has sent: without a sign-in these would be anybody's.
pub(super) fn check_this_machine(headers: &HeaderMap, visitor: &Visitor, is_read: bool) -> Result<(), ApiError> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_this_machine) {
        return Err(ApiError::ForeignHost);
    }
    check_page(headers, visitor, is_read)
}

/// Refuses what another site's page has sent, unless it only reads.
pub(super) fn check_page(headers: &HeaderMap, visitor: &Visitor, is_read: bool) -> Result<(), ApiError> {
    if is_read || is_own_request(headers, visitor) { Ok(()) } else { Err(ApiError::ForeignOrigin) }
}

fn is_this_machine(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A browser names the page's origin with every request that writes; a program names none.
fn is_own_request(headers: &HeaderMap, visitor: &Visitor) -> bool {
    let is_same_site = headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin");
    let Some(origin) = headers.get(header::ORIGIN) else { return is_same_site };
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://").filter(|_| !visitor.is_secure));
    is_same_site && authority.is_some_and(|authority| visitor.hosts.iter().any(|host| host == authority))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(peer: &str, pairs: &[(&str, &str)]) -> Request {
        let mut request = axum::http::Request::builder();
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo(Peer(format!("{peer}:1234").parse().unwrap())));
        request
    }

    fn reach() -> Reach {
        Reach { is_beyond: true, is_tls: false, proxies: vec!["10.0.0.0/8".parse().unwrap()] }
    }

    #[test]
    fn addresses_of_a_network_are_one() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!([of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::1")], ["2001:db8:1:2::", "2001:db8:1:2::"]);
        assert_eq!([of("192.0.2.7"), of("::ffff:192.0.2.7"), of("2001:db8:1:3::1")], ["192.0.2.7", "192.0.2.7", "2001:db8:1:3::"]);
    }

    #[test]
    fn only_loopback_names_are_this_machine() {
        for own in ["localhost", "LOCALHOST:8650", "127.0.0.1:8650", "127.9.9.9", "[::1]:8650", "[::1]"] {
            assert!(is_this_machine(own), "{own}");
        }
        for foreign in ["", "example.com", "localhost.example.com", "127.0.0.1.example.com", "10.0.0.1:8650", "[2001:db8::1]:80", "0.0.0.0"]
        {
            assert!(!is_this_machine(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_foreign_page_may_not_write() {
        let is_own = |pairs: &[(&str, &str)]| {
            let request = request("127.0.0.1", pairs);
            is_own_request(request.headers(), &Visitor::of(&request, &reach()))
        };
        let host = ("host", "127.0.0.1:8650");
        assert!(is_own(&[host]));
        assert!(is_own(&[host, ("origin", "http://127.0.0.1:8650")]));
        assert!(is_own(&[host, ("origin", "http://127.0.0.1:8650"), ("sec-fetch-site", "same-origin")]));
        for foreign in ["http://127.0.0.1:9999", "https://evil.example", "null", "127.0.0.1:8650", "ftp://127.0.0.1:8650", ""] {
            assert!(!is_own(&[host, ("origin", foreign)]), "{foreign}");
        }
        for site in ["cross-site", "same-site", "none"] {
            assert!(!is_own(&[host, ("sec-fetch-site", site)]), "{site}");
            assert!(!is_own(&[host, ("sec-fetch-site", site), ("origin", "http://127.0.0.1:8650")]), "{site}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_says_for_whom_it_asks() {
        let said = [
            ("host", "inside:8650"),
            ("x-forwarded-for", "1.2.3.4, 198.51.100.7"),
            ("x-forwarded-for", "10.0.0.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "punctual.example"),
        ];
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let stranger = Visitor::of(&request("192.0.2.1", &said), &reach());
        assert_eq!(stranger, Visitor { address: address("192.0.2.1"), is_secure: false, hosts: vec!["inside:8650".to_owned()] });
        let proxied = Visitor::of(&request("10.0.0.1", &said), &reach());
        assert_eq!((proxied.address, proxied.is_secure), (address("198.51.100.7"), true), "1.2.3.4 is what the visitor wrote");
        let page = |origin: &'static str| HeaderMap::from_iter([(header::ORIGIN, axum::http::HeaderValue::from_static(origin))]);
        assert!(is_own_request(&page("https://punctual.example"), &proxied));
        assert!(!is_own_request(&page("http://punctual.example"), &proxied), "over TLS a page in the clear is another site's");
        assert!(!is_own_request(&page("https://punctual.example"), &stranger));
        let broken = Visitor::of(&request("10.0.0.1", &[("x-forwarded-for", "198.51.100.7, what?")]), &reach());
        assert_eq!((broken.address, broken.is_secure), (address("10.0.0.1"), false));
    }
}

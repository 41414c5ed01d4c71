//! Addresses that HTTP calls don't go to: those that mean something only within a machine, a network or an organisation. Whoever writes a
//! task would otherwise reach from the worker's place what is not meant for them: databases without a password, the metadata of a cloud.
//!
//! A name is looked up once, and only what was looked at is connected to: a name that says something else the next moment changes nothing.
//! Each redirect is looked at the same way.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Which internal addresses HTTP calls may go to. By default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InternalAddresses {
    all: bool,
    networks: Vec<IpNet>,
}

impl InternalAddresses {
    /// All of them.
    pub fn all() -> Self {
        InternalAddresses { all: true, networks: Vec::new() }
    }

    /// Those of this machine.
    pub fn loopback() -> Self {
        let networks = [IpNet::new(Ipv4Addr::LOCALHOST.into(), 8), IpNet::new(Ipv6Addr::LOCALHOST.into(), 128)];
        InternalAddresses { all: false, networks: networks.into_iter().flatten().collect() }
    }

    /// Those of either.
    #[must_use]
    pub fn or(mut self, other: InternalAddresses) -> Self {
        self.all |= other.all;
        self.networks.extend(other.networks);
        self
    }

    /// Whether calls may go to this address.
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.all || !is_internal(address) || self.networks.iter().any(|network| network.contains(&address))
    }
}

/// `all`, an address, or a network such as `10.0.0.0/8`.
impl FromStr for InternalAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(InternalAddresses::all());
        }
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        let network = network.map_err(|_| format!("{text:?} is not `all`, an address, or a network such as 10.0.0.0/8"))?;
        Ok(InternalAddresses { all: false, networks: vec![network.trunc()] })
    }
}

/// Whether an address is no public one. The registries are IANA's for special purposes; what they give out for documentation leads nowhere.
fn is_internal(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_internal_v4(address),
        IpAddr::V6(address) => is_internal_v6(address),
    }
}

fn is_internal_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || first == 0
        || first >= 240
        // Behind a carrier's translation; clouds use it for themselves.
        || (first == 100 && second & 0xc0 == 64)
        || (first == 192 && second == 0 && third == 0)
        || (first == 198 && second & 0xfe == 18)
}

fn is_internal_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        // Unspecified, loopback, and the old way to write IPv4 addresses.
        [0, 0, 0, 0, 0, 0, ..] => true,
        // What a translator makes of them: the address behind it counts.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_internal_v4(v4(high, low)),
        [0x64, 0xff9b, 1, ..] => true,
        [0x2002, high, low, ..] => is_internal_v4(v4(high, low)),
        // Teredo.
        [0x2001, 0, ..] => true,
        [first, ..] => {
            let is_unique_local = first & 0xfe00 == 0xfc00;
            let is_link_or_site_local = first & 0xff80 == 0xfe80;
            is_unique_local || is_link_or_site_local || address.is_multicast()
        }
    }
}

/// What a call is refused with.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "PUN-422: {host} is an internal address, and this worker calls none ({address}). Call a public one, or start the worker with \
     --allow-internal-addresses={address}"
)]
pub(crate) struct Refused {
    host: String,
    address: IpAddr,
}

impl Refused {
    /// The refusal that an error came from.
    pub(crate) fn behind<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Refused> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(refused) = error.downcast_ref::<Refused>() {
                return Some(refused);
            }
            cause = error.source();
        }
        None
    }
}

/// Refuses a URL whose host is an address that calls don't go to. Names are looked at when they are looked up.
pub(crate) fn check_url(allowed: &InternalAddresses, url: &Url) -> Result<(), Refused> {
    let host = url.host_str().unwrap_or_default();
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) if !allowed.allow(address) => Err(Refused { host: host.to_owned(), address }),
        _ => Ok(()),
    }
}

/// What a lookup answers, in time.
pub(crate) type Found = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;
/// Looks a name up.
pub(crate) type Lookup = Arc<dyn Fn(String) -> Found + Send + Sync>;

/// Looks a name up as the system does.
pub(crate) fn by_system() -> Lookup {
    Arc::new(|name| Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }))
}

/// Looks names up, and hands on only what calls may go to.
pub(crate) struct Guarded {
    pub(crate) allowed: InternalAddresses,
    pub(crate) lookup: Lookup,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let (found, allowed) = ((self.lookup)(host.clone()), self.allowed.clone());
        Box::pin(async move {
            let all = found.await?;
            let (good, bad): (Vec<_>, Vec<_>) = all.into_iter().partition(|found| allowed.allow(found.ip()));
            match bad.first() {
                Some(refused) if good.is_empty() => Err(Refused { host, address: refused.ip() }.into()),
                _ => Ok(Box::new(good.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_addresses_are_told_from_public_ones() {
        for internal in [
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.170",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2002:a00:1::",
            "2001:0:1::1",
        ] {
            assert!(!InternalAddresses::default().allow(internal.parse().unwrap()), "{internal}");
            assert!(InternalAddresses::all().allow(internal.parse().unwrap()), "{internal}");
        }
        for public in [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "2001:4860:4860::8888",
        ] {
            assert!(InternalAddresses::default().allow(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn what_is_allowed_is_named() {
        let of = |text: &str| text.parse::<InternalAddresses>();
        let some = of("10.1.0.0/16").unwrap().or(of("192.168.0.7").unwrap());
        let allows = |address: &str| some.allow(address.parse().unwrap());
        assert!(allows("10.1.2.3") && allows("::ffff:10.1.2.3") && allows("192.168.0.7"));
        assert!(!allows("10.2.0.1") && !allows("192.168.0.8") && !allows("127.0.0.1"));
        assert!(
            InternalAddresses::loopback().allow("127.0.0.1".parse().unwrap())
                && InternalAddresses::loopback().allow("::1".parse().unwrap())
        );
        assert_eq!(of("all"), Ok(InternalAddresses::all()));
        for bad in ["", "ALL", "10.0.0.0/33", "host"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_is_found_in_a_url_however_it_is_written() {
        let check = |url: &str| check_url(&InternalAddresses::default(), &Url::parse(url).unwrap()).is_err();
        for internal in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://017700000001/",
            "http://[::1]:80/",
            "http://[::ffff:7f00:1]/",
            "http://user@10.0.0.1/",
            "http://127.1/",
        ] {
            assert!(check(internal), "{internal}");
        }
        assert!(!check("http://1.1.1.1/") && !check("http://localhost/"), "names are looked at when they are looked up");
    }
}

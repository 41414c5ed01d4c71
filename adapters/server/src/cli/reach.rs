//! Who reaches the API, and the first user where others do.

use std::net::SocketAddr;

use ipnet::IpNet;
use punctual_driver::accounts::Accounts;
use punctual_driver::ports::{Clock, StoreError};

use crate::sign_in::access::{Access, FIRST_RUN_TIME_MAX, Reach};

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ReachArgs {
    /// A proxy that speaks TLS for the API and says for whom it asks (X-Forwarded-For, -Proto, -Host), such as 10.0.0.5 or 10.0.0.0/24; may be
    /// given several times
    #[arg(long = "trusted-proxy", value_name = "NETWORK", value_parser = network)]
    trusted_proxies: Vec<IpNet>,
    /// Let the API be reached beyond this machine without TLS: passwords and tokens can be read on the way
    #[arg(long)]
    plain_http: bool,
}

impl ReachArgs {
    /// How the API is reached that listens there. Beyond this machine nobody's password goes in the clear by oversight.
    pub(super) fn of(&self, listen: SocketAddr) -> Result<Reach, String> {
        let is_beyond = !listen.ip().to_canonical().is_loopback();
        if is_beyond && self.trusted_proxies.is_empty() && !self.plain_http {
            return Err(format!(
                "PUN-310: the API would be reached beyond this machine, and passwords and tokens read on the way: it speaks no TLS itself. Use --listen \
                 127.0.0.1:{}, or put a proxy that speaks TLS before it and name that with --trusted-proxy, or accept it with --plain-http",
                listen.port()
            ));
        }
        // A proxy on this machine brings others to a listener on the loopback.
        Ok(Reach { is_beyond: is_beyond || !self.trusted_proxies.is_empty(), proxies: self.trusted_proxies.clone() })
    }
}

/// One address, or a network.
fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<std::net::IpAddr>().map(IpNet::from);
    text.parse::<IpNet>().or_else(|_| address()).map_err(|_| format!("{text:?} is not an address or a network such as 10.0.0.0/24"))
}

/// What to tell whoever starts it: the link for the first user, where one is needed.
pub(super) async fn first_run_line(
    access: &Access,
    store: &impl Accounts,
    clock: &impl Clock,
    address: SocketAddr,
) -> Result<Option<String>, StoreError> {
    if !access.must_sign_in(store).await? || access.has_users(store).await? {
        return Ok(None);
    }
    let key = access.begin_first_run(clock.now().wall);
    let minutes = FIRST_RUN_TIME_MAX.0 / 60_000;
    Ok(Some(format!(
        "There is no user yet. Make the first one within {minutes} minutes, with this link, which is good once:\n  http://{address}/first-run?key={key}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_listens_beyond_this_machine_in_the_clear_by_oversight() {
        let (here, beyond): (SocketAddr, SocketAddr) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        let proxied = ReachArgs { trusted_proxies: vec![network("10.0.0.1").unwrap()], plain_http: false };
        let plain = ReachArgs { plain_http: true, ..ReachArgs::default() };
        assert!(ReachArgs::default().of(beyond).expect_err("it is refused").starts_with("PUN-310: "));
        assert!(!ReachArgs::default().of(here).unwrap().is_beyond && !plain.of(here).unwrap().is_beyond);
        assert!(plain.of(beyond).unwrap().is_beyond && proxied.of(beyond).unwrap().is_beyond);
        assert!(proxied.of(here).unwrap().is_beyond, "the proxy brings others");
        assert!(!ReachArgs::default().of("[::ffff:127.0.0.1]:1".parse().unwrap()).unwrap().is_beyond);
        assert!(network("10.0.0.0/33").is_err() && network("host").is_err());
    }
}

//! Who reaches the API, and the first user where others do.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use punctual_driver::accounts::Accounts;
use punctual_driver::ports::{Clock, StoreError};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::sign_in::access::{Access, FIRST_RUN_TIME_MAX, Reach};

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ReachArgs {
    /// A proxy that speaks TLS for the API and says for whom it asks (X-Forwarded-For, -Proto, -Host), such as 10.0.0.5 or 10.0.0.0/24; may be
    /// given several times
    #[arg(long = "trusted-proxy", value_name = "NETWORK", value_parser = network)]
    trusted_proxies: Vec<IpNet>,
    /// The certificate that the API shows, with its chain, in PEM
    #[arg(long, value_name = "FILE", requires = "api_tls_key")]
    api_tls_certificate: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "api_tls_certificate")]
    api_tls_key: Option<PathBuf>,
    /// Let the API be reached beyond this machine without TLS: passwords and tokens can be read on the way
    #[arg(long)]
    plain_http: bool,
}

impl ReachArgs {
    /// How the API is reached that listens there. Beyond this machine nobody's password goes in the clear by oversight.
    pub(super) fn of(&self, listen: SocketAddr) -> Result<Reach, String> {
        let is_beyond = !listen.ip().to_canonical().is_loopback();
        let is_tls = self.api_tls_certificate.is_some();
        if is_beyond && !is_tls && self.trusted_proxies.is_empty() && !self.plain_http {
            return Err(format!(
                "PUN-310: the API would be reached beyond this machine without TLS, and passwords and tokens read on the way. Use --listen 127.0.0.1:{}; or \
                 give it a certificate with --api-tls-certificate and --api-tls-key; or name a proxy that speaks TLS for it with --trusted-proxy; or \
                 accept it with --plain-http",
                listen.port()
            ));
        }
        // A proxy on this machine brings others to a listener on the loopback.
        Ok(Reach { is_beyond: is_beyond || !self.trusted_proxies.is_empty(), is_tls, proxies: self.trusted_proxies.clone() })
    }

    /// How the API speaks TLS, where it does.
    pub(super) fn tls(&self) -> Result<Option<Arc<ServerConfig>>, String> {
        let (Some(certificate), Some(key)) = (&self.api_tls_certificate, &self.api_tls_key) else { return Ok(None) };
        let read = |file: &Path| std::fs::read(file).map_err(|error| format!("PUN-323: {} can't be read: {error}", file.display()));
        let refused = |file: &Path, what: String| format!("PUN-425: {}: {what}", file.display());
        let pem = read(certificate)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.map_err(|error| refused(certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(refused(certificate, "there is no certificate in it".to_owned()));
        }
        let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| refused(key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = versions.expect("the provider knows them").with_no_client_auth().with_single_cert(chain, private);
        config.map(|config| Some(Arc::new(config))).map_err(|error| refused(certificate, error.to_string()))
    }

    /// What addresses of the API begin with.
    pub(super) fn scheme(&self) -> &'static str {
        if self.api_tls_certificate.is_some() { "https" } else { "http" }
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
    address: &str,
) -> Result<Option<String>, StoreError> {
    if !access.must_sign_in(store).await? || access.has_users(store).await? {
        return Ok(None);
    }
    let key = access.begin_first_run(clock.now().wall);
    let minutes = FIRST_RUN_TIME_MAX.0 / 60_000;
    Ok(Some(format!(
        "There is no user yet. Make the first one within {minutes} minutes, with this link, which is good once:\n  {address}/first-run?key={key}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_listens_beyond_this_machine_in_the_clear_by_oversight() {
        let (here, beyond): (SocketAddr, SocketAddr) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        let proxied = ReachArgs { trusted_proxies: vec![network("10.0.0.1").unwrap()], ..ReachArgs::default() };
        let with_tls = ReachArgs { api_tls_certificate: Some("c".into()), api_tls_key: Some("k".into()), ..ReachArgs::default() };
        let plain = ReachArgs { plain_http: true, ..ReachArgs::default() };
        assert!(ReachArgs::default().of(beyond).expect_err("it is refused").starts_with("PUN-310: "));
        assert!(!ReachArgs::default().of(here).unwrap().is_beyond && !plain.of(here).unwrap().is_beyond);
        assert!(with_tls.of(beyond).is_ok_and(|reach| reach.is_beyond && reach.is_tls) && with_tls.scheme() == "https");
        assert!(with_tls.tls().expect_err("there is no such file").starts_with("PUN-323: ") && proxied.tls().unwrap().is_none());
        assert!(plain.of(beyond).unwrap().is_beyond && proxied.of(beyond).unwrap().is_beyond);
        assert!(proxied.of(here).unwrap().is_beyond, "the proxy brings others");
        assert!(!ReachArgs::default().of("[::ffff:127.0.0.1]:1".parse().unwrap()).unwrap().is_beyond);
        assert!(network("10.0.0.0/33").is_err() && network("host").is_err());
    }
}

//! Certificates.

use punctual_grpc::{ClientTls, LinkState, ServeError, ServerOptions, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::harness::{Dialling, Listening, options};

/// One that signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let root_pem = params.self_signed(&key).expect("a root").pem();
        Authority { issuer: Issuer::new(params, key), root_pem }
    }

    pub(crate) fn server(&self, name: &str) -> ServerTls {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new([name.to_owned()]).expect("a name").signed_by(&key, &self.issuer).expect("signed");
        ServerTls { certificate_pem: certificate.pem().into_bytes(), key_pem: key.serialize_pem().into_bytes() }
    }

    pub(crate) fn client(&self, domain: Option<&str>) -> ClientTls {
        ClientTls { roots_pem: Some(self.root_pem.clone().into_bytes()), domain: domain.map(str::to_owned) }
    }
}

#[tokio::test]
async fn a_certificate_that_is_as_it_should_be() {
    let authority = Authority::new();
    let mut scheduler = Listening::start(ServerOptions { tls: Some(authority.server("127.0.0.1")), ..options("a") }).await;
    let mut worker = Dialling::start(&[scheduler.address.to_string()], |options| options.tls = Some(authority.client(None)));
    let (up, _link) = worker.connected("w1").await;
    let _to_worker = scheduler.welcomed().await;
    assert_eq!(worker.messages(up, 1).await.len(), 1);
    assert_eq!(worker.state().await, (format!("https://{}", scheduler.address), LinkState::Connected));
}

#[tokio::test]
async fn a_certificate_of_another_authority_or_another_name_is_refused() {
    let authority = Authority::new();
    let mut scheduler = Listening::start(ServerOptions { tls: Some(authority.server("scheduler.example")), ..options("a") }).await;
    let seeds = [scheduler.address.to_string()];
    for (tls, word) in
        [(Authority::new().client(Some("scheduler.example")), "invalid peer certificate"), (authority.client(None), "not valid for name")]
    {
        let mut worker = Dialling::start(&seeds, |options| options.tls = Some(tls));
        let reason = worker.reason().await;
        assert!(reason.contains(word), "{reason} has no {word}");
    }
    // Nor does one side without TLS get anywhere.
    let mut worker = Dialling::start(&seeds, |_| {});
    worker.reason().await;
    assert!(scheduler.node.try_recv().is_err());
    let mut worker = Dialling::start(&seeds, |options| options.tls = Some(authority.client(Some("scheduler.example"))));
    worker.connected("w1").await;
}

#[tokio::test]
async fn a_certificate_without_its_key_is_refused_at_the_start() {
    let authority = Authority::new();
    let tls = ServerTls { key_pem: b"no key".to_vec(), ..authority.server("a") };
    let refused = Listening::start(ServerOptions { tls: Some(tls), ..options("a") }).await.shut_down().await;
    assert!(matches!(refused, Err(ServeError::Tls { .. })), "{refused:?}");
}

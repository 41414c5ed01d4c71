//! The provider that people sign in with.

use std::collections::BTreeMap;
use std::path::PathBuf;

use openidconnect::{IssuerUrl, RedirectUrl};

use super::accounts::{GrantArg, grant};
use super::client;
use crate::sign_in::oidc::{CALLBACK, Oidc, OidcConfig};

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct OidcArgs {
    /// The provider of OpenID Connect that people sign in with, such as https://id.example
    #[arg(long, value_name = "URL", requires_all = ["oidc_client_id", "public_url"])]
    oidc_issuer: Option<String>,
    /// What this installation is called there
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    oidc_client_id: Option<String>,
    /// The file with its secret there, where it has one
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    oidc_client_secret_file: Option<PathBuf>,
    /// The claim that is somebody's name for good
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    oidc_name_claim: String,
    /// The claim that lists somebody's groups
    #[arg(long, value_name = "CLAIM", default_value = "groups")]
    oidc_groups_claim: String,
    /// What a group of the provider may: a role, and @GROUP of tasks behind it; may be given several times
    #[arg(long = "oidc-grant", value_name = "GROUP=ROLE[@GROUP]", value_parser = mapping)]
    oidc_grants: Vec<(String, GrantArg)>,
    /// Where browsers reach this server, such as https://punctual.example
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
}

fn mapping(text: &str) -> Result<(String, GrantArg), String> {
    let (group, role) = text.rsplit_once('=').filter(|(group, _)| !group.is_empty()).ok_or("write GROUP=ROLE, or GROUP=ROLE@GROUP")?;
    Ok((group.to_owned(), grant(role)?))
}

impl OidcArgs {
    /// The provider, where there is one.
    pub(super) fn provider(&self) -> Result<Option<Oidc>, String> {
        let (Some(issuer), Some(client_id), Some(public)) = (&self.oidc_issuer, &self.oidc_client_id, &self.public_url) else {
            return Ok(None);
        };
        let refused = |what: String| format!("PUN-423: {what}");
        let issuer = IssuerUrl::new(issuer.clone()).map_err(|error| refused(format!("--oidc-issuer can't be read: {error}")))?;
        let redirect = RedirectUrl::new(format!("{}{CALLBACK}", public.trim_end_matches('/')))
            .map_err(|error| refused(format!("--public-url can't be read: {error}")))?;
        for url in [issuer.url(), redirect.url()] {
            if !client::is_safe(url) {
                return Err(refused(format!(
                    "{} is not https://, and anybody on the way could sign in",
                    url.origin().ascii_serialization()
                )));
            }
        }
        if self.oidc_grants.is_empty() {
            return Err(refused("nobody may do anything: say what groups may with --oidc-grant GROUP=ROLE".to_owned()));
        }
        let client_secret = match &self.oidc_client_secret_file {
            None => None,
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| format!("PUN-323: {} can't be read: {error}", file.display()))?;
                Some(text.trim().to_owned())
            }
        };
        let mut grants: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for (group, grant) in &self.oidc_grants {
            grants.entry(group.clone()).or_default().push(grant.to_grant());
        }
        let http = client::http(issuer.url().scheme() == "https");
        let config = OidcConfig {
            issuer,
            client_id: client_id.clone(),
            client_secret,
            redirect,
            name_claim: self.oidc_name_claim.clone(),
            groups_claim: self.oidc_groups_claim.clone(),
            grants,
        };
        Ok(Some(Oidc::new(config, http)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_asked_over_tls_and_its_groups_may_something() {
        let args = |issuer: &str, public: &str, grants: &[&str]| OidcArgs {
            oidc_issuer: Some(issuer.to_owned()),
            oidc_client_id: Some("punctual".to_owned()),
            public_url: Some(public.to_owned()),
            oidc_name_claim: "sub".to_owned(),
            oidc_groups_claim: "groups".to_owned(),
            oidc_grants: grants.iter().map(|text| mapping(text).unwrap()).collect(),
            ..OidcArgs::default()
        };
        let of = |issuer: &str, public: &str, grants: &[&str]| args(issuer, public, grants).provider().map(|provider| provider.is_some());
        assert_eq!(of("https://id.example", "https://punctual.example/", &["ops=operator", "ops=editor@billing"]), Ok(true));
        assert_eq!(of("http://127.0.0.1:1", "http://localhost:8650", &["ops=operator"]), Ok(true));
        assert_eq!(OidcArgs::default().provider().map(|provider| provider.is_some()), Ok(false));
        for (issuer, public, grants) in [
            ("http://id.example", "https://punctual.example", &["ops=operator"][..]),
            ("https://id.example", "http://punctual.example", &["ops=operator"]),
            ("https://id.example", "https://punctual.example", &[]),
            ("id.example", "https://punctual.example", &["ops=operator"]),
        ] {
            assert!(of(issuer, public, grants).is_err_and(|error| error.starts_with("PUN-423: ")), "{issuer} {public} {grants:?}");
        }
        assert!(mapping("cn=ops,dc=x=viewer").is_ok_and(|(group, _)| group == "cn=ops,dc=x"));
        assert!(mapping("viewer").is_err() && mapping("=viewer").is_err() && mapping("ops=root").is_err());
    }
}

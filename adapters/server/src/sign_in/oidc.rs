//! Signing in with a provider of OpenID Connect: the code flow with PKCE, a state and a nonce.
//!
//! What the flow has to remember is in a cookie of the browser that began it, so that any replica can end it, and no other browser. The
//! provider's names are none of ours: its user `ann` is `oidc:ann` here, a name that no user of ours can have. What they may do is what
//! their groups map to, read anew with each sign-in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreErrorResponseType, CoreGenderClaim, CoreJsonWebKey,
    CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreProviderMetadata, CoreRevocableToken, CoreRevocationErrorResponse,
    CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AdditionalClaims, AuthorizationCode, Client, ClientId, ClientSecret, CsrfToken, EmptyExtraTokenFields, EndpointMaybeSet,
    EndpointNotSet, EndpointSet, HttpRequest, HttpResponse, IdTokenFields, IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier,
    RedirectUrl, Scope, StandardErrorResponse, StandardTokenResponse, TokenResponse,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::secret;
use crate::identity::Grant;

/// Where the provider leads browsers back to.
pub(crate) const CALLBACK: &str = "/sign-in/oidc/callback";
/// Longest wait for the provider.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Largest answer of it, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How long what the provider says of itself, its keys included, is gone by.
const METADATA_TIME_MAX: Duration = Duration::from_secs(600);
/// Longest name that a provider gives somebody, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Signatures that only the provider can make. Not those by a shared secret.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// What is known of the provider beforehand.
#[derive(Clone, Debug)]
pub(crate) struct OidcConfig {
    pub(crate) issuer: IssuerUrl,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<String>,
    /// Where browsers reach this server, with [`CALLBACK`] behind it.
    pub(crate) redirect: RedirectUrl,
    /// The claim that is somebody's name for good.
    pub(crate) name_claim: String,
    /// The claim that lists somebody's groups.
    pub(crate) groups_claim: String,
    /// What a group of the provider may.
    pub(crate) grants: BTreeMap<String, Vec<Grant>>,
}

/// Claims that the standard does not name, as they come.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Claims(serde_json::Map<String, Value>);

impl AdditionalClaims for Claims {}

type Fields = IdTokenFields<Claims, EmptyExtraTokenFields, CoreGenderClaim, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm>;
type OidcClient = Client<
    Claims,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    StandardTokenResponse<Fields, CoreTokenType>,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// What went wrong, for whoever signs in, and for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OidcError {
    #[error("the provider can't be asked: {0}")]
    Unreachable(String),
    #[error("the answer does not belong to a sign-in that this browser has begun; begin again")]
    NotBegun,
    #[error("the provider's answer is not good: {0}")]
    Bad(String),
    #[error("none of your groups at the provider may do anything here")]
    NoRole,
}

/// What a browser remembers between the two halves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    state: String,
    nonce: String,
    verifier: String,
    pub(crate) next: String,
}

impl Pending {
    /// As a cookie has it.
    pub(crate) fn to_text(&self) -> String {
        format!("{}.{}.{}.{}", self.state, self.nonce, self.verifier, super::pages::escaped(&self.next))
    }

    pub(crate) fn from_text(text: &str) -> Option<Pending> {
        let mut parts = text.splitn(4, '.').map(str::to_owned);
        let (state, nonce, verifier, next) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Pending { state, nonce, verifier, next: unescaped(&next)? })
    }
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Who has signed in at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) name: Arc<str>,
    pub(crate) grants: Arc<[Grant]>,
}

/// A provider.
#[derive(Debug)]
pub(crate) struct Oidc {
    config: OidcConfig,
    http: reqwest::Client,
    metadata: tokio::sync::Mutex<Option<(Instant, CoreProviderMetadata)>>,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Http(#[from] reqwest::Error),
    #[error("{0}")]
    Answer(#[from] axum::http::Error),
    #[error("its answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
}

/// Asks the provider something.
async fn ask(http: reqwest::Client, request: HttpRequest) -> Result<HttpResponse, Trouble> {
    let (parts, body) = request.into_parts();
    let asked = http.request(parts.method, parts.uri.to_string()).headers(parts.headers).body(body).timeout(ANSWER_TIME_MAX);
    let mut response = asked.send().await?;
    let mut answer = axum::http::Response::builder().status(response.status());
    for (name, value) in response.headers() {
        answer = answer.header(name, value);
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(Trouble::TooLong);
        }
    }
    Ok(answer.body(bytes)?)
}

impl Oidc {
    pub(crate) fn new(config: OidcConfig, http: reqwest::Client) -> Self {
        Oidc { config, http, metadata: tokio::sync::Mutex::new(None) }
    }

    async fn client(&self) -> Result<OidcClient, OidcError> {
        let mut known = self.metadata.lock().await;
        let metadata = match &*known {
            Some((at, metadata)) if at.elapsed() < METADATA_TIME_MAX => metadata.clone(),
            _ => {
                let http = self.http.clone();
                let ask = move |request| ask(http.clone(), request);
                let found = CoreProviderMetadata::discover_async(self.config.issuer.clone(), &ask).await;
                let found = found.map_err(|error| OidcError::Unreachable(whole(&error)))?;
                known.insert((Instant::now(), found)).1.clone()
            }
        };
        let secret = self.config.client_secret.clone().map(ClientSecret::new);
        let client = Client::from_provider_metadata(metadata, ClientId::new(self.config.client_id.clone()), secret);
        Ok(client.set_redirect_uri(self.config.redirect.clone()))
    }

    /// Where to lead the browser, and what it has to remember.
    pub(crate) async fn begin(&self, next: &str) -> Result<(String, Pending), OidcError> {
        let client = self.client().await?;
        let (state, nonce) = (secret::random(), secret::random());
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let (asked_state, asked_nonce) = (state.clone(), nonce.clone());
        let request = client.authorize_url(
            CoreAuthenticationFlow::AuthorizationCode,
            move || CsrfToken::new(asked_state),
            move || Nonce::new(asked_nonce),
        );
        let scopes = ["profile", "email"].map(|scope| Scope::new(scope.to_owned()));
        let (url, ..) = request.add_scopes(scopes).set_pkce_challenge(challenge).url();
        let pending = Pending { state, nonce, verifier: verifier.secret().clone(), next: next.to_owned() };
        Ok((url.to_string(), pending))
    }

    /// Who it is that comes back.
    pub(crate) async fn end(&self, pending: &Pending, state: &str, code: String) -> Result<Known, OidcError> {
        if !secret::are_equal(&pending.state, state) {
            return Err(OidcError::NotBegun);
        }
        let client = self.client().await?;
        let bad = |error: &dyn std::error::Error| OidcError::Bad(whole(error));
        let request = client.exchange_code(AuthorizationCode::new(code)).map_err(|error| bad(&error))?;
        let http = self.http.clone();
        let ask = move |request| ask(http.clone(), request);
        let answer = request.set_pkce_verifier(PkceCodeVerifier::new(pending.verifier.clone())).request_async(&ask).await;
        let answer = answer.map_err(|error| bad(&error))?;
        let token = answer.id_token().ok_or_else(|| OidcError::Bad("it has no ID token".to_owned()))?;
        let verifier = client.id_token_verifier().set_allowed_algs(ALGORITHMS);
        let claims = match token.claims(&verifier, &Nonce::new(pending.nonce.clone())) {
            Ok(claims) => claims,
            Err(error) => {
                // It may have other keys by now.
                *self.metadata.lock().await = None;
                return Err(bad(&error));
            }
        };
        let claims = serde_json::to_value(claims).map_err(|error| bad(&error))?;
        self.known(&claims)
    }

    fn known(&self, claims: &Value) -> Result<Known, OidcError> {
        let OidcConfig { name_claim, groups_claim, grants, .. } = &self.config;
        let name = claims[name_claim.as_str()].as_str().unwrap_or_default();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(OidcError::Bad(format!("the claim {name_claim:?} is not a name")));
        }
        // An address that the provider has not checked may be anybody's.
        if name_claim == "email" && claims["email_verified"] != Value::Bool(true) {
            return Err(OidcError::Bad("the address is not verified".to_owned()));
        }
        let groups: Vec<&str> = match &claims[groups_claim.as_str()] {
            Value::String(group) => vec![group],
            groups => groups.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
        };
        let granted: Arc<[Grant]> = groups.iter().filter_map(|group| grants.get(*group)).flatten().cloned().collect();
        if granted.is_empty() {
            return Err(OidcError::NoRole);
        }
        Ok(Known { name: format!("oidc:{name}").into(), grants: granted })
    }
}

/// An error with what it came from.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text += &format!(": {deeper}");
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::identity::Role;

    fn oidc(name_claim: &str) -> Oidc {
        let grant = |role, group: Option<&str>| Grant { role, group: group.map(Into::into) };
        let grants = [
            ("ops".to_owned(), vec![grant(Role::Operator, None)]),
            ("billing".to_owned(), vec![grant(Role::Editor, Some("billing")), grant(Role::Viewer, None)]),
        ];
        let config = OidcConfig {
            issuer: IssuerUrl::new("https://id.example".to_owned()).unwrap(),
            client_id: "punctual".to_owned(),
            client_secret: None,
            redirect: RedirectUrl::new("https://punctual.example/sign-in/oidc/callback".to_owned()).unwrap(),
            name_claim: name_claim.to_owned(),
            groups_claim: "groups".to_owned(),
            grants: grants.into(),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        Oidc::new(config, reqwest::Client::builder().tls_backend_preconfigured(tls).build().unwrap())
    }

    #[test]
    fn groups_say_what_somebody_may_and_none_is_nothing() {
        let known = oidc("sub").known(&json!({ "sub": "ann", "groups": ["billing", "others", 5] })).unwrap();
        assert_eq!((&*known.name, known.grants.len()), ("oidc:ann", 2));
        assert_eq!(oidc("sub").known(&json!({ "sub": "ann", "groups": "ops" })).unwrap().grants[0].role, Role::Operator);
        for groups in [json!(null), json!([]), json!(["others"]), json!({ "ops": true })] {
            assert!(matches!(oidc("sub").known(&json!({ "sub": "ann", "groups": groups })), Err(OidcError::NoRole)), "{groups}");
        }
        for name in [json!(null), json!(""), json!(5), json!("a\nb"), json!("x".repeat(201))] {
            assert!(matches!(oidc("sub").known(&json!({ "sub": name, "groups": "ops" })), Err(OidcError::Bad(_))), "{name}");
        }
    }

    #[test]
    fn an_address_counts_where_it_was_verified() {
        let claims = |verified: Value| json!({ "sub": "1", "email": "ann@example.com", "email_verified": verified, "groups": "ops" });
        assert_eq!(&*oidc("email").known(&claims(json!(true))).unwrap().name, "oidc:ann@example.com");
        for not in [json!(false), json!(null), json!("true")] {
            assert!(oidc("email").known(&claims(not)).is_err());
        }
    }

    #[test]
    fn what_a_browser_remembers_comes_back_as_it_was() {
        let of = |text: &str| text.to_owned();
        let pending = Pending { state: of("s"), nonce: of("n"), verifier: of("v-_~"), next: of("/tasks?a=b.c&d=%é") };
        assert_eq!(Pending::from_text(&pending.to_text()), Some(pending.clone()));
        assert!(pending.to_text().is_ascii() && !pending.to_text().contains([';', ' ', ',']));
        for bad in ["", "a.b.c", "a.b.c.%zz", "a.b.c.%ff"] {
            assert_eq!(Pending::from_text(bad), None, "{bad}");
        }
    }
}

//! Signing in with a provider of OpenID Connect, a small one of our own, and what becomes of answers that are not its own, or not for this
//! browser.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use openidconnect::core::{
    CoreEdDsaPrivateSigningKey, CoreGenderClaim, CoreJsonWebKeySet, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm,
};
use openidconnect::{
    AdditionalClaims, Audience, IdToken, IdTokenClaims, IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier, PrivateSigningKey,
    StandardClaims, SubjectIdentifier,
};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Answer, Dev, Folder, escaped, request};

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Groups {
    groups: Vec<String>,
}

impl AdditionalClaims for Groups {}

/// What the provider says of somebody, and how it goes wrong.
#[derive(Clone)]
struct Says {
    groups: &'static [&'static str],
    audience: &'static str,
    nonce: Option<&'static str>,
    lasts_s: i64,
    by_another: bool,
}

const WELL: Says = Says { groups: &["ops"], audience: "punctual", nonce: None, lasts_s: 300, by_another: false };

/// Codes that were given out: their challenge, and the token for them.
type Codes = Arc<Mutex<HashMap<String, (String, String)>>>;

struct Provider {
    issuer: String,
    key: CoreEdDsaPrivateSigningKey,
    codes: Codes,
}

fn key() -> CoreEdDsaPrivateSigningKey {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    CoreEdDsaPrivateSigningKey::from_ed25519_pem(&pair.serialize_pem(), None).unwrap()
}

impl Provider {
    fn start() -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let provider = Provider { issuer: issuer.clone(), key: key(), codes: Codes::default() };
        let keys = serde_json::to_string(&CoreJsonWebKeySet::new(vec![provider.key.as_verification_key()])).unwrap();
        let about = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["EdDSA"],
        });
        let codes = provider.codes.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let (line, body) = read(&mut connection);
                let (status, answer) = match line.split(' ').nth(1).unwrap_or_default() {
                    "/.well-known/openid-configuration" => (200, about.to_string()),
                    "/keys" => (200, keys.clone()),
                    "/token" => token(&codes, &body),
                    _ => (404, "{}".to_owned()),
                };
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}",
                    answer.len()
                );
                let _ = connection.write_all(format!("{head}\r\n\r\n{answer}").as_bytes());
            }
        });
        provider
    }

    /// Somebody signs in there: the code that their browser brings back.
    fn agree(&self, asked: &HashMap<String, String>, says: &Says) -> String {
        let nonce = says.nonce.map_or_else(|| asked["nonce"].clone(), str::to_owned);
        let now = chrono::Utc::now();
        let claims = IdTokenClaims::<Groups, CoreGenderClaim>::new(
            IssuerUrl::new(self.issuer.clone()).unwrap(),
            vec![Audience::new(says.audience.to_owned())],
            now + chrono::Duration::seconds(says.lasts_s),
            now,
            StandardClaims::new(SubjectIdentifier::new("ann".to_owned())),
            Groups { groups: says.groups.iter().map(|group| (*group).to_owned()).collect() },
        );
        let claims = claims.set_nonce(Some(Nonce::new(nonce)));
        let other = key();
        let signing = if says.by_another { &other } else { &self.key };
        let token = IdToken::<Groups, CoreGenderClaim, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm>::new(
            claims,
            signing,
            CoreJwsSigningAlgorithm::EdDsa,
            None,
            None,
        );
        let mut codes = self.codes.lock().unwrap();
        let code = format!("code{}", codes.len());
        codes.insert(code.clone(), (asked["code_challenge"].clone(), token.unwrap().to_string()));
        code
    }
}

fn read(connection: &mut std::net::TcpStream) -> (String, String) {
    let mut reader = BufReader::new(connection);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = text.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (first, String::from_utf8(body).unwrap())
}

/// Hands a token out once, to whoever knows what the challenge was made of.
fn token(codes: &Codes, body: &str) -> (u16, String) {
    let asked = pairs(&format!("http://x/?{body}"));
    // Only the token: a code is good once.
    let found = codes.lock().unwrap().get_mut(&asked["code"]).map(|(challenge, token)| (challenge.clone(), std::mem::take(token)));
    let verifier = PkceCodeVerifier::new(asked["code_verifier"].clone());
    match found {
        Some((challenge, token)) if !token.is_empty() && PkceCodeChallenge::from_code_verifier_sha256(&verifier).as_str() == challenge => {
            (200, json!({ "access_token": "a", "token_type": "Bearer", "id_token": token }).to_string())
        }
        _ => (400, json!({ "error": "invalid_grant" }).to_string()),
    }
}

fn pairs(url: &str) -> HashMap<String, String> {
    Url::parse(url).unwrap().query_pairs().into_owned().collect()
}

fn get(dev: &Dev, path: &str, cookie: &str) -> Answer {
    request(dev.address(), "GET", path, &[("cookie", cookie), ("accept", "text/html")], b"")
}

/// The cookies that an answer sets, as a browser sends them back.
fn cookies(answer: &Answer) -> Vec<String> {
    let set = answer.head.lines().filter_map(|line| line.strip_prefix("set-cookie: "));
    set.map(|cookie| cookie.split(';').next().unwrap().to_owned()).collect()
}

/// Begins a sign-in: what the provider is asked, and the cookie that remembers it.
fn begin(dev: &Dev) -> (HashMap<String, String>, String) {
    let led = get(dev, "/sign-in/oidc?next=/tasks%3Fa%3Db", "");
    assert_eq!(led.status, 303, "{led:?}");
    let location = led.head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    assert!(led.head.contains("HttpOnly; SameSite=Lax"), "{led:?}");
    (pairs(location), cookies(&led).remove(0))
}

fn come_back(dev: &Dev, code: &str, state: &str, cookie: &str) -> Answer {
    get(dev, &format!("/sign-in/oidc/callback?code={}&state={}", escaped(code), escaped(state)), cookie)
}

#[test]
fn whoever_the_provider_knows_signs_in_and_may_what_their_groups_may() {
    let provider = Provider::start();
    let folder = Folder::with("tasks:\n  - {name: bill, group: billing, trigger: manual, command: \"true\"}\n");
    let arguments = [
        ["--oidc-issuer", &provider.issuer],
        ["--oidc-client-id", "punctual"],
        ["--public-url", "http://127.0.0.1:1"],
        ["--oidc-grant", "ops=operator"],
        ["--oidc-grant", "billing=viewer@billing"],
    ];
    let dev = folder.dev_with(&arguments.concat());
    assert_eq!(request(dev.address(), "GET", "/api/v1/tasks", &[], b"").status, 401, "with a provider everybody signs in");
    assert!(get(&dev, "/sign-in", "").body.contains("/sign-in/oidc?next=/"));
    let (asked, remembered) = begin(&dev);
    assert_eq!((&*asked["client_id"], &*asked["response_type"], &*asked["code_challenge_method"]), ("punctual", "code", "S256"));
    assert_eq!(asked["redirect_uri"], "http://127.0.0.1:1/sign-in/oidc/callback");
    assert!(asked["scope"].contains("openid") && asked["state"].len() == 64 && asked["nonce"].len() == 64);
    let code = provider.agree(&asked, &WELL);
    let back = come_back(&dev, &code, &asked["state"], &remembered);
    assert_eq!(back.status, 200, "{back:?}");
    assert!(back.body.contains("content=\"0;url=/tasks?a=b\""), "{back:?}");
    let session = cookies(&back).into_iter().find(|cookie| cookie.starts_with("punctual=")).unwrap();
    let me: Value = get(&dev, "/api/v1/me", &session).json();
    assert_eq!((&me["name"], &me["grants"]), (&json!("oidc:ann"), &json!([{ "role": "operator", "group": null }])));
    // They have no password here, whatever is tried.
    for password in ["", "correct horse battery"] {
        let body = json!({ "name": "oidc:ann", "password": password }).to_string();
        let tried = request(dev.address(), "POST", "/api/v1/sign-in", &[("content-type", "application/json")], body.as_bytes());
        tried.check_refusal(401, "PUN-404");
    }
    // In other groups by the next time.
    let (asked, remembered) = begin(&dev);
    let code = provider.agree(&asked, &Says { groups: &["billing", "others"], ..WELL });
    assert_eq!(come_back(&dev, &code, &asked["state"], &remembered).status, 200);
    let me = get(&dev, "/api/v1/me", &session).json();
    assert_eq!(me["grants"], json!([{ "role": "viewer", "group": "billing" }]));
    dev.stop();
}

#[test]
fn answers_that_are_not_the_provider_s_or_not_for_this_browser_sign_nobody_in() {
    let provider = Provider::start();
    let folder = Folder::with("tasks:\n  - {name: bill, trigger: manual, command: \"true\"}\n");
    let arguments = [
        ["--oidc-issuer", &provider.issuer],
        ["--oidc-client-id", "punctual"],
        ["--public-url", "http://127.0.0.1:1"],
        ["--oidc-grant", "ops=operator"],
    ];
    let dev = folder.dev_with(&arguments.concat());
    let is_refused = |what: &str, answer: Answer, status: u16| {
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(!cookies(&answer).iter().any(|cookie| cookie.starts_with("punctual=")), "{what}: {answer:?}");
    };
    for (what, says, status) in [
        ("another nonce: the token of another sign-in", Says { nonce: Some("replayed"), ..WELL }, 400),
        ("a token for somebody else", Says { audience: "another", ..WELL }, 400),
        ("a token that has expired", Says { lasts_s: -300, ..WELL }, 400),
        ("a token that somebody else has signed", Says { by_another: true, ..WELL }, 400),
        ("groups that may nothing", Says { groups: &["others"], ..WELL }, 403),
    ] {
        let (asked, remembered) = begin(&dev);
        let code = provider.agree(&asked, &says);
        is_refused(what, come_back(&dev, &code, &asked["state"], &remembered), status);
    }
    let (asked, remembered) = begin(&dev);
    let (others, _) = begin(&dev);
    let code = provider.agree(&asked, &WELL);
    is_refused("another browser", come_back(&dev, &code, &asked["state"], ""), 400);
    is_refused("another state", come_back(&dev, &code, &others["state"], &remembered), 400);
    is_refused("a code of another sign-in", come_back(&dev, &provider.agree(&others, &WELL), &asked["state"], &remembered), 400);
    is_refused("no code", get(&dev, &format!("/sign-in/oidc/callback?error=access_denied&state={}", asked["state"]), &remembered), 400);
    assert_eq!(come_back(&dev, &code, &asked["state"], &remembered).status, 200);
    is_refused("the same once more", come_back(&dev, &code, &asked["state"], &remembered), 400);
    dev.stop();
}

//! Signing in: the first user, sessions, tokens, roles; and what forged, replayed and guessed requests come to.

use std::io::Write;
use std::process::{Command, Stdio};

use punctual_testbed::MariaDb;
use serde_json::{Value, json};

use crate::support::{Answer, Dev, Folder, eventually, request};

const FILE: &str = r#"
tasks:
  - {name: bill, group: billing, trigger: manual, command: "echo paid"}
  - {name: mail, group: mailing, trigger: manual, command: "echo sent"}
  - {name: plain, trigger: manual, command: "true"}
"#;
const PASSWORD: &str = "correct horse battery";

fn call(dev: &Dev, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let headers: Vec<_> =
        [("content-type", "application/json"), ("user-agent", "e2e/1")].into_iter().chain(headers.iter().copied()).collect();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    request(dev.address(), method, path, &headers, body.as_bytes())
}

fn form(dev: &Dev, path: &str, headers: &[(&str, &str)], fields: &str) -> Answer {
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let headers: Vec<_> = [kind].into_iter().chain(headers.iter().copied()).collect();
    request(dev.address(), "POST", path, &headers, fields.as_bytes())
}

/// A header of an answer.
fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.head.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// What the answer sets as a cookie, as a request sends it back.
#[track_caller]
fn cookie(answer: &Answer) -> String {
    let set = header(answer, "set-cookie").unwrap_or_else(|| panic!("no cookie: {answer:?}"));
    set.split(';').next().unwrap().to_owned()
}

/// Adds a user, as whoever shows these headers.
#[track_caller]
fn add(dev: &Dev, headers: &[(&str, &str)], name: &str, grants: Value) {
    let added = call(dev, "POST", "/api/v1/users", headers, &json!({ "name": name, "password": PASSWORD, "grants": grants }));
    assert_eq!(added.status, 201, "{added:?}");
}

/// A session: its cookie, and what requests that write have to show.
struct Session {
    cookie: String,
    csrf: String,
}

impl Session {
    #[track_caller]
    fn begin(dev: &Dev, name: &str, headers: &[(&str, &str)]) -> Session {
        let answer = call(dev, "POST", "/api/v1/sign-in", headers, &json!({ "name": name, "password": PASSWORD }));
        assert_eq!(answer.status, 200, "{answer:?}");
        Session { cookie: cookie(&answer), csrf: answer.json()["csrf"].as_str().unwrap().to_owned() }
    }

    fn headers(&self) -> [(&str, &str); 2] {
        [("cookie", &self.cookie), ("x-csrf-token", &self.csrf)]
    }

    fn is_open(&self, dev: &Dev) -> bool {
        call(dev, "GET", "/api/v1/me", &[("cookie", &self.cookie)], &Value::Null).status == 200
    }
}

/// An admin's dev, with their session.
fn with_root(folder: &Folder) -> (Dev, Session) {
    let dev = folder.dev();
    add(&dev, &[], "root", json!([{ "role": "admin" }]));
    let session = Session::begin(&dev, "root", &[]);
    (dev, session)
}

fn token(dev: &Dev, root: &Session, owner: &str, expires_in_s: u64) -> (u64, String) {
    let body = json!({ "name": "e2e", "owner": owner, "expires_in_s": expires_in_s });
    let made = call(dev, "POST", "/api/v1/tokens", &root.headers(), &body);
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    (made["id"].as_u64().unwrap(), format!("Bearer {}", made["token"].as_str().unwrap()))
}

/// The link is printed at the start, and is good once.
#[test]
fn the_first_user_is_made_by_a_link_that_is_good_once() {
    let folder = Folder::with(FILE);
    // Whoever a proxy brings is no longer this machine.
    let proxied = ["--trusted-proxy", "127.0.0.1"];
    let dev = folder.dev_with(&proxied);
    dev.says("/first-run?key=");
    let told = dev.told();
    let key = told.split("/first-run?key=").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let link = format!("/first-run?key={key}");
    call(&dev, "GET", "/api/v1/tasks", &[], &Value::Null).check_refusal(401, "PUN-403");
    call(&dev, "POST", "/api/v1/users", &[], &json!({ "name": "root" })).check_refusal(401, "PUN-403");
    let led = call(&dev, "GET", "/tasks?a=b", &[("accept", "text/html")], &Value::Null);
    assert_eq!((led.status, header(&led, "location")), (303, Some("/sign-in?next=/tasks%3Fa%3Db")));
    let page = call(&dev, "GET", &link, &[], &Value::Null);
    assert_eq!((page.status, header(&page, "cache-control")), (200, Some("no-store")));
    assert!(page.body.contains(&key) && header(&page, "content-security-policy").is_some_and(|policy| !policy.contains("unsafe")));
    assert_eq!(call(&dev, "GET", "/first-run?key=guessed", &[], &Value::Null).status, 410);
    let fields = |name: &str, password: &str| format!("key={key}&name={name}&password={}", password.replace(' ', "+"));
    assert_eq!(form(&dev, "/first-run", &[], &fields("root", "short")).status, 400, "the link is still good");
    assert_eq!(form(&dev, "/first-run", &[("origin", "https://evil.example")], &fields("root", PASSWORD)).status, 403);
    let secure = [("x-forwarded-proto", "https"), ("x-forwarded-for", "198.51.100.7")];
    let made = form(&dev, "/first-run", &secure, &fields("root", PASSWORD));
    assert_eq!((made.status, header(&made, "location")), (303, Some("/")), "{made:?}");
    let set = header(&made, "set-cookie").unwrap().to_owned();
    assert!(set.starts_with("__Host-punctual=") && set.contains("; Secure") && set.contains("; HttpOnly; SameSite=Strict"), "{set}");
    for again in [form(&dev, "/first-run", &secure, &fields("second", PASSWORD)), call(&dev, "GET", &link, &[], &Value::Null)] {
        assert_eq!(again.status, 410, "{again:?}");
    }
    let session = cookie(&made);
    let over_tls = [("cookie", &*session), ("x-forwarded-proto", "https")];
    let me = call(&dev, "GET", "/api/v1/me", &over_tls, &Value::Null).json();
    assert_eq!((&me["name"], &me["grants"]), (&json!("root"), &json!([{ "role": "admin", "group": null }])));
    call(&dev, "GET", "/api/v1/me", &[("cookie", &session)], &Value::Null).check_refusal(401, "PUN-403");
    let audit = call(&dev, "GET", "/api/v1/audit?limit=2", &over_tls, &Value::Null).json();
    let actions: Vec<_> = audit["audit"].as_array().unwrap().iter().map(|entry| (&entry["action"], &entry["by"])).collect();
    assert_eq!(actions, [(&json!("sign_in"), &json!("root")), (&json!("add_user"), &json!("root"))]);
    assert!(audit["audit"][0]["from"].as_str().is_some_and(|from| from.contains("198.51.100.7")), "{audit}");
    dev.stop();
    // There is a user: no link any more, and the old one is none.
    let dev = folder.dev_with(&proxied);
    assert_eq!(call(&dev, "GET", &link, &[], &Value::Null).status, 410);
    assert!(!dev.told().contains("first-run"), "{}", dev.told());
    dev.stop();
}

#[test]
fn forged_and_replayed_requests_are_refused() {
    let folder = Folder::with(FILE);
    let (dev, root) = with_root(&folder);
    let pause = |headers: &[(&str, &str)]| call(&dev, "POST", "/api/v1/tasks/plain/pause", headers, &json!({}));
    let cookie_only = [("cookie", &*root.cookie)];
    pause(&cookie_only).check_refusal(403, "PUN-407");
    pause(&[("cookie", &root.cookie), ("x-csrf-token", "")]).check_refusal(403, "PUN-407");
    // What another session shows is good for that one only.
    let other = Session::begin(&dev, "root", &[]);
    pause(&[("cookie", &root.cookie), ("x-csrf-token", &other.csrf)]).check_refusal(403, "PUN-407");
    // A form of another site has no field `csrf`, or a wrong one.
    for fields in ["", "csrf=", "reason=x", &format!("csrf={}", other.csrf)] {
        form(&dev, "/sign-out", &cookie_only, fields).check_refusal(403, "PUN-407");
    }
    for foreign in
        [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site")]
    {
        let [cookie, csrf] = root.headers();
        pause(&[cookie, csrf, foreign]).check_refusal(403, "PUN-308");
        let sign_in = json!({ "name": "root", "password": PASSWORD });
        call(&dev, "POST", "/api/v1/sign-in", &[foreign], &sign_in).check_refusal(403, "PUN-308");
    }
    assert_eq!(call(&dev, "GET", "/api/v1/pauses", &cookie_only, &Value::Null).json()["pauses"], json!([]));
    assert_eq!(pause(&root.headers()).status, 202);
    let own = format!("http://{}", dev.address());
    let [cookie_of, csrf] = root.headers();
    assert_eq!(call(&dev, "POST", "/api/v1/tasks/plain/resume", &[cookie_of, csrf, ("origin", &own)], &json!({})).status, 202);
    // Signed out by the form of a page; what is sent again afterwards is nobody's.
    let out = form(&dev, "/sign-out", &cookie_only, &format!("csrf={}", root.csrf));
    assert_eq!((out.status, header(&out, "location")), (303, Some("/sign-in")), "{out:?}");
    assert!(header(&out, "set-cookie").is_some_and(|set| set.contains("Max-Age=0")));
    pause(&root.headers()).check_refusal(401, "PUN-403");
    assert!(!root.is_open(&dev) && other.is_open(&dev));
    dev.stop();
}

#[test]
fn a_session_has_a_new_id_and_ends_with_the_password() {
    let folder = Folder::with(FILE);
    let (dev, root) = with_root(&folder);
    // An id that somebody else has chosen, or that was there before, is not taken over.
    let planted =
        call(&dev, "POST", "/api/v1/sign-in", &[("cookie", "punctual=0123456789abcdef")], &json!({ "name": "root", "password": PASSWORD }));
    assert!(!cookie(&planted).contains("0123456789abcdef"));
    let again = Session::begin(&dev, "root", &[("cookie", &root.cookie)]);
    assert!(again.cookie != root.cookie && again.is_open(&dev) && !root.is_open(&dev), "the one before it has ended");
    let others = [Session::begin(&dev, "root", &[]), Session::begin(&dev, "root", &[])];
    let set = |headers: &[(&str, &str)], body: Value| call(&dev, "PUT", "/api/v1/users/root/password", headers, &body);
    set(&again.headers(), json!({ "password": "another long password" })).check_refusal(401, "PUN-404");
    set(&again.headers(), json!({ "password": "short", "current": PASSWORD })).check_refusal(400, "PUN-410");
    let answer = set(&again.headers(), json!({ "password": "another long password", "current": PASSWORD }));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(again.is_open(&dev) && others.iter().all(|other| !other.is_open(&dev)));
    let old = call(&dev, "POST", "/api/v1/sign-in", &[], &json!({ "name": "root", "password": PASSWORD }));
    old.check_refusal(401, "PUN-404");
    dev.stop();
}

/// By name and by address, with the same answer whatever was wrong.
#[test]
fn who_guesses_is_slowed_down_and_learns_nothing() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    add(&dev, &[], "root", json!([{ "role": "admin" }]));
    dev.stop();
    let dev = folder.dev_with(&["--trusted-proxy", "127.0.0.1"]);
    let try_as = |name: &str, password: &str, address: &str| {
        call(&dev, "POST", "/api/v1/sign-in", &[("x-forwarded-for", address)], &json!({ "name": name, "password": password }))
    };
    let wrong = try_as("root", "wrong password", "198.51.100.1");
    let unknown = try_as("nobody", "wrong password", "198.51.100.1");
    wrong.check_refusal(401, "PUN-404");
    assert_eq!((unknown.status, &unknown.body), (wrong.status, &wrong.body));
    for number in 2..=10 {
        try_as("root", "wrong password", &format!("198.51.100.{number}")).check_refusal(401, "PUN-404");
    }
    let slowed = try_as("root", PASSWORD, "198.51.100.99");
    slowed.check_refusal(429, "PUN-405");
    assert!(
        header(&slowed, "retry-after").and_then(|wait| wait.parse::<u64>().ok()).is_some_and(|wait| (1..=15).contains(&wait)),
        "{slowed:?}"
    );
    // A name that nobody has is slowed down as well, and others are not.
    let tries = (0..12).map(|_| try_as("nobody", "x", "203.0.113.1").status).collect::<Vec<_>>();
    assert_eq!((tries[0], tries[11]), (401, 429), "{tries:?}");
    try_as("somebody-else", "x", "203.0.113.2").check_refusal(401, "PUN-404");
    let from_one: Vec<_> = (0..60).map(|number| try_as(&format!("user{number}"), "x", "203.0.113.3").status).collect();
    assert!(from_one[..30].iter().all(|status| *status == 401) && from_one[59] == 429, "{from_one:?}");
    dev.stop();
}

#[test]
fn roles_hold_in_the_api_and_in_the_cli_and_the_audit_says_who() {
    let folder = Folder::with(FILE);
    let (dev, root) = with_root(&folder);
    add(&dev, &root.headers(), "ann", json!([{ "role": "operator", "group": "billing" }]));
    add(&dev, &root.headers(), "vic", json!([{ "role": "viewer", "group": "mailing" }]));
    let ((ann_id, ann), (_, vic)) = (token(&dev, &root, "ann", 600), token(&dev, &root, "vic", 600));
    let as_ann = |method: &str, path: &str, body: Value| call(&dev, method, path, &[("authorization", &ann)], &body);
    let as_vic = |method: &str, path: &str, body: Value| call(&dev, method, path, &[("authorization", &vic)], &body);
    let fired = as_ann("POST", "/api/v1/tasks/bill/trigger", json!({ "by": "somebody else" }));
    assert_eq!(fired.status, 202, "{fired:?}");
    let bill = eventually("it ran", || {
        let page = as_ann("GET", "/api/v1/instances?state=succeeded", Value::Null).json();
        page["instances"][0]["id"].as_str().map(str::to_owned)
    });
    let [cookie_of, csrf] = root.headers();
    let fired = call(&dev, "POST", "/api/v1/tasks/mail/trigger", &[cookie_of, csrf], &json!({}));
    assert_eq!(fired.status, 202);
    let mail = eventually("it ran", || {
        let page = as_vic("GET", "/api/v1/instances?state=succeeded", Value::Null).json();
        page["instances"][0]["id"].as_str().map(str::to_owned)
    });
    for (path, status) in [("", 200), ("/logs", 200)] {
        assert_eq!(as_ann("GET", &format!("/api/v1/instances/{bill}{path}"), Value::Null).status, status);
        as_vic("GET", &format!("/api/v1/instances/{bill}{path}"), Value::Null).check_refusal(404, "PUN-304");
    }
    for act in ["cancel", "kill", "skip", "rerun"] {
        as_vic("POST", &format!("/api/v1/instances/{mail}/{act}"), json!({})).check_refusal(403, "PUN-406");
        as_ann("POST", &format!("/api/v1/instances/{mail}/{act}"), json!({})).check_refusal(404, "PUN-304");
    }
    assert_eq!(as_ann("POST", &format!("/api/v1/instances/{bill}/rerun"), json!({})).status, 202);
    let names = |answer: Answer, list: &str, field: &str| {
        let mut names: Vec<_> = answer.json()[list].as_array().unwrap().iter().map(|row| row[field].as_str().unwrap().to_owned()).collect();
        names.dedup();
        names
    };
    assert_eq!(names(as_ann("GET", "/api/v1/tasks", Value::Null), "tasks", "name"), ["bill"]);
    assert_eq!(names(as_ann("GET", "/api/v1/instances", Value::Null), "instances", "task"), ["bill"]);
    assert_eq!(names(as_vic("GET", "/api/v1/instances", Value::Null), "instances", "task"), ["mail"]);
    let audit = as_ann("GET", "/api/v1/audit?task=bill", Value::Null).json();
    let trigger = audit["audit"].as_array().unwrap().iter().find(|entry| entry["action"] == "trigger").unwrap();
    assert_eq!((&trigger["by"], &trigger["from"]), (&json!("ann"), &json!(format!("e2e/1, 127.0.0.1, token {ann_id}"))));
    // The same by the CLI.
    let cli = |arguments: &[&str], bearer: &str| {
        let token = bearer.strip_prefix("Bearer ").unwrap();
        dev.cli(&[arguments, &["--token", token]].concat())
    };
    assert!(cli(&["tasks"], &ann).stdout.contains("bill"));
    for (arguments, code) in [(&["trigger", "mail"][..], "PUN-303"), (&["pause", "--all"], "PUN-406"), (&["users", "list"], "PUN-406")] {
        let refused = cli(arguments, &ann);
        assert!(refused.code == Some(1) && refused.stderr.starts_with(code), "{arguments:?}: {}", refused.stderr);
    }
    let applied = cli(&["apply", folder.path("tasks.yaml").to_str().unwrap()], &ann);
    assert!(applied.stderr.starts_with("PUN-406"), "{}", applied.stderr);
    assert!(dev.cli(&["tasks"]).stderr.starts_with("PUN-403"));
    dev.stop();
}

/// Fire times to come, events, pages, what a document may name; and a stream that was opened with rights ends soon.
#[test]
fn what_is_of_another_group_is_in_no_list_stream_or_page() {
    let folder = Folder::with(
        r#"
tasks:
  - {name: bills, group: billing, trigger: {fixed_rate: 1s}, command: "true"}
  - {name: mails, group: mailing, trigger: {fixed_rate: 1s}, command: "true"}
"#,
    );
    let (dev, root) = with_root(&folder);
    add(&dev, &root.headers(), "ed", json!([{ "role": "editor", "group": "billing" }]));
    let (_, ed) = token(&dev, &root, "ed", 600);
    add(&dev, &root.headers(), "quiet", json!([{ "role": "viewer", "group": "nothing fires here" }]));
    let (_, quiet) = token(&dev, &root, "quiet", 600);
    let get = |path: &str| call(&dev, "GET", path, &[("authorization", &ed)], &Value::Null);
    let put = |name: &str, document: Value| call(&dev, "PUT", &format!("/api/v1/tasks/{name}"), &[("authorization", &ed)], &document);
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| get("/api/v1/events").body);
        let changes = scope.spawn(|| get("/api/v1/events?kinds=change").body);
        let unheard = scope.spawn(|| call(&dev, "GET", "/api/v1/events?kinds=change", &[("authorization", &quiet)], &Value::Null).body);
        eventually("both have fired", || {
            let all = call(&dev, "GET", "/api/v1/instances", &[("cookie", &root.cookie)], &Value::Null).body;
            (all.contains("bills") && all.contains("mails")).then_some(())
        });
        for task in ["bills", "mails"] {
            let fired = call(&dev, "GET", &format!("/api/v1/instances?task={task}"), &root.headers(), &Value::Null).json();
            let range = json!({ "from": fired["instances"][0]["fire_time"], "to": "2100-01-01T00:00:00Z", "again": true });
            let asked = call(&dev, "POST", &format!("/api/v1/tasks/{task}/backfills"), &root.headers(), &range);
            assert_eq!(asked.status, 202, "{asked:?}");
        }
        let paths =
            ["/api/v1/coming", "/api/v1/instances", "/api/v1/backfills", "/tasks", "/instances", "/backfills", "/", "/audit", "/calendar"];
        for path in paths {
            let answer = get(path);
            assert_eq!(answer.status, 200, "{path}");
            assert!(answer.body.contains("bills") && !answer.body.contains("mails"), "{path}: {}", answer.body);
        }
        assert_eq!((get("/workers").status, get("/tasks/mails").status, get("/audit?task=mails").status), (403, 404, 404));
        let manual = |more: Value| {
            let mut document = json!({ "trigger": "manual" });
            document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            document
        };
        let shell = json!({ "shell": "true" });
        put("x", manual(json!({ "name": "x", "group": "mailing", "command": shell }))).check_refusal(403, "PUN-406");
        put("x", manual(json!({ "name": "x", "command": shell }))).check_refusal(403, "PUN-406");
        put("mails", manual(json!({ "name": "mails", "group": "billing", "command": shell }))).check_refusal(403, "PUN-445");
        for ties in [json!({ "after": [{ "task": "mails" }], "command": shell }), json!({ "nodes": [{ "name": "n", "task": "mails" }] })] {
            let mut document = manual(json!({ "name": "x", "group": "billing" }));
            document.as_object_mut().unwrap().extend(ties.as_object().unwrap().clone());
            put("x", document).check_refusal(404, "PUN-303");
        }
        let own = put("x", manual(json!({ "name": "x", "group": "billing", "command": shell })));
        assert_eq!(own.status, 200, "{own:?}");
        assert!(changes.join().unwrap().contains("event: change"));
        let unheard = unheard.join().unwrap();
        assert!(unheard.contains("event: scope") && !unheard.contains("event: change"), "that others change is not told: {unheard}");
        let heard = heard.join().unwrap();
        assert!(heard.contains("\"task\":\"bills\"") && !heard.contains("mails"), "{heard}");
    });
    dev.stop();
}

/// The answer under a key is for whoever had it, with the same token; and nobody is refused for what they could not do before.
#[test]
fn a_key_is_its_callers_own() {
    let folder = Folder::with(FILE);
    let (dev, root) = with_root(&folder);
    add(&dev, &root.headers(), "ann", json!([{ "role": "operator", "group": "billing" }]));
    add(&dev, &root.headers(), "vic", json!([{ "role": "operator", "group": "mailing" }]));
    let [(_, ann), (_, again), (_, vic)] = ["ann", "ann", "vic"].map(|name| token(&dev, &root, name, 600));
    let pause =
        |bearer: &str| call(&dev, "POST", "/api/v1/tasks/bill/pause", &[("authorization", bearer), ("idempotency-key", "k")], &json!({}));
    let is_replayed = |answer: &Answer| header(answer, "idempotency-replayed").is_some();
    let first = pause(&ann);
    assert!(first.status < 300 && !is_replayed(&first), "{first:?}");
    assert!(is_replayed(&pause(&ann)));
    let by_other_token = pause(&again);
    assert!(by_other_token.status < 300 && !is_replayed(&by_other_token), "{by_other_token:?}");
    pause(&vic).check_refusal(404, "PUN-303");
    let grants = json!({ "grants": [{ "role": "operator", "group": "billing" }] });
    assert_eq!(call(&dev, "PATCH", "/api/v1/users/vic", &root.headers(), &grants).status, 200);
    let (_, vic) = token(&dev, &root, "vic", 600);
    assert!(pause(&vic).status < 300);
    dev.stop();
}

#[test]
fn a_token_that_has_expired_or_was_revoked_opens_nothing() {
    let folder = Folder::with(FILE);
    let (dev, root) = with_root(&folder);
    let ask = |bearer: &str| call(&dev, "GET", "/api/v1/me", &[("authorization", bearer)], &Value::Null);
    let (_, short) = token(&dev, &root, "root", 1);
    eventually("it has expired", || (ask(&short).status == 401).then_some(()));
    ask(&short).check_refusal(401, "PUN-408");
    let (id, bearer) = token(&dev, &root, "root", 600);
    assert_eq!(ask(&bearer).status, 200);
    let listed = call(&dev, "GET", "/api/v1/tokens", &[("authorization", &bearer)], &Value::Null);
    assert!(!listed.body.contains("pun_") && listed.json()["tokens"][0]["id"] == id, "{listed:?}");
    let revoked = call(&dev, "DELETE", &format!("/api/v1/tokens/{id}"), &root.headers(), &json!({}));
    assert_eq!(revoked.status, 200, "{revoked:?}");
    ask(&bearer).check_refusal(401, "PUN-408");
    call(&dev, "DELETE", &format!("/api/v1/tokens/{id}"), &root.headers(), &json!({})).check_refusal(404, "PUN-417");
    // A cookie does not make a bad token good.
    let both = call(&dev, "GET", "/api/v1/me", &[("authorization", &bearer), ("cookie", &root.cookie)], &Value::Null);
    both.check_refusal(401, "PUN-408");
    for bad in ["Bearer", "Bearer ", "Basic cm9vdDp4", "Bearer pun_", &format!("Bearer {}", "x".repeat(5_000))] {
        ask(bad).check_refusal(401, "PUN-408");
    }
    // Neither secret is in the database, nor the password.
    dev.stop();
    let bytes = std::fs::read(folder.path("punctual.db")).unwrap();
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("root") && !holds(bearer.trim_start_matches("Bearer ")) && !holds(PASSWORD));
}

/// Users, tokens and contexts with the CLI alone.
#[test]
fn the_cli_adds_users_makes_tokens_and_remembers_clusters() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let home = folder.path("home");
    let api = format!("http://{}", dev.address());
    let punctual = |arguments: &[&str], input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(arguments).env("XDG_CONFIG_HOME", &home).env_remove("PUNCTUAL_API").env_remove("PUNCTUAL_TOKEN");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let password = format!("{PASSWORD}\n");
    let first = punctual(&["users", "add", "root", "--grant", "viewer", "--password-stdin", "--api", &api], &password);
    assert!(first.2.starts_with("PUN-414"), "{first:?}");
    let first = punctual(&["users", "add", "root", "--grant", "admin", "--password-stdin", "--api", &api], &password);
    assert_eq!((first.0, first.1.trim()), (Some(0), "root is added: admin"), "{first:?}");
    let made = punctual(&["tokens", "create", "cli", "--user", "root", "--expires-in", "1d", "--api", &api], &password);
    assert!(made.0 == Some(0) && made.1.starts_with("pun_"), "{made:?}");
    let added = punctual(&["context", "add", "here", "--api", &api, "--token-stdin"], &made.1);
    assert_eq!(added.0, Some(0), "{added:?}");
    let listed = punctual(&["context", "list"], "");
    assert!(listed.1.contains("here") && listed.1.contains(&api) && !listed.1.contains("pun_"), "{listed:?}");
    let added = punctual(&["users", "add", "ann", "--grant", "operator@billing"], "");
    assert!(added.0 == Some(0) && added.1.contains("ann is added: operator@billing\npassword   "), "{added:?}");
    let granted = punctual(&["users", "grant", "ann", "viewer", "editor@mailing"], "");
    assert_eq!(granted.1.trim(), "ann may from now on: viewer, editor@mailing", "{granted:?}");
    assert_eq!(punctual(&["users", "disable", "ann"], "").1.trim(), "ann is disabled");
    let users = punctual(&["users", "list"], "");
    assert!(users.1.contains("viewer, editor@mailing") && users.1.contains("disabled"), "{users:?}");
    assert!(punctual(&["users", "disable", "root"], "").2.starts_with("PUN-413"));
    let changed = punctual(&["users", "passwd", "root"], &format!("{PASSWORD}\nanother long password\n"));
    assert_eq!(changed.0, Some(0), "{changed:?}");
    assert_eq!(punctual(&["users", "sign-out", "ann"], "").1.trim(), "ann is signed out everywhere");
    assert!(punctual(&["tokens", "create", "x", "--user", "root"], &password).2.starts_with("PUN-404"));
    let reset = punctual(&["users", "passwd", "ann", "--reset"], "a third long password\n");
    assert_eq!(reset.0, Some(0), "{reset:?}");
    let tokens = punctual(&["tokens", "list", "--json"], "");
    let id = serde_json::from_str::<Value>(&tokens.1).unwrap()["tokens"][0]["id"].to_string();
    assert_eq!(punctual(&["tokens", "revoke", &id], "").1.trim(), format!("token {id} is revoked"));
    assert!(punctual(&["tasks"], "").2.starts_with("PUN-408"));
    assert!(punctual(&["context", "use", "there"], "").2.starts_with("PUN-420"));
    assert!(punctual(&["tasks", "--api", "http://192.0.2.1:1", "--token", "pun_x"], "").2.starts_with("PUN-421"));
    assert_eq!(punctual(&["context", "remove", "here"], "").0, Some(0));
    dev.stop();
}

/// Replicas share users and sessions: of their links one makes the first user, however many are used at once.
#[test]
fn replicas_have_one_first_user_and_share_sessions() {
    let database = MariaDb::start().unwrap();
    let url = database.create("cluster").unwrap();
    let folder = Folder::new();
    let replica = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(["server", "--name", name, "--listen", "127.0.0.1:0", "--listen-workers", "127.0.0.1:0"]);
        command.args(["--trusted-proxy", "127.0.0.1"]).current_dir(folder.path("")).env("PUNCTUAL_DATABASE", &url);
        let process = Dev::spawn(command);
        process.says("/first-run?key=");
        process
    };
    let (a, b) = (replica("a"), replica("b"));
    let key = |dev: &Dev| dev.told().split("/first-run?key=").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let make = |dev: &Dev, name: &str| {
        let fields = format!("key={}&name={name}&password={}", key(dev), PASSWORD.replace(' ', "+"));
        form(dev, "/first-run", &[], &fields)
    };
    let answers = std::thread::scope(|scope| {
        let both = [(&a, "ann"), (&b, "bob")].map(|(dev, name)| scope.spawn(move || make(dev, name)));
        both.map(|answer| answer.join().unwrap())
    });
    let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 410], "{answers:?}");
    let session = answers.iter().find(|answer| answer.status == 303).map(cookie).unwrap();
    for dev in [&a, &b] {
        assert_eq!(make(dev, "carl").status, 410);
        let me = call(dev, "GET", "/api/v1/me", &[("cookie", &session)], &Value::Null);
        assert_eq!(me.status, 200, "{me:?}");
        call(dev, "GET", "/api/v1/tasks", &[], &Value::Null).check_refusal(401, "PUN-403");
    }
    let csrf = call(&a, "GET", "/api/v1/me", &[("cookie", &session)], &Value::Null).json()["csrf"].as_str().unwrap().to_owned();
    let out = call(&a, "POST", "/api/v1/sign-out", &[("cookie", &session), ("x-csrf-token", &csrf)], &json!({}));
    assert_eq!(out.json(), json!({ "signed_out": true }));
    call(&b, "GET", "/api/v1/me", &[("cookie", &session)], &Value::Null).check_refusal(401, "PUN-403");
    a.stop();
    b.stop();
}

/// The API's own TLS: the CLI trusts the roots that it is told of, and who speaks in the clear, or says nothing, holds nobody up.
#[test]
fn the_api_speaks_tls_with_a_certificate_of_its_own() {
    let folder = Folder::with(FILE);
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    folder.write("certificate.pem", &made.cert.pem());
    folder.write("key.pem", &made.signing_key.serialize_pem());
    folder.write("other.pem", &rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap().cert.pem());
    let refused = folder.refused(&["--api-tls-certificate", "key.pem", "--api-tls-key", "key.pem"]);
    assert!(refused.starts_with("PUN-425: key.pem"), "{refused}");
    let dev = Dev::spawn(folder.dev_command(&["--api-tls-certificate", "certificate.pem", "--api-tls-key", "key.pem"]));
    dev.says("API on https://127.0.0.1:");
    let api = format!("https://{}", dev.told().split("API on https://").nth(1).unwrap().split(';').next().unwrap());
    let address = api.strip_prefix("https://").unwrap();
    let silent: Vec<_> = (0..8).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let plain = crate::support::try_request(address.parse().unwrap(), "GET", "/health", &[], b"");
    assert!(plain.is_err(), "{plain:?}");
    let cli = |roots: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        crate::support::run(command.args(["tasks", "--api", &api]).env("SSL_CERT_FILE", folder.path(roots)).env_remove("SSL_CERT_DIR"))
    };
    let listed = cli("certificate.pem");
    assert!(listed.code == Some(0) && listed.stdout.contains("bill"), "{}", listed.stderr);
    assert!(cli("other.pem").stderr.starts_with("PUN-401"), "another root");
    drop(silent);
    dev.stop();
}

/// Whatever name is asked for.
#[test]
fn the_page_that_checks_a_task_says_nothing_of_others() {
    let folder = Folder::with(FILE);
    let (dev, root) = with_root(&folder);
    add(&dev, &root.headers(), "ed", json!([{ "role": "editor", "group": "mailing" }]));
    let ed = Session::begin(&dev, "ed", &[]);
    let post = |path: &str, name: &str, task: &str| {
        let document = format!("name%3A+{task}%0Agroup%3A+mailing%0Atrigger%3A+manual%0Acommand%3A+x");
        form(&dev, path, &ed.headers(), &format!("csrf={}&name={name}&document={document}", ed.csrf))
    };
    let check = |name: &str| {
        let page = post("/tasks/check", name, "x");
        assert_eq!(page.status, 200, "{page:?}");
        page.body.replace(name, "NAME")
    };
    assert_eq!(check("bill"), check("nothing"), "its source would show");
    assert_ne!(check("mail"), check("nothing"), "that of their own shows");
    let taken = post("/tasks", "", "bill");
    assert!(taken.status == 422 && taken.body.contains("PUN-445") && !taken.body.contains("billing"), "{taken:?}");
    dev.stop();
}

/// What another group's task has made fire is seen, and that task is not.
#[test]
fn what_a_task_that_is_not_seen_has_caused_does_not_name_it() {
    let folder = Folder::with(
        "
tasks:
  - {name: bill, group: billing, trigger: manual, command: 'true'}
  - {name: mail, group: mailing, trigger: manual, after: bill, retry: {max_attempts: 2, first: 20ms, cap: 20ms}, command: 'false'}
",
    );
    let (dev, root) = with_root(&folder);
    add(&dev, &root.headers(), "ann", json!([{ "role": "operator", "group": "mailing" }]));
    let ann = Session::begin(&dev, "ann", &[]);
    let mut heard = crate::api::Listening::with(dev.address(), "?kinds=instance", &ann.headers()).unwrap();
    heard.until(|event| event.kind == "scope");
    assert_eq!(call(&dev, "POST", "/api/v1/tasks/bill/trigger", &root.headers(), &json!({})).status, 202);
    let get = |session: &Session, path: &str| call(&dev, "GET", path, &session.headers(), &Value::Null);
    let listed = eventually("it fires after", || {
        let listed = get(&root, "/api/v1/instances?task=mail").json();
        listed["instances"][0]["id"].as_str().map(str::to_owned)
    });
    let seen = get(&root, &format!("/api/v1/instances/{listed}")).json();
    assert!(seen["caused_by"].is_string() && seen["transitions"].to_string().contains("bill"), "{seen:#}");
    let cause = seen["caused_by"].as_str().unwrap();
    let hides = |what: &str, answer: &Answer, expected: u16| {
        assert_eq!(answer.status, expected, "{what}: {}", answer.body);
        assert!(!answer.body.contains("bill") && !answer.body.contains(cause), "{what}: {}", answer.body);
    };
    let of = format!("/api/v1/instances/{listed}");
    let paths = [of.clone(), format!("{of}/explain"), "/api/v1/instances?task=mail".to_owned(), format!("/instances/{listed}")];
    for path in paths.iter().map(String::as_str).chain(["/api/v1/dead-letters", "/dead-letters"]) {
        hides(path, &get(&ann, path), 200);
    }
    assert!(get(&root, &format!("{of}/explain")).body.contains(cause), "who sees all is told");
    eventually("it has failed", || (get(&ann, &of).json()["state"] == "dead_lettered").then_some(()));
    let letters = get(&ann, "/api/v1/dead-letters");
    assert!(letters.body.contains(&listed), "{}", letters.body);
    hides("dead letters", &letters, 200);
    let first = heard.until(|event| event.kind == "instance").data;
    assert_eq!((&first["id"], &first["caused_by"], &first["detail"]), (&json!(listed), &Value::Null, &Value::Null), "{first}");
    for what in ["cancel", "kill"] {
        hides(what, &call(&dev, "POST", &format!("{of}/{what}"), &ann.headers(), &json!({})), 409);
    }
    dev.stop();
}

/// Of what their own workflows call in other groups they learn that it has ended, and no names behind their own either.
#[test]
fn what_is_called_in_another_group_does_not_tell_of_that() {
    let folder = Folder::with(
        "
tasks:
  - {name: a-secret, group: billing, trigger: manual, command: 'true'}
  - {name: called, group: billing, trigger: manual, command: sleep 60}
  - {name: flow, group: mailing, trigger: manual, nodes: [{name: n, task: called}]}
  - {name: z-secret, group: billing, trigger: manual, command: 'true'}
",
    );
    let (dev, root) = with_root(&folder);
    add(&dev, &root.headers(), "ann", json!([{ "role": "operator", "group": "mailing" }]));
    let ann = Session::begin(&dev, "ann", &[]);
    let get = |session: &Session, path: &str| call(&dev, "GET", path, &session.headers(), &Value::Null);
    for query in ["limit=1", "limit=1&prefix=a", "limit=1&q=secret", "limit=1&group=billing", "limit=1&after=flow"] {
        let page = get(&ann, &format!("/api/v1/tasks?{query}"));
        assert!(page.status == 200 && !page.body.contains("secret"), "{query}: {}", page.body);
    }
    assert_eq!(get(&ann, "/api/v1/tasks").json()["tasks"].as_array().unwrap().len(), 1);
    assert!(!get(&ann, "/tasks").body.contains("secret"));
    let run = call(&dev, "POST", "/api/v1/tasks/flow/trigger", &ann.headers(), &json!({ "payload": {} })).json();
    let run = run["instance"]["id"].as_str().unwrap().to_owned();
    let called = eventually("it is called", || {
        let listed = get(&root, "/api/v1/instances?task=called&state=running").json();
        listed["instances"][0]["id"].as_str().map(str::to_owned)
    });
    let why = json!({ "reason": "SECRET" });
    assert!(call(&dev, "POST", &format!("/api/v1/instances/{called}/cancel"), &root.headers(), &why).status < 300);
    eventually("it has ended", || get(&ann, &format!("/api/v1/instances/{run}")).json()["ended_at"].is_string().then_some(()));
    let node = get(&root, &format!("/api/v1/instances/{run}/nodes")).json()["nodes"][0]["instance"].as_str().unwrap().to_owned();
    let whole = get(&root, &format!("/api/v1/instances/{node}")).body;
    assert!(whole.contains("SECRET"), "who sees all is told: {whole}");
    for path in [format!("/api/v1/instances/{run}/nodes"), format!("/api/v1/instances/{run}"), format!("/api/v1/instances/{node}")] {
        let answer = get(&ann, &path);
        assert!(answer.status == 200 && !answer.body.contains("SECRET"), "{path}: {}", answer.body);
    }
    for path in [format!("/instances/{run}"), format!("/instances/{node}"), format!("/api/v1/instances/{node}/explain")] {
        let answer = get(&ann, &path);
        assert!(answer.status == 200 && !answer.body.contains("SECRET"), "{path}: {}", answer.body);
    }
    dev.stop();
}

//! Who may do what, route by route.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use punctual_core::batch::{Batch, CommitOutcome, InstanceUpdate, LeaseCheck};
use punctual_core::ids::{Fence, InboxId, InstanceId, ReplicaId, Version, WorkerId, WorkerLife};
use punctual_core::inbox::Request as Asked;
use punctual_core::instance::{Cause, InstanceRow, Origin, Part, State, Transition, WorkerRef};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::accounts::{Accounts, NewToken, UserChange};
use punctual_driver::clock::SystemClock;
use punctual_driver::logs::{
    AGAIN_TIME_MAX, Answer, Day, FoundLine, Level, LogBatch, LogLine, LogPage, LogQuery, LogStore, TraceId, WAIT_TIME_MAX,
};
use punctual_driver::ports::{Actor, Catalog, Clock, LeaseAnswer, Store};
use punctual_signals::LocalSignals;
use punctual_spec::zones::Zones;
use punctual_store::SqliteStore;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::identity::Grant;
use crate::sign_in::access::Reach;
use crate::sign_in::secret;

/// What a route takes: nothing, to have signed in, or a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    SignedIn,
    A(Role),
}

use Takes::{A, Nothing, SignedIn};

/// Every route, and what it takes of whoever has no group. A route that is not here fails the test below: say here what it takes, too.
const TABLE: &[(&str, &str, Takes)] = &[
    ("GET", "/health", Nothing),
    ("GET", "/openapi.json", Nothing),
    ("GET", "/sign-in", Nothing),
    ("GET", "/sign-in/oidc", Nothing),
    ("GET", "/sign-in/oidc/callback", Nothing),
    ("POST", "/sign-in", Nothing),
    ("POST", "/sign-out", SignedIn),
    ("GET", "/first-run", Nothing),
    ("POST", "/first-run", Nothing),
    ("GET", "/assets/sign-in.css", Nothing),
    ("POST", "/api/v1/sign-in", Nothing),
    ("POST", "/api/v1/sign-out", SignedIn),
    ("GET", "/api/v1/me", SignedIn),
    ("GET", "/api/v1/tokens", SignedIn),
    ("POST", "/api/v1/tokens", SignedIn),
    ("DELETE", "/api/v1/tokens/{token}", SignedIn),
    ("GET", "/api/v1/status", A(Role::Viewer)),
    ("GET", "/api/v1/cluster", A(Role::Viewer)),
    ("GET", "/api/v1/tasks", A(Role::Viewer)),
    ("GET", "/api/v1/tasks/{name}", A(Role::Viewer)),
    ("GET", "/api/v1/sources/{source}", A(Role::Viewer)),
    ("GET", "/api/v1/workers", A(Role::Viewer)),
    ("GET", "/api/v1/doctor", A(Role::Viewer)),
    ("GET", "/api/v1/events", A(Role::Viewer)),
    ("GET", "/api/v1/coming", A(Role::Viewer)),
    ("GET", "/api/v1/tasks/{name}/versions", A(Role::Viewer)),
    ("GET", "/api/v1/tasks/{name}/versions/{version}", A(Role::Viewer)),
    ("GET", "/api/v1/tasks/{name}/diff", A(Role::Viewer)),
    ("GET", "/api/v1/tasks/{name}/next-fires", A(Role::Viewer)),
    ("GET", "/api/v1/tasks/{name}/days", A(Role::Viewer)),
    ("GET", "/api/v1/instances/{id}/nodes", A(Role::Viewer)),
    ("PUT", "/api/v1/tasks/{name}", A(Role::Editor)),
    ("DELETE", "/api/v1/tasks/{name}", A(Role::Editor)),
    ("GET", "/api/v1/tasks/{name}/occurrences", A(Role::Viewer)),
    ("GET", "/api/v1/tasks/{name}/backfills", A(Role::Viewer)),
    ("GET", "/api/v1/backfills", A(Role::Viewer)),
    ("GET", "/api/v1/pauses", A(Role::Viewer)),
    ("GET", "/api/v1/calendars", A(Role::Viewer)),
    ("GET", "/api/v1/dead-letters", A(Role::Viewer)),
    ("GET", "/api/v1/audit", A(Role::Viewer)),
    ("GET", "/api/v1/instances", A(Role::Viewer)),
    ("GET", "/api/v1/instances/{id}", A(Role::Viewer)),
    ("GET", "/api/v1/instances/{id}/logs", A(Role::Viewer)),
    ("GET", "/api/v1/instances/{id}/logs/stream", A(Role::Viewer)),
    ("GET", "/api/v1/instances/{id}/explain", A(Role::Viewer)),
    ("GET", "/api/v1/tasks/{name}/explain", A(Role::Viewer)),
    ("POST", "/api/v1/tasks/{name}/backfills", A(Role::Operator)),
    ("POST", "/api/v1/backfills/{id}/cancel", A(Role::Operator)),
    ("POST", "/api/v1/tasks/{name}/trigger", A(Role::Operator)),
    ("DELETE", "/api/v1/tasks/{name}/triggers/{key}", A(Role::Operator)),
    ("PATCH", "/api/v1/tasks/{name}/triggers/{key}", A(Role::Operator)),
    ("POST", "/api/v1/tasks/{name}/pause", A(Role::Operator)),
    ("POST", "/api/v1/tasks/{name}/resume", A(Role::Operator)),
    ("POST", "/api/v1/groups/{group}/pause", A(Role::Operator)),
    ("POST", "/api/v1/groups/{group}/resume", A(Role::Operator)),
    ("POST", "/api/v1/pause", A(Role::Operator)),
    ("POST", "/api/v1/workers/{worker}/drain", A(Role::Operator)),
    ("POST", "/api/v1/workers/{worker}/undrain", A(Role::Operator)),
    ("POST", "/api/v1/resume", A(Role::Operator)),
    ("POST", "/api/v1/dead-letters/replay", A(Role::Operator)),
    ("POST", "/api/v1/dead-letters/discard", A(Role::Operator)),
    ("POST", "/api/v1/instances/{id}/cancel", A(Role::Operator)),
    ("POST", "/api/v1/instances/{id}/kill", A(Role::Operator)),
    ("POST", "/api/v1/instances/{id}/skip", A(Role::Operator)),
    ("POST", "/api/v1/instances/{id}/rerun", A(Role::Operator)),
    ("POST", "/api/v1/instances/{id}/nodes/{node}", A(Role::Operator)),
    ("PUT", "/api/v1/sources/{source}", A(Role::Editor)),
    ("GET", "/api/v1/users", A(Role::Admin)),
    ("POST", "/api/v1/users", A(Role::Admin)),
    ("GET", "/api/v1/users/{user}", A(Role::Admin)),
    ("PATCH", "/api/v1/users/{user}", A(Role::Admin)),
    ("DELETE", "/api/v1/users/{user}", A(Role::Admin)),
    // Pages.
    ("GET", "/", A(Role::Viewer)),
    ("GET", "/tasks", A(Role::Viewer)),
    ("POST", "/tasks", A(Role::Editor)),
    ("GET", "/tasks/new", A(Role::Editor)),
    ("POST", "/tasks/check", A(Role::Editor)),
    ("GET", "/tasks/{name}", A(Role::Viewer)),
    ("GET", "/tasks/{name}/edit", A(Role::Editor)),
    ("POST", "/tasks/{name}/edit", A(Role::Editor)),
    ("POST", "/tasks/{name}/remove", A(Role::Editor)),
    ("GET", "/tasks/{name}/changes", A(Role::Viewer)),
    ("POST", "/tasks/{name}/trigger", A(Role::Operator)),
    ("POST", "/tasks/{name}/pause", A(Role::Operator)),
    ("POST", "/tasks/{name}/resume", A(Role::Operator)),
    ("POST", "/tasks/{name}/backfill", A(Role::Operator)),
    ("GET", "/instances", A(Role::Viewer)),
    ("GET", "/instances/{id}", A(Role::Viewer)),
    ("GET", "/instances/{id}/why", A(Role::Viewer)),
    ("GET", "/tasks/{name}/why", A(Role::Viewer)),
    ("POST", "/instances/{id}/cancel", A(Role::Operator)),
    ("POST", "/instances/{id}/kill", A(Role::Operator)),
    ("POST", "/instances/{id}/skip", A(Role::Operator)),
    ("POST", "/instances/{id}/rerun", A(Role::Operator)),
    ("POST", "/instances/{id}/nodes/{node}", A(Role::Operator)),
    ("GET", "/dead-letters", A(Role::Viewer)),
    ("POST", "/dead-letters/replay", A(Role::Operator)),
    ("POST", "/dead-letters/discard", A(Role::Operator)),
    ("GET", "/backfills", A(Role::Viewer)),
    ("POST", "/backfills/{id}/cancel", A(Role::Operator)),
    ("GET", "/pauses", A(Role::Viewer)),
    ("POST", "/pauses/set", A(Role::Operator)),
    ("GET", "/audit", A(Role::Viewer)),
    ("GET", "/workers", A(Role::Viewer)),
    ("GET", "/replicas", A(Role::Viewer)),
    ("GET", "/calendar", A(Role::Viewer)),
    ("GET", "/settings", SignedIn),
    ("GET", "/errors/{code}", SignedIn),
    ("GET", "/users", A(Role::Admin)),
    ("POST", "/users", A(Role::Admin)),
    ("GET", "/users/{user}", A(Role::Admin)),
    ("POST", "/users/{user}", A(Role::Admin)),
    ("GET", "/tokens", SignedIn),
    ("POST", "/tokens", SignedIn),
    ("POST", "/tokens/{token}/revoke", SignedIn),
    ("POST", "/settings/password", SignedIn),
    ("POST", "/settings/sign-out", SignedIn),
    ("POST", "/preferences", SignedIn),
    ("GET", "/assets/{name}", Nothing),
    // Of somebody else; one's own is another matter.
    ("PUT", "/api/v1/users/{user}/password", A(Role::Admin)),
    ("GET", "/api/v1/users/{user}/sessions", A(Role::Admin)),
    ("DELETE", "/api/v1/users/{user}/sessions", A(Role::Admin)),
];

const PARAMS: [(&str, &str); 9] = [
    ("{version}", "1"),
    ("{name}", "nothing"),
    ("{group}", "nothing"),
    ("{key}", "k"),
    ("{node}", "n"),
    ("{user}", "nobody"),
    ("{token}", "999"),
    ("{source}", "s"),
    ("{code}", "PUN-406"),
];

/// An address of the route where nothing is.
fn nowhere(path: &str) -> String {
    let id = if path.contains("backfills") { "999" } else { "1-999" };
    PARAMS.iter().fold(path.replace("{id}", id), |path, (param, value)| path.replace(param, value))
}

const TASKS: &str = "
tasks:
  - {name: in-a, group: a, trigger: manual, command: x}
  - {name: in-b, group: b, trigger: manual, command: x}
  - {name: in-none, trigger: manual, command: x}
";

struct World {
    api: Api<SqliteStore, SystemClock>,
    router: Router,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new(reach: Reach) -> World {
        let folder = tempfile::tempdir().unwrap();
        let zones = Arc::new(Zones::load());
        let store = Arc::new(crate::open::store(&folder.path().join("punctual.db"), &zones).unwrap());
        let file = folder.path().join("tasks.yaml");
        std::fs::write(&file, TASKS).unwrap();
        let file = punctual_spec::file::read_file(&file, &zones).ok().unwrap();
        let documents = file.tasks.iter().map(|task| crate::open::document(&task.spec, &zones).unwrap()).collect();
        let clock = Arc::new(SystemClock::new());
        let applied = store.apply("file".into(), "test".into(), documents, false, clock.now().wall).await.unwrap();
        assert!(applied.refused.is_empty());
        // No scheduler answers.
        let (scheduler, _) = mpsc::channel(1);
        let signals = Arc::new(LocalSignals::new(scheduler.clone()));
        let (_, trouble) = watch::channel(None);
        let access = Arc::new(Access::new(reach, None));
        let (applied, events, partitions) = (Applied::default(), Events::new(1), Store::partitions(&*store));
        let lines = Arc::new(punctual_store::SqliteLogs::beside(folder.path().join("punctual.db")));
        let logs = Logs::start(lines, clock.clone(), 1, Arc::new(|_| {}));
        let checkups = one_checkup();
        let api = Api {
            store,
            clock,
            scheduler,
            signals,
            zones,
            applied,
            events,
            partitions,
            trouble,
            access,
            pulse: Arc::default(),
            logs,
            checkups,
        };
        World { router: router(api.clone()), api, _folder: folder }
    }

    /// A new user with these grants, and a token of theirs.
    async fn token(&self, name: &str, grants: &[(Role, Option<&str>)]) -> String {
        let grants: Arc<[Grant]> = grants.iter().map(|(role, group)| Grant { role: *role, group: group.map(Into::into) }).collect();
        let (by, now) = (Actor::from("test"), self.api.clock.now().wall);
        let add = UserChange::Add { password: "none".into(), grants: grants.clone(), as_first: false };
        self.api.store.change_user(name.into(), add, by.clone(), now).await.unwrap();
        let token = secret::token();
        let digest = secret::digest(&token).unwrap();
        let new = NewToken { name: "test".into(), owner: name.into(), digest, grants, lasts: Millis::from_secs(60) };
        self.api.store.make_token(new, by, now).await.unwrap();
        token
    }

    async fn ask(&self, method: &str, path: &str, token: Option<&str>, body: &Value) -> (StatusCode, Value) {
        self.ask_with(method, path, token, body, &[]).await
    }

    async fn ask_with(&self, method: &str, path: &str, token: Option<&str>, body: &Value, headers: &[(&str, &str)]) -> (StatusCode, Value) {
        let mut request =
            Request::builder().method(method).uri(path).header("host", "127.0.0.1").header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if method == "GET" { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status();
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        // A stream has no end.
        if response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream") {
            return (status, Value::Null);
        }
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future)
}

/// Whoever asks while another checkup is under way is told so.
#[test]
fn checkups_come_one_at_a_time() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        let token = world.token("ann", &[(Role::Viewer, None)]).await;
        let ask = async |path: &str| world.ask("GET", path, Some(&token), &Value::Null).await;
        let turn = world.api.checkups.clone().try_acquire_owned().unwrap();
        for path in ["/api/v1/doctor", "/api/v1/doctor?thorough=true"] {
            let (status, answer) = ask(path).await;
            assert_eq!((status, &answer["code"]), (StatusCode::CONFLICT, &json!("PUN-455")), "{path}");
        }
        drop(turn);
        for _ in 0..2 {
            let (status, answer) = ask("/api/v1/doctor?thorough=true").await;
            assert_eq!(status, StatusCode::OK, "{answer}");
        }
    });
}

/// All routes, all roles, and nobody.
#[test]
fn every_route_lets_in_who_may_and_nobody_else() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        let (_, _, mut rules) = described(world.api.clone());
        rules.extend(console::routes(world.api.clone(), Router::new()).1);
        let registered: BTreeMap<_, _> = rules.iter().map(|rule| ((rule.method.as_str(), rule.path), rule.needs)).collect();
        let table: BTreeMap<_, _> = TABLE.iter().map(|(method, path, takes)| ((*method, *path), *takes)).collect();
        assert_eq!(registered.keys().collect::<Vec<_>>(), table.keys().collect::<Vec<_>>());
        let mut tokens = Vec::new();
        for role in Role::ALL {
            tokens.push((role, world.token(role.name(), &[(role, None)]).await));
        }
        for ((method, path), takes) in &table {
            let address = nowhere(path);
            let (status, answer) = world.ask(method, &address, None, &json!({})).await;
            let is_refused = status == StatusCode::UNAUTHORIZED && answer["code"] == "PUN-403";
            assert_eq!(is_refused, *takes != Nothing, "nobody, {method} {path}: {status} {answer}");
            for (role, token) in &tokens {
                let (status, answer) = world.ask(method, &address, Some(token), &json!({})).await;
                let may = match takes {
                    Nothing | SignedIn => true,
                    A(least) => role >= least,
                };
                let is_told = answer["code"] == "PUN-406" || answer.as_str().is_some_and(|page| page.contains("PUN-406"));
                let is_refused = status == StatusCode::FORBIDDEN && is_told;
                assert_eq!(is_refused, !may, "{role:?}, {method} {path}: {status} {answer}");
                assert!(may || status == StatusCode::FORBIDDEN, "{role:?}, {method} {path}: {status} {answer}");
            }
        }
        // What is nowhere tells nobody anything.
        assert_eq!(world.ask("GET", "/api/v1/nothing", None, &json!({})).await.0, StatusCode::UNAUTHORIZED);
        assert_eq!(world.ask("GET", "/api/v1/nothing", Some(&tokens[0].1), &json!({})).await.0, StatusCode::NOT_FOUND);
    });
}

/// Of another group somebody sees nothing; where they only read, they do no more.
#[test]
fn a_role_in_a_group_is_good_for_its_tasks_only() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        world.token("root", &[(Role::Admin, None)]).await;
        let ann = world.token("ann", &[(Role::Operator, Some("a")), (Role::Viewer, Some("b"))]).await;
        // She edits nowhere, and is told the same of all tasks.
        let of_tasks = |takes: Takes, path: &str| path.contains("/tasks/{name}") && takes != A(Role::Editor);
        for (method, path, takes) in TABLE.iter().filter(|(_, path, takes)| of_tasks(*takes, path)) {
            for (task, is_seen, acts) in [("in-a", true, true), ("in-b", true, false), ("in-none", false, false), ("nothing", false, false)]
            {
                if acts && *method != "GET" {
                    // It would be done; see the end-to-end tests.
                    continue;
                }
                let address = nowhere(&path.replace("{name}", task));
                let (status, answer) = world.ask(method, &address, Some(&ann), &json!({})).await;
                let expected = match (is_seen, *takes) {
                    _ if !path.starts_with("/api/") => {
                        let expected = match (is_seen, *takes) {
                            (false, _) => StatusCode::NOT_FOUND,
                            (true, A(Role::Viewer)) => StatusCode::OK,
                            (true, _) => StatusCode::FORBIDDEN,
                        };
                        assert_eq!(status, expected, "{method} {address}: {answer}");
                        continue;
                    }
                    (false, _) => (StatusCode::NOT_FOUND, json!("PUN-303")),
                    (true, A(Role::Viewer)) => (StatusCode::OK, Value::Null),
                    (true, _) => (StatusCode::FORBIDDEN, json!("PUN-406")),
                };
                assert_eq!((status, answer["code"].clone()), expected, "{method} {address}: {answer}");
            }
        }
        let (_, listed) = world.ask("GET", "/api/v1/tasks", Some(&ann), &json!({})).await;
        let names = |listed: &Value| listed["tasks"].as_array().unwrap().iter().map(|task| task["name"].clone()).collect::<Vec<_>>();
        assert_eq!((names(&listed), &listed["next"]), (vec![json!("in-a"), json!("in-b")], &Value::Null));
        let (_, page) = world.ask("GET", "/api/v1/tasks?limit=1&after=in-a", Some(&ann), &json!({})).await;
        assert_eq!((names(&page), &page["next"]), (vec![json!("in-b")], &json!("in-b")));
        let (_, audit) = world.ask("GET", "/api/v1/audit", Some(&ann), &json!({})).await;
        let tasks: Vec<_> = audit["audit"].as_array().unwrap().iter().map(|audit| audit["task"].clone()).collect();
        assert_eq!(tasks, [json!("in-b"), json!("in-a")], "neither tasks of others nor users");
        for path in ["/api/v1/audit?task=in-none", "/api/v1/instances?task=in-none", "/api/v1/dead-letters?task=in-none"] {
            let (status, answer) = world.ask("GET", path, Some(&ann), &json!({})).await;
            assert_eq!((status, &answer["code"]), (StatusCode::NOT_FOUND, &json!("PUN-303")), "{path}");
        }
        for (path, status) in [("/api/v1/groups/b/pause", 403), ("/api/v1/groups/c/pause", 404), ("/api/v1/pause", 403)] {
            assert_eq!(world.ask("POST", path, Some(&ann), &json!({})).await.0, status, "{path}");
        }
        for (task, status) in [("in-b", 403), ("in-none", 404)] {
            let body = json!({ "task": task, "reason": "x" });
            assert_eq!(world.ask("POST", "/api/v1/dead-letters/discard", Some(&ann), &body).await.0, status, "{task}");
        }
    });
}

/// By the group that a task has, and by the one that it would get; what is removed counts, and what is only fired after.
#[test]
fn an_editor_of_a_group_edits_its_tasks_only() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        world.token("root", &[(Role::Admin, None)]).await;
        let ed = world.token("ed", &[(Role::Editor, Some("a"))]).await;
        let task = |name: &str, group: Option<&str>, after: Option<&str>| {
            let mut task = json!({ "name": name, "trigger": "manual", "command": "y" });
            if let Some(group) = group {
                task["group"] = json!(group);
            }
            if let Some(after) = after {
                task["after"] = json!([{ "task": after }]);
            }
            let text = json!({ "tasks": [task] }).to_string();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("task.yaml");
            std::fs::write(&path, text).unwrap();
            let file = punctual_spec::file::read_file(&path, &world.api.zones).unwrap_or_else(|problems| panic!("{problems}"));
            serde_json::from_str::<Value>(&file.tasks[0].spec.to_json()).unwrap()
        };
        let apply = async |source: &str, documents: Vec<Value>| {
            let body = json!({ "documents": documents });
            let (status, answer) = world.ask("PUT", &format!("/api/v1/sources/{source}"), Some(&ed), &body).await;
            (status.as_u16(), answer)
        };
        let own = apply("mine", vec![task("new", Some("a"), None)]).await;
        assert_eq!((own.0, &own.1["created"]), (200, &json!(["new"])), "{}", own.1);
        for (what, source, documents, code) in [
            ("a task of another group", "mine", vec![task("new", Some("a"), None), task("other", Some("b"), None)], "PUN-406"),
            ("a task without a group", "mine", vec![task("other", None, None)], "PUN-406"),
            ("out of the group", "mine", vec![task("new", Some("b"), None)], "PUN-406"),
            ("somebody else's into the group", "mine", vec![task("new", Some("a"), None), task("in-b", Some("a"), None)], "PUN-445"),
        ] {
            let (status, answer) = apply(source, documents).await;
            assert_eq!((status, &answer["code"]), (403, &json!(code)), "{what}: {answer}");
            let said = answer["detail"].to_string();
            assert!(code != "PUN-445" || !["in-b", "in-none", "\"b\""].iter().any(|name| said.contains(name)), "{what}: {said}");
        }
        // A file of the group alone is no removal of what others have in the same source, unless that is asked for.
        let (status, answer) = apply("file", vec![task("in-a", Some("a"), None)]).await;
        assert_eq!(
            (status, &answer["left"], &answer["changed"]),
            (200, &json!([]), &json!(["in-a"])),
            "of others nothing is told: {answer}"
        );
        let removing = json!({ "documents": [task("in-a", Some("a"), None)], "remove": true });
        let (status, answer) = world.ask("PUT", "/api/v1/sources/file", Some(&ed), &removing).await;
        assert_eq!((status.as_u16(), &answer["code"]), (403, &json!("PUN-450")), "{answer}");
        assert!(!answer["detail"].as_str().unwrap().contains("in-"), "{answer}");
        let removing = json!({ "documents": [], "remove": true });
        let (_, answer) = world.ask("PUT", "/api/v1/sources/mine", Some(&ed), &removing).await;
        assert_eq!(answer["removed"], json!(["new"]), "their own: {answer}");
        assert_eq!(apply("mine", vec![task("new", Some("a"), None)]).await.0, 200);
        let (status, answer) = apply("mine", vec![task("new", Some("a"), Some("in-b"))]).await;
        assert_eq!((status, &answer["code"]), (404, &json!("PUN-303")), "it would tell of a task that they don't see: {answer}");
        let (status, _) = apply("mine", vec![task("new", Some("a"), Some("in-a"))]).await;
        assert_eq!(status, 200);
        let names: Vec<_> = world.api.store.tasks(None, 10).await.unwrap().iter().map(|view| view.name.to_string()).collect();
        assert_eq!(names, ["in-a", "in-b", "in-none", "new"]);
    });
}

/// What was looked at is what is removed: a task of another group that joins the source in between stays.
#[test]
fn a_removal_is_good_for_the_source_as_it_was_looked_at() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        let root = world.token("root", &[(Role::Admin, None)]).await;
        let task = |name: &str, group: &str| json!({ "name": name, "group": group, "trigger": "manual", "command": { "shell": "x" } });
        let joins = async |name: &str, group: &str| {
            let (status, said) =
                world.ask("PUT", "/api/v1/sources/shared", Some(&root), &json!({ "documents": [task(name, group)] })).await;
            assert_eq!(status.as_u16(), 200, "{said}");
        };
        joins("own", "a").await;
        let grants = vec![Grant { role: Role::Editor, group: Some("a".into()) }];
        let ed = crate::identity::Identity { name: "ed".into(), grants: grants.into() };
        let (source, now): (Arc<str>, _) = ("shared".into(), SystemClock::new().now().wall);
        let how = punctual_driver::ports::Applying { expected: None, remove: true, take_over: false, dry_run: false };
        let how = sources::may_apply(&world.api, &ed, &source, how, &[]).await.unwrap();
        joins("others", "b").await;
        let applied = world.api.store.apply_to(source.clone(), how, Actor::default(), Vec::new(), now).await.unwrap();
        assert!(applied.is_err(), "the source is another now");
        assert!(
            sources::may_apply(&world.api, &ed, &source, punctual_driver::ports::Applying { expected: None, ..how }, &[]).await.is_err()
        );
    });
}

/// What is of others is not named where something of theirs hangs together with it; and what they don't see answers as what is not there, but
/// that its name is taken.
#[test]
fn an_editor_of_a_group_learns_nothing_of_other_tasks() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        let root = world.token("root", &[(Role::Admin, None)]).await;
        let ed = world.token("ed", &[(Role::Editor, Some("a"))]).await;
        let task = |name: &str, group: &str, more: Value| {
            let mut task = json!({ "name": name, "group": group, "trigger": "manual", "command": { "shell": "y" } });
            task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            task
        };
        let put = async |token: &str, task: Value| {
            let address = format!("/api/v1/tasks/{}?take_over=true", task["name"].as_str().unwrap());
            world.ask("PUT", &address, Some(token), &task).await
        };
        let (status, said) = put(&root, task("hidden", "b", json!({ "after": [{ "task": "in-a" }] }))).await;
        assert_eq!(status.as_u16(), 200, "{said}");
        assert_eq!(put(&root, task("secret", "b", json!({}))).await.0.as_u16(), 200);
        // One answer for every name that is taken.
        let mut said = Vec::new();
        for name in ["hidden", "secret", "in-b"] {
            let (status, answer) = put(&ed, task(name, "a", json!({}))).await;
            assert_eq!((status.as_u16(), &answer["code"]), (403, &json!("PUN-445")), "{answer}");
            said.push(answer);
        }
        said.dedup();
        assert_eq!(said.len(), 1);
        for path in ["/api/v1/tasks/secret", "/api/v1/tasks/nothing"] {
            let (status, answer) = world.ask("DELETE", path, Some(&ed), &json!({})).await;
            assert_eq!((status.as_u16(), &answer["code"]), (404, &json!("PUN-303")));
        }
        // What would be left without the task that it fires after, and a ring.
        let (status, answer) = world.ask("DELETE", "/api/v1/tasks/in-a?take_over=true", Some(&ed), &json!({})).await;
        assert_eq!((status.as_u16(), &answer["code"]), (400, &json!("PUN-151")), "{answer}");
        let detail = answer["detail"].to_string();
        assert!(detail.contains("a task that you do not see") && detail.contains("`in-a`") && !detail.contains("hidden"), "{detail}");
        let (_, answer) = world.ask("DELETE", "/api/v1/tasks/in-a?take_over=true", Some(&root), &json!({})).await;
        assert!(answer["detail"].to_string().contains("`hidden`"), "whoever sees all is told: {answer}");
    });
}

/// A filter with a letter too few would find everything.
#[test]
fn what_an_address_asks_for_has_to_be_there() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        let (_, _, rules) = described(world.api.clone());
        for rule in rules.iter().filter(|rule| rule.path.starts_with("/api/v1/") && rule.path != "/api/v1/events") {
            let address = format!("{}?stat=failed", nowhere(rule.path));
            let (status, answer) = world.ask(rule.method.as_str(), &address, None, &json!({})).await;
            assert_eq!((status.as_u16(), &answer["code"]), (400, &json!("PUN-446")), "{} {address}: {answer}", rule.method);
        }
        let (_, answer) = world.ask("GET", "/api/v1/instances?stat=failed", None, &json!({})).await;
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.contains("did you mean `state`?") && detail.contains("created_after"), "{detail}");
        for path in ["/api/v1/instances?state=failed&limit=5", "/api/v1/audit?before=5", "/api/v1/tasks?q=in%2Da", "/health?x=1"] {
            assert_eq!(world.ask("GET", path, None, &json!({})).await.0, 200, "{path}");
        }
    });
}

/// A write with both headers could be meant in two ways only where one of them is read over.
#[test]
fn what_a_write_expects_is_read_whole() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        let (path, document) = ("/api/v1/tasks/x", json!({ "name": "x", "trigger": "manual", "command": { "shell": "true" } }));
        for (matches, none, expected) in [("\"1\"", "\"1\"", 400), ("*", "x", 400), ("*", "*", 412)] {
            let headers = [("if-match", matches), ("if-none-match", none)];
            let (status, answer) = world.ask_with("PUT", path, None, &document, &headers).await;
            assert_eq!(status.as_u16(), expected, "{matches} {none}: {answer}");
        }
    });
}

/// Whoever writes a client by the document may send the greatest number that it allows, and nothing beyond.
#[test]
fn numbers_of_addresses_are_taken_within_what_the_document_says() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        let (_, document, _) = described(world.api.clone());
        let document = serde_json::to_value(document).unwrap();
        let mut asked = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for parameter in item["get"]["parameters"].as_array().into_iter().flatten() {
                let schema = &parameter["schema"];
                if parameter["in"] != "query" || schema["type"] != "integer" {
                    continue;
                }
                let name = parameter["name"].as_str().unwrap();
                let bound = |of: &str| schema[of].as_u64().unwrap_or_else(|| panic!("{path}: {name} has no {of}"));
                let (low, high) = (i128::from(bound("minimum")), i128::from(bound("maximum")));
                for (value, is_taken) in [(low - 1, false), (low, true), (high, true), (high + 1, false)] {
                    let address = format!("{}?{name}={value}", nowhere(path));
                    let (status, answer) = world.ask("GET", &address, None, &json!({})).await;
                    // Some look first whether there is what the address names.
                    let is_as_said = if is_taken { status != StatusCode::BAD_REQUEST } else { status.is_client_error() };
                    assert!(is_as_said, "{address}: {status} {answer}");
                    asked += 1;
                }
            }
        }
        assert!(asked > 50, "{asked}");
    });
}

/// Where nobody signs in whoever asks is local, and the request was meant for this machine.
#[test]
fn without_users_this_machine_may_everything_and_others_nothing() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        let (status, me) = world.ask("GET", "/api/v1/me", None, &json!({})).await;
        assert_eq!((status.as_u16(), &me["name"], &me["by"]), (200, &json!("local"), &json!("here")));
        let first = json!({ "name": "root", "grants": [{ "role": "editor" }] });
        let (status, answer) = world.ask("POST", "/api/v1/users", None, &first).await;
        assert_eq!((status.as_u16(), &answer["code"]), (409, &json!("PUN-414")), "it would lock everybody out");
        let admin = json!([{ "role": "admin" }]);
        for bad in [
            json!({ "name": "", "grants": admin }),
            json!({ "name": "a b", "grants": admin }),
            json!({ "name": "../x", "grants": admin }),
            json!({ "name": "oidc:ann", "grants": admin }),
            json!({ "name": "local", "grants": admin }),
            json!({ "name": "x".repeat(101), "grants": admin }),
            json!({ "name": "root", "grants": [{ "role": "root" }] }),
            json!({ "name": "root", "grants": [{ "role": "admin", "group": "" }] }),
            json!({ "name": "root", "grants": vec![json!({ "role": "admin" }); 101] }),
            json!({ "name": "root", "grants": admin, "unknown": 1 }),
        ] {
            let (status, answer) = world.ask("POST", "/api/v1/users", None, &bad).await;
            assert_eq!((status.as_u16(), &answer["code"]), (400, &json!("PUN-305")), "{bad}: {answer}");
        }
        let first = json!({ "name": "root", "grants": [{ "role": "admin" }] });
        let (status, answer) = world.ask("POST", "/api/v1/users", None, &first).await;
        assert_eq!((status.as_u16(), answer["password"].as_str().map(str::len)), (201, Some(64)), "{answer}");
        assert_eq!(world.ask("GET", "/api/v1/me", None, &json!({})).await.0, StatusCode::UNAUTHORIZED, "from the first user on");
        let beyond = World::new(Reach { is_beyond: true, ..Reach::default() }).await;
        assert_eq!(beyond.ask("GET", "/api/v1/tasks", None, &json!({})).await.0, StatusCode::UNAUTHORIZED);
        assert_eq!(beyond.ask("POST", "/api/v1/users", None, &first).await.0, StatusCode::UNAUTHORIZED);
    });
}

/// What a store would keep for a repeated call has a secret in it here.
#[test]
fn a_call_with_a_secret_takes_no_key() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        let root = world.token("root", &[(Role::Admin, None)]).await;
        let asked = [
            ("POST", "/api/v1/users", json!({ "name": "ann" })),
            ("POST", "/api/v1/tokens", json!({ "name": "ci" })),
            ("PUT", "/api/v1/users/root/password", json!({ "password": "correct horse battery" })),
            ("POST", "/api/v1/sign-in", json!({ "name": "root", "password": "x" })),
        ];
        for (method, path, body) in asked {
            let (status, answer) = world.ask_with(method, path, Some(&root), &body, &[("idempotency-key", "k")]).await;
            assert_eq!((status.as_u16(), &answer["code"]), (400, &json!("PUN-426")), "{method} {path}: {answer}");
        }
        assert_eq!(world.ask("GET", "/api/v1/users/ann", Some(&root), &json!({})).await.0, StatusCode::NOT_FOUND, "nothing was done");
        // One without takes one.
        let edit = json!({ "grants": [{ "role": "admin" }] });
        for replayed in [false, true] {
            let (status, _) = world.ask_with("PATCH", "/api/v1/users/root", Some(&root), &edit, &[("idempotency-key", "k")]).await;
            assert_eq!(status, StatusCode::OK, "{replayed}");
        }
    });
}

/// As far as its owner may, at the time that it is shown.
#[test]
fn a_token_does_no_more_than_its_owner() {
    block_on(async {
        let world = World::new(Reach::default()).await;
        let root = world.token("root", &[(Role::Admin, None)]).await;
        let ann = world.token("ann", &[(Role::Operator, None)]).await;
        let make = async |token: &str, body: Value| world.ask("POST", "/api/v1/tokens", Some(token), &body).await;
        let (status, answer) = make(&ann, json!({ "name": "more" })).await;
        assert_eq!((status.as_u16(), &answer["code"]), (403, &json!("PUN-416")), "a token makes none");
        let (status, answer) = make(&root, json!({ "name": "more", "owner": "ann", "grants": [{ "role": "editor" }] })).await;
        assert_eq!((status.as_u16(), &answer["code"]), (403, &json!("PUN-415")), "{answer}");
        let (status, answer) = make(&root, json!({ "name": "x", "owner": "nobody" })).await;
        assert_eq!((status.as_u16(), &answer["code"]), (404, &json!("PUN-412")));
        let narrow = json!({ "name": "ci", "owner": "ann", "grants": [{ "role": "operator", "group": "a" }], "expires_in_s": 60 });
        let (status, made) = make(&root, narrow).await;
        assert_eq!(status.as_u16(), 201, "{made}");
        let ci = made["token"].as_str().unwrap().to_owned();
        assert_eq!(world.ask("GET", "/api/v1/tasks/in-a", Some(&ci), &json!({})).await.0, 200);
        assert_eq!(world.ask("GET", "/api/v1/tasks/in-b", Some(&ci), &json!({})).await.0, 404);
        let (_, me) = world.ask("GET", "/api/v1/me", Some(&ci), &json!({})).await;
        assert_eq!((&me["name"], &me["grants"]), (&json!("ann"), &json!([{ "role": "operator", "group": "a" }])));
        // Its owner may less from now on, and so may it.
        let less = json!({ "grants": [{ "role": "viewer" }] });
        assert_eq!(world.ask("PATCH", "/api/v1/users/ann", Some(&root), &less).await.0, 200);
        assert_eq!(world.ask("POST", "/api/v1/tasks/in-a/pause", Some(&ci), &json!({})).await.0, 403);
        assert_eq!(world.ask("GET", "/api/v1/tasks/in-a", Some(&ci), &json!({})).await.0, 200);
        assert_eq!(world.ask("PATCH", "/api/v1/users/ann", Some(&root), &json!({ "disabled": true })).await.0, 200);
        let (status, answer) = world.ask("GET", "/api/v1/me", Some(&ci), &json!({})).await;
        assert_eq!((status.as_u16(), &answer["code"]), (401, &json!("PUN-408")));
        for bad in
            [json!({ "name": "" }), json!({ "name": "x", "expires_in_s": 0 }), json!({ "name": "x", "expires_in_s": 99_999_999_999_u64 })]
        {
            assert_eq!(make(&root, bad.clone()).await.0, 400, "{bad}");
        }
    });
}

/// C342: where others reach it, a fresh install lets nobody do anything: there is no default name, password or token.
#[test]
fn a_fresh_install_that_others_reach_lets_nobody_in() {
    block_on(async {
        let world = World::new(Reach { is_beyond: true, ..Reach::default() }).await;
        let first = json!({ "name": "root", "grants": [{ "role": "admin" }], "password": "root" });
        for token in [None, Some("pun_"), Some("admin"), Some("root:root")] {
            for (method, path, _) in TABLE.iter().filter(|(_, _, takes)| *takes != Nothing) {
                let (status, answer) = world.ask(method, &nowhere(path), token, &first).await;
                assert_eq!(status, StatusCode::UNAUTHORIZED, "{token:?}, {method} {path}: {answer}");
            }
        }
        for name in ["admin", "root", "local", "punctual"] {
            let body = json!({ "name": name, "password": name });
            assert_eq!(world.ask("POST", "/api/v1/sign-in", None, &body).await.0, StatusCode::UNAUTHORIZED, "{name}");
        }
        assert!(world.api.store.users(None, 1).await.unwrap().is_empty());
    });
}

/// An instance that a worker has, as its owner writes it.
async fn running(world: &World) -> (Batch, InstanceRow) {
    let task = world.api.store.task_now("in-a".into()).await.unwrap().unwrap().task;
    let partition = punctual_core::ids::partition_of("in-a", world.api.partitions);
    let (replica, now) = (ReplicaId("r".into()), world.api.clock.now().wall);
    let granted = world.api.store.acquire(replica.clone(), vec![partition], 1, Millis::from_secs(60), now).await.unwrap();
    let [LeaseAnswer::Granted { epoch, commit_seq, sequence, .. }] = granted[..] else { panic!("{granted:?}") };
    let lease = LeaseCheck { partition, epoch, commit_seq: commit_seq + 1, sequence: sequence + 2 };
    let (id, fence) = (InstanceId::new(partition, sequence + 1), Fence(sequence + 2));
    let worker = WorkerId("w".into());
    let step = |from, to, cause| Transition {
        from,
        to,
        cause,
        at: now,
        attempt: 1,
        fence,
        worker: Some(worker.clone()),
        code: None,
        detail: None,
    };
    let row = InstanceRow {
        id,
        task,
        version: Version(1),
        fire_time: now,
        ordinal: 0,
        run: 1,
        part: Part::WHOLE,
        links: None,
        result: None,
        origin: Origin::Manual,
        state: State::Dispatched,
        fence,
        attempt: 1,
        failures: 0,
        losses: 0,
        worker: Some(WorkerRef { id: worker.clone(), life: WorkerLife(1) }),
        due_at: None,
        payload: None,
        key: None,
        transitions: vec![step(None, State::Created, Cause::Triggered), step(Some(State::Created), State::Dispatched, Cause::Assigned)],
    };
    let batch = Batch { replica, leases: vec![lease], inserts: vec![row.clone()], ..Batch::default() };
    assert_eq!(world.api.store.commit(Arc::new(batch.clone())).await.unwrap(), CommitOutcome::Committed);
    (batch, row)
}

/// Has a line that comes so long after somebody has looked who knows of the instance's end.
struct Late {
    looked: OnceLock<tokio::time::Instant>,
    after: Duration,
    row: InstanceRow,
}

impl LogStore for Late {
    fn append(&self, _: Vec<Arc<LogBatch>>, _: Timestamp) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn lines(&self, query: LogQuery) -> Answer<'_, LogPage> {
        let InstanceRow { task, fence, attempt, .. } = self.row;
        let line = LogLine { seq: 1, at: Timestamp(0), level: Level::Info, dropped: 0, message: "late".into() };
        let found = FoundLine { fence, attempt, task, worker: WorkerId("w".into()), trace: TraceId([1; 16]), line };
        let looked = query.until.map(|_| self.looked.get_or_init(tokio::time::Instant::now));
        let has_come = looked.is_some_and(|looked| looked.elapsed() >= self.after) && query.after.is_none();
        let seen = has_come.then(|| found.cursor());
        let lines = if has_come { vec![found] } else { Vec::new() };
        Box::pin(std::future::ready(Ok(LogPage { lines, seen, is_full: false })))
    }

    fn keep(&self, _: u32, _: Timestamp) -> Answer<'_, Vec<Day>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// The last line of a worker whose buffer was full when the instance ended, sent a second time, is told before the stream's end.
#[tokio::test]
async fn a_stream_of_lines_waits_for_what_a_worker_may_still_have() {
    let world = World::new(Reach::default()).await;
    let (batch, row) = running(&world).await;
    let mut ended = row.clone();
    (ended.state, ended.worker) = (State::Succeeded, None);
    let step = row.transitions.last().unwrap().clone();
    let at = world.api.clock.now().wall;
    ended.transitions.push(Transition { from: Some(State::Dispatched), to: State::Succeeded, cause: Cause::Finished, at, ..step });
    let update = InstanceUpdate { expected_state: State::Dispatched, expected_fence: row.fence, row: ended };
    let lease = LeaseCheck { commit_seq: batch.leases[0].commit_seq + 1, ..batch.leases[0] };
    let batch = Batch { inserts: Vec::new(), leases: vec![lease], updates: vec![update], ..batch };
    assert_eq!(world.api.store.commit(Arc::new(batch)).await.unwrap(), CommitOutcome::Committed);

    tokio::time::pause();
    // The first look comes this late.
    let after = Duration::from_millis(WAIT_TIME_MAX.0 + AGAIN_TIME_MAX.0) - logs::LOOK_INTERVAL;
    let late = Arc::new(Late { looked: OnceLock::new(), after, row: row.clone() });
    let logs = Logs::start(late, world.api.clock.clone(), 1, Arc::new(|_| {}));
    let api = Api { logs: logs.clone(), ..world.api.clone() };
    let (watch, query) = (logs.watch(&"ann".into(), row.id).unwrap(), LogQuery::of(row.id, row.created_at()));
    let (events, mut told) = mpsc::channel(4);
    logs::tell(&api, query, &watch, &events).await.expect("somebody listens");
    drop(events);
    let mut texts = Vec::new();
    while let Some(Ok(event)) = told.recv().await {
        texts.push(format!("{event:?}"));
    }
    assert!(texts.len() == 2 && texts[0].contains("late") && texts[1].contains("succeeded"), "{texts:?}");
}

/// C366: it ends by itself between the look at it and the word to its owner. Who asked is told how it stands, not that it is accepted.
#[test]
fn a_cancel_that_comes_too_late_is_a_conflict() {
    block_on(async {
        for (verb, end, expected) in [
            ("cancel", State::Succeeded, (409, json!(false))),
            ("kill", State::Failed, (409, json!(false))),
            ("cancel", State::Cancelled, (202, json!(true))),
        ] {
            let world = World::new(Reach::default()).await;
            let (batch, row) = running(&world).await;
            let path = format!("/api/v1/instances/{}/{verb}", row.id);
            let body = json!({});
            let owner = async {
                let partition = row.id.partition();
                let entry = loop {
                    let page = world.api.store.read_inbox(vec![partition], InboxId(0), 100).await.unwrap();
                    let is_it = |request: &Asked| matches!(request, Asked::Cancel { .. } | Asked::Kill { .. });
                    match page.entries.iter().find(|entry| is_it(&entry.request)) {
                        Some(entry) => break entry.id,
                        None => tokio::task::yield_now().await,
                    }
                };
                let mut ended = row.clone();
                (ended.state, ended.worker) = (end, None);
                let last = row.transitions.last().unwrap().clone();
                ended.transitions.push(Transition { from: Some(State::Dispatched), to: end, cause: Cause::Finished, ..last });
                let lease = LeaseCheck { commit_seq: batch.leases[0].commit_seq + 1, ..batch.leases[0] };
                let update = InstanceUpdate { expected_state: State::Dispatched, expected_fence: row.fence, row: ended };
                let batch = Batch {
                    replica: batch.replica.clone(),
                    leases: vec![lease],
                    updates: vec![update],
                    applied: vec![entry],
                    ..Batch::default()
                };
                assert_eq!(world.api.store.commit(Arc::new(batch)).await.unwrap(), CommitOutcome::Committed);
                world.api.applied.tell(&[entry]);
            };
            let ((status, answer), ()) = tokio::join!(world.ask("POST", &path, None, &body), owner);
            assert_eq!((status.as_u16(), answer["cancelled"].clone()), expected, "{answer}");
            assert_eq!(answer["instance"]["state"], end.name());
        }
    });
}

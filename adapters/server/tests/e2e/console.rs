//! The console by HTTP: every page, what is escaped, who may write, and what each action does.

use serde_json::{Value, json};

use crate::support::{Answer, Dev, Folder, PATIENCE, escaped, eventually, request, within};

const EVIL: &str = "<script>alert(1)</script> & \"quotes\"";

const FILE: &str = r#"
tasks:
  - name: "<script>alert(1)</script> & \"quotes\""
    description: "<script>alert(1)</script> & \"quotes\""
    owner: "<script>alert(1)</script> & \"quotes\""
    group: billing
    trigger: manual
    command: echo '<script>alert(1)</script> & "quotes"'; exit 3
  - name: nightly
    group: billing
    trigger: {cron: "30 1 * * *", timezone: America/New_York}
    command: echo nightly
  - name: waits
    trigger: manual
    command: while [ ! -e go ]; do sleep 0.05; done
  - name: fails
    trigger: manual
    command: exit 4
    retry: {max_attempts: 2, first: 1s, jitter: none}
  - name: pieces
    trigger: manual
    shards: [eu, us, asia]
    command: echo "$PUNCTUAL_SHARD_KEY"
  - name: flow
    trigger: manual
    nodes:
      - {name: first, command: "true"}
      - {name: second, after: first, command: test -e mended}
      - {name: third, after: [first, second], command: "true"}
"#;

const PAGES: &[&str] = &[
    "/",
    "/tasks",
    "/tasks?q=night&group=billing&owner=x&state=enabled",
    "/tasks?state=paused",
    "/tasks/nightly",
    "/tasks/nightly/edit",
    "/tasks/nightly/changes",
    "/tasks/nightly/why",
    "/tasks/nightly/why?at=2033-06-30T01:30",
    "/tasks/new",
    "/tasks/new?like=nightly",
    "/tasks/flow",
    "/instances",
    "/instances?state=failed&parts=1",
    "/instances?task=nightly",
    "/dead-letters",
    "/dead-letters?task=fails",
    "/backfills",
    "/pauses",
    "/audit",
    "/audit?task=nightly",
    "/workers",
    "/replicas",
    "/calendar",
    "/calendar?hours=168",
    "/settings",
    "/users",
    "/tokens",
    "/errors/PUN-303",
];

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml");

impl Dev {
    fn page(&self, path: &str) -> Answer {
        request(self.address(), "GET", path, &[BROWSER], b"")
    }

    fn page_in(&self, lang: &str, path: &str) -> Answer {
        request(self.address(), "GET", path, &[BROWSER, ("accept-language", lang)], b"")
    }

    fn token(&self) -> String {
        let page = self.page("/settings").body;
        page.split("name=\"csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned()
    }

    fn send(&self, path: &str, headers: &[(&str, &str)], fields: &[(&str, &str)]) -> Answer {
        let body: Vec<_> = fields.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
        let all = [&[("content-type", "application/x-www-form-urlencoded"), BROWSER], headers].concat();
        request(self.address(), "POST", path, &all, body.join("&").as_bytes())
    }

    /// Sends a form as a page of the console does.
    fn form(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let token = self.token();
        let origin = format!("http://{}", self.address());
        self.send(path, &[("origin", &origin)], &[&[("csrf", &*token)], fields].concat())
    }

    /// Sends a form that does something, and follows to the page that says so.
    #[track_caller]
    fn done(&self, path: &str, fields: &[(&str, &str)], told: &str) -> (String, Answer) {
        let answer = self.form(path, fields);
        assert_eq!(answer.status, 303, "{path}: {answer:?}");
        let header = |name: &str| answer.head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
        let (to, cookie) = (header("location:"), header("set-cookie:"));
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let page = request(self.address(), "GET", &to, &[BROWSER, ("cookie", &cookie)], b"");
        assert_eq!(page.status, 200, "{to}: {page:?}");
        assert!(page.body.contains(told), "{told:?} is not on {to}: {}", page.body);
        assert!(page.head.contains("flash=; Path=/; Max-Age=0"), "told twice: {}", page.head);
        (to, page)
    }
}

/// That a page is well formed, and safe: each element that is opened is closed in its turn, ids are there once, nothing inline.
#[track_caller]
fn check_page(path: &str, answer: &Answer) {
    let Answer { head, body, .. } = answer;
    assert!(head.contains("content-type: text/html; charset=utf-8"), "{path}: {head}");
    assert!(
        head.contains(
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
             connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
        "{path}: {head}"
    );
    assert!(head.contains("x-content-type-options: nosniff") && head.contains("cache-control: no-store"), "{path}: {head}");
    assert!(body.starts_with("<!doctype html>\n<html lang=\""), "{path}: {body}");
    // Images have titles of their own.
    for once in ["<h1", "<main ", "\n<title>", "class=\"skip\""] {
        assert_eq!(body.matches(once).count(), 1, "{path} has not one {once}");
    }
    let void = ["!doctype", "meta", "link", "input", "img", "br", "hr"];
    let (mut open, mut ids, mut rest): (Vec<&str>, Vec<&str>, &str) = (Vec::new(), Vec::new(), body);
    while let Some(begin) = rest.find('<') {
        let end = begin + rest[begin..].find('>').unwrap_or_else(|| panic!("{path}: an element that doesn't end: {}", &rest[begin..]));
        let tag = &rest[begin + 1..end];
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
        match tag.strip_prefix('/') {
            Some(_) => assert_eq!(open.pop(), Some(name), "{path}: {}", &rest[begin.saturating_sub(120)..end]),
            None if void.contains(&name) || tag.ends_with('/') => {}
            None => open.push(name),
        }
        for attribute in tag.split(' ').filter_map(|attribute| attribute.split_once('=')) {
            assert!(!attribute.0.starts_with("on") && attribute.0 != "style", "{path}: {tag}");
            if attribute.0 == "id" {
                assert!(!ids.contains(&attribute.1), "{path}: the id {} is there twice", attribute.1);
                ids.push(attribute.1);
            }
        }
        if name == "script" {
            assert!(tag.starts_with('/') || tag.starts_with("script src=\"/assets/"), "{path}: {tag}");
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, [""; 0], "{path}");
    // Each field that people fill in has its label.
    for field in body.split(['<']).filter(|tag| tag.starts_with("input ") || tag.starts_with("select ") || tag.starts_with("textarea ")) {
        let tag = field.split('>').next().unwrap();
        let id = tag.split(" id=\"").nth(1).and_then(|rest| rest.split('"').next());
        let is_labelled =
            tag.contains("type=\"hidden\"") || tag.contains("aria-label=") || id.is_some_and(|id| body.contains(&format!("for=\"{id}\"")));
        assert!(is_labelled, "{path}: {tag} has no label");
    }
}

#[test]
fn every_page_is_whole_in_each_language() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    // Something of each kind is there to be shown.
    let failed = dev.cli(&["trigger", "fails", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
    let run = dev.cli(&["trigger", "flow", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
    let running = dev.cli(&["trigger", "waits", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
    dev.instance_in("fails", "dead_lettered");
    eventually("the end of the run", || dev.instance(&run)["ended_at"].as_str().map(drop));
    dev.cli(&["pause", "nightly", "--why", "because"]);
    dev.cli(&["backfill", "nightly", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-05T00:00:00Z"]);
    let pieces = dev.cli(&["trigger", "pieces", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
    eventually("the end of the shards", || dev.instance(&pieces)["ended_at"].as_str().map(drop));
    let parts = dev.page(&format!("/instances/{pieces}")).body;
    for part in ["1/3 eu", "2/3 us", "3/3 asia"] {
        assert!(parts.contains(part), "{part}: {parts}");
    }
    let all = parts.split("class=\"more\" href=\"").nth(1).unwrap().split('"').next().unwrap().replace("&#38;", "&");
    assert!(dev.page(&all).body.contains("2/3 us"), "{all}");
    let why = dev.page(&format!("/instances/{failed}/why")).body;
    assert!(why.contains("no attempt was left (`max_attempts: "), "{why}");
    let ahead = dev.page("/tasks/nightly/why?at=2033-06-30T01:30").body;
    assert!(ahead.contains("That is still ahead: it fires at 2033-06-30T05:30:00Z"), "{ahead}");
    assert_eq!(dev.page("/tasks/nightly/why?at=soon").status, 400);
    let stories = [failed, run, running, pieces].map(|id| format!("/instances/{id}"));
    let whys = stories.each_ref().map(|story| format!("{story}/why"));
    for path in PAGES.iter().copied().chain(stories.iter().chain(&whys).map(String::as_str)) {
        for (lang, tag) in [("en-US,en;q=0.9", "lang=\"en\""), ("zh-CN,zh;q=0.9,en;q=0.5", "lang=\"zh-CN\"")] {
            let page = dev.page_in(lang, path);
            assert_eq!(page.status, 200, "{path}: {page:?}");
            check_page(path, &page);
            assert!(page.body.contains(tag), "{path} in {lang}");
        }
    }
    let overview = dev.page_in("zh", "/").body;
    for word in ["概览", "死信等待重跑", "任务 nightly 已暂停"] {
        assert!(overview.contains(word), "{word}: {overview}");
    }
    let task = dev.page("/tasks/nightly").body;
    for part in ["America/New_York", "at 01:30 every day", "This task is paused", "because", "<code>file</code>"] {
        assert!(task.contains(part), "{part}: {task}");
    }
    folder.write("go", "");
    dev.stop();
}

#[test]
fn what_people_write_shows_as_text() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let address = format!("/tasks/{}", escaped(EVIL));
    let fields = [("payload", EVIL), ("reason", EVIL), ("key", "k1")];
    let (story, _) = dev.done(&format!("{address}/trigger"), &fields, "Triggered");
    dev.instance_in(EVIL, "failed");
    let again = dev.form(&format!("{address}/trigger"), &fields);
    assert!(again.head.contains(&story), "the same form is the same trigger: {}", again.head);
    dev.done("/pauses/set", &[("kind", "task"), ("name", EVIL), ("reason", EVIL), ("confirmed", "yes")], "Paused");
    let shown = "&#60;script&#62;alert(1)&#60;/script&#62; &#38; &#34;quotes&#34;";
    let search = format!("/tasks?q={}", escaped(EVIL));
    let whys = [format!("{address}/why"), format!("{story}/why")];
    for path in
        ["/", "/tasks", &search, &address, &format!("{address}/edit"), &whys[0], &story, &whys[1], "/instances", "/pauses", "/audit"]
    {
        let page = dev.page(path);
        assert_eq!(page.status, 200, "{path}: {page:?}");
        check_page(path, &page);
        assert!(page.body.contains(shown), "{path}: {}", page.body);
        assert!(!page.body.contains("<script>"), "{path}: {}", page.body);
    }
    // Lines come on a way of their own.
    let said = format!("<span class=\"said\">{shown}</span></span></pre>");
    eventually("what it wrote", || dev.page(&story).body.contains(&said).then_some(()));
    // An error repeats what was asked for.
    let missing = dev.page(&format!("/tasks/{}", escaped("<script>alert(2)</script>")));
    assert_eq!(missing.status, 404);
    assert!(missing.body.contains("&#60;script&#62;alert(2)") && !missing.body.contains("<script>alert"), "{}", missing.body);
    dev.stop();
}

#[test]
fn only_a_page_of_its_own_writes() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let writes = [
        "/tasks",
        "/tasks/check",
        "/tasks/nightly/edit",
        "/tasks/nightly/remove",
        "/tasks/nightly/trigger",
        "/tasks/nightly/pause",
        "/tasks/nightly/resume",
        "/tasks/nightly/backfill",
        "/instances/1-1/cancel",
        "/instances/1-1/kill",
        "/instances/1-1/skip",
        "/instances/1-1/rerun",
        "/instances/1-1/nodes/a",
        "/dead-letters/replay",
        "/dead-letters/discard",
        "/backfills/1/cancel",
        "/pauses/set",
        "/preferences",
    ];
    let (token, origin) = (dev.token(), format!("http://{}", dev.address()));
    for path in writes {
        let refused = |answer: Answer, code: &str| {
            assert_eq!(answer.status, 403, "{path}: {answer:?}");
            assert!(answer.body.contains(code), "{path}: {answer:?}");
        };
        refused(dev.send(path, &[("origin", &origin)], &[]), "PUN-407");
        refused(dev.send(path, &[("origin", &origin)], &[("csrf", "0000"), ("confirmed", "yes")]), "PUN-407");
        refused(dev.send(path, &[("origin", "http://evil.example")], &[("csrf", &token), ("confirmed", "yes")]), "PUN-308");
        refused(dev.send(path, &[("sec-fetch-site", "cross-site")], &[("csrf", &token), ("confirmed", "yes")]), "PUN-308");
        refused(request(dev.address(), "POST", path, &[("host", "evil.example")], b""), "PUN-307");
        let read = dev.page(path).status;
        assert!(matches!(read, 200 | 404 | 405), "{path}: a read does nothing, and answers {read}");
    }
    assert_eq!(dev.get("/api/v1/audit")["audit"].as_array().unwrap().iter().filter(|entry| entry["action"] != "create").count(), 0);
    let large = "x".repeat(2 << 20);
    let answer = dev.form("/tasks/check", &[("document", &large)]);
    assert_eq!(answer.status, 413, "{}", answer.head);
    dev.stop();
}

#[test]
fn each_action_does_what_it_says() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    // Asked again where no script has asked.
    let (running, _) = dev.done("/tasks/waits/trigger", &[("reason", "to see")], "Triggered: waits");
    dev.instance_in("waits", "running");
    let asked = dev.form(&format!("{running}/cancel"), &[]);
    assert_eq!(asked.status, 200, "{asked:?}");
    check_page("confirm", &asked);
    for part in ["Cancel instance", "name=\"confirmed\" value=\"yes\"", &format!("action=\"{running}/cancel\"")] {
        assert!(asked.body.contains(part), "{part}: {}", asked.body);
    }
    let id = running.rsplit('/').next().unwrap();
    assert_eq!(dev.instance(id)["state"], "running", "nothing is done before");
    dev.done(&format!("{running}/cancel"), &[("confirmed", "yes"), ("reason", "wrong one")], "is asked to end");
    let cancelled = dev.instance_in("waits", "cancelled");
    let detail = cancelled["transitions"].as_array().unwrap().last().unwrap()["detail"].to_string();
    assert!(detail.contains("wrong one") && detail.contains("local"), "{detail}");
    let (again, _) = dev.done(&format!("{running}/rerun"), &[], "runs again");
    assert_ne!(again, running);
    dev.done(&format!("{again}/kill"), &[("confirmed", "yes")], "is killed");

    // A pause keeps what is triggered from starting, so it can be skipped.
    dev.done("/tasks/waits/pause", &[("confirmed", "yes"), ("reason", "lunch")], "Paused: waits");
    let (held, _) = dev.done("/tasks/waits/trigger", &[], "Triggered: waits");
    dev.done(&format!("{held}/skip"), &[("confirmed", "yes")], "is left out");
    dev.done("/tasks/waits/resume", &[], "Resumed: waits");
    dev.done("/pauses/set", &[("kind", "group"), ("name", "billing"), ("confirmed", "yes")], "Paused: Group billing");
    dev.done("/pauses/set", &[("kind", "group"), ("name", "billing"), ("verb", "resume")], "Resumed: Group billing");
    assert!(dev.form("/pauses/set", &[("kind", "group"), ("name", "gone"), ("confirmed", "yes")]).body.contains("PUN-317"));

    let worker = dev.get("/api/v1/workers")["workers"][0]["id"].as_str().unwrap().to_owned();
    let drain = |more: (&str, &str), done: &str| {
        dev.done("/pauses/set", &[("kind", "worker"), ("name", &worker), more], &format!("{done}: {worker}"))
    };
    let (page, _) = drain(("confirmed", "yes"), "Drained");
    assert_eq!(page, "/workers");
    assert!(dev.page("/workers").body.contains("Undrain") && dev.page("/pauses").body.contains("a href=\"/workers\""));
    drain(("verb", "resume"), "Not drained any more");

    // Dead letters.
    dev.done("/tasks/fails/trigger", &[], "Triggered");
    let letter = dev.instance_in("fails", "dead_lettered")["id"].as_str().unwrap().to_owned();
    assert!(dev.form("/dead-letters/replay", &[("confirmed", "yes")]).body.contains("PUN-484"), "nothing is ticked");
    dev.done("/dead-letters/replay", &[("id", &letter), ("confirmed", "yes")], "1 run again");
    let second = eventually("the second letter", || {
        dev.get("/api/v1/dead-letters")["dead_letters"][0]["id"].as_str().filter(|id| *id != letter).map(str::to_owned)
    });
    assert!(dev.form("/dead-letters/discard", &[("id", &second), ("confirmed", "yes")]).body.contains("PUN-305"), "a reason is asked for");
    dev.done("/dead-letters/discard", &[("id", &second), ("confirmed", "yes"), ("reason", "old")], "1 discarded");
    assert_eq!(dev.get("/api/v1/dead-letters")["dead_letters"], json!([]));

    // A backfill: first what it would do.
    let range = [("from", "2026-03-07T00:00"), ("to", "2026-03-10T00:00"), ("order", "oldest"), ("concurrency", "2")];
    let preview = dev.form("/tasks/nightly/backfill", &range);
    assert_eq!(preview.status, 200, "{preview:?}");
    check_page("backfill", &preview);
    assert!(
        preview.body.contains("3 fire times to be made up for") && preview.body.contains("2026-03-08 06:30:00 UTC"),
        "{}",
        preview.body
    );
    assert_eq!(dev.get("/api/v1/tasks/nightly/backfills")["backfills"], json!([]));
    dev.done("/tasks/nightly/backfill", &[&range[..], &[("confirmed", "yes")]].concat(), "A backfill of nightly has begun");
    eventually("the backfill", || (dev.get("/api/v1/tasks/nightly/backfills")["backfills"][0]["state"] == "done").then_some(()));

    // A workflow, from a node on, and what is said of one.
    let (run, _) = dev.done("/tasks/flow/trigger", &[], "Triggered");
    dev.instance_in("flow", "failed");
    let page = dev.page(&run).body;
    for part in ["<svg viewBox", "class=\"node failed\"", "Run again from here"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    folder.write("mended", "");
    let (second, _) = dev.done(&format!("{run}/rerun"), &[("from", "second")], "runs again");
    dev.instance_in("flow", "succeeded");
    let refused = dev.form(&format!("{second}/nodes/first"), &[("state", "succeeded"), ("confirmed", "yes")]);
    assert_eq!((refused.status, refused.body.contains("PUN-172")), (409, true), "{refused:?}");

    // All of it is on record, in the name of whoever did it.
    let audit = dev.get("/api/v1/audit?limit=100")["audit"].as_array().unwrap().clone();
    let done: Vec<_> = audit.iter().filter(|entry| entry["by"] == "local").map(|entry| entry["action"].as_str().unwrap()).collect();
    for action in ["trigger", "cancel", "kill", "skip", "rerun", "pause", "resume", "discard", "backfill"] {
        assert!(done.contains(&action), "{action}: {done:?}");
    }
    dev.stop();
}

#[test]
fn a_task_is_made_changed_and_removed() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let document = "name: made here\ntrigger: {cron: \"30 1 * * *\", timezone: America/New_York}\ncommand: |\n  echo one\n  echo two\n";
    let checked = dev.form("/tasks/check", &[("document", document)]);
    assert_eq!(checked.status, 200, "{checked:?}");
    check_page("check", &checked);
    assert!(checked.body.contains("at 01:30 every day") && checked.body.matches("<td class=\"local\">").count() == 10, "{}", checked.body);
    let nodes = "name: graph\ntrigger: manual\nnodes:\n  - {name: one, command: x}\n  - {name: two, after: one, command: x}\n";
    let drawn = dev.form("/tasks/check", &[("document", nodes)]).body;
    assert!(drawn.matches("class=\"node plain\"").count() == 2 && drawn.matches("class=\"edge plain\"").count() == 1, "{drawn}");
    let bad = "name: made here\ntrigger: {cron: \"99 1 * * *\"}\nretries: 3\n";
    for path in ["/tasks/check", "/tasks"] {
        let refused = dev.form(path, &[("document", bad)]);
        assert_eq!(refused.status, if path == "/tasks" { 422 } else { 200 }, "{refused:?}");
        check_page(path, &refused);
        for part in ["aria-invalid=\"true\"", "PUN-114", "data-line=\"2\"", "PUN-106", "data-line=\"3\"", "retries: 3"] {
            assert!(refused.body.contains(part), "{part}: {}", refused.body);
        }
    }
    let two = dev.form(
        "/tasks",
        &[("document", "tasks:\n  - {name: a, trigger: manual, command: x}\n  - {name: b, trigger: manual, command: x}\n")],
    );
    assert!(two.body.contains("PUN-483"), "{}", two.body);
    let taken = dev.form("/tasks", &[("document", "{\"name\": \"nightly\", \"trigger\": \"manual\", \"command\": \"true\"}")]);
    assert!(taken.status == 422 && taken.body.contains("PUN-485"), "{taken:?}");

    let (address, page) = dev.done("/tasks", &[("document", document), ("reason", "to try")], "is made");
    assert_eq!(address, "/tasks/made%20here");
    assert!(page.body.contains("command: |\n  echo one\n  echo two\n") || page.body.contains("shell: |\n"), "{}", page.body);
    dev.done(&format!("{address}/edit"), &[("document", document)], "Nothing was changed");
    let changed = document.replace("echo two", "echo three");
    dev.done(&format!("{address}/edit"), &[("document", &changed)], "is changed");
    let renamed = dev.form(&format!("{address}/edit"), &[("document", &changed.replace("made here", "other"))]);
    assert!(renamed.status == 422 && renamed.body.contains("PUN-484"), "{renamed:?}");
    let diff = dev.page(&format!("{address}/changes?from=1&to=2"));
    check_page("changes", &diff);
    assert!(
        diff.body.contains("echo two\n</span>") && diff.body.contains("echo three\n</span>") && diff.body.contains("class=\"gone\""),
        "{}",
        diff.body
    );

    // What somebody else has changed in between is not overwritten.
    let stale = dev.form(&format!("{address}/edit"), &[("document", document), ("version", "1")]);
    assert!(stale.status == 422 && stale.body.contains("PUN-440") && stale.body.contains("echo two"), "{stale:?}");
    check_page("stale", &stale);
    assert!(dev.page(&format!("{address}/edit")).body.contains("name=\"version\" value=\"2\""));

    // What a file has made is not edited by mistake.
    let own = "name: waits\ntrigger: manual\ncommand: \"true\"\n";
    let others = dev.form("/tasks/waits/edit", &[("document", own)]);
    assert!(others.status == 422 && others.body.contains("PUN-441"), "{others:?}");
    assert!(dev.form("/tasks/waits/remove", &[("confirmed", "yes")]).body.contains("PUN-441"));
    dev.done("/tasks/waits/edit", &[("document", own), ("take_over", "yes")], "is changed");

    // The other tasks of the console stay when one goes.
    dev.done(&format!("{address}/remove"), &[("confirmed", "yes"), ("reason", "enough")], "is removed");
    assert_eq!(dev.get("/api/v1/tasks/waits")["removed"], Value::Bool(false));
    let gone = dev.page(&address);
    assert_eq!(gone.status, 200);
    check_page("removed", &gone);
    assert!(gone.body.contains("This task was removed") && !gone.body.contains("/trigger\""), "{}", gone.body);
    dev.done("/tasks", &[("document", document)], "is made");
    dev.stop();
}

#[test]
fn what_is_not_there_is_said_on_a_page() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    for (path, code) in [
        ("/nothing", "PUN-482"),
        ("/tasks/gone", "PUN-303"),
        ("/instances/1-99999", "PUN-304"),
        ("/instances/bad", "PUN-304"),
        ("/assets/console-0000.css", "PUN-482"),
        ("/instances?task=gone", "PUN-303"),
    ] {
        let page = dev.page(path);
        assert_eq!(page.status, 404, "{path}: {page:?}");
        check_page(path, &page);
        assert!(page.body.contains(code) && page.body.contains("href=\"/errors/PUN-"), "{path}: {}", page.body);
    }
    for (path, code) in [
        ("/instances?before=x", "PUN-305"),
        ("/instances?state=lost", "PUN-305"),
        ("/audit?before=x", "PUN-484"),
        ("/tasks/nightly/changes?to=9", "PUN-484"),
    ] {
        let page = dev.page(path);
        assert_eq!((page.status, page.body.contains(code)), (400, true), "{path}: {page:?}");
    }
    assert!(dev.page_in("zh", "/nothing").body.contains("此地址没有页面"));
    request(dev.address(), "GET", "/nothing", &[], b"").check_refusal(404, "PUN-301");
    request(dev.address(), "GET", "/api/v1/nothing", &[BROWSER], b"").check_refusal(404, "PUN-301");
    dev.stop();
}

#[test]
fn style_and_script_are_kept_and_preferences_stay() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let page = dev.page("/").body;
    let assets: Vec<_> = page.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert!(assets.iter().any(|asset| asset.ends_with(".css")) && assets.iter().any(|asset| asset.ends_with(".js")), "{assets:?}");
    for asset in assets {
        let answer = dev.page(asset);
        assert!(answer.status == 200 && answer.head.contains("immutable") && !answer.body.is_empty(), "{asset}: {}", answer.head);
    }
    let chosen = dev.form("/preferences", &[("lang", "zh"), ("theme", "dark"), ("back", "/tasks?q=a")]);
    assert_eq!(chosen.status, 303);
    for part in ["location: /tasks?q=a", "lang=zh; Path=/", "theme=dark; Path=/"] {
        assert!(chosen.head.contains(part), "{part}: {}", chosen.head);
    }
    let page = request(dev.address(), "GET", "/", &[BROWSER, ("cookie", "lang=zh; theme=dark"), ("accept-language", "en")], b"").body;
    assert!(page.contains("lang=\"zh-CN\" data-theme=\"dark\""), "{page}");
    for back in ["//evil.example", "https://evil.example", "/\\evil.example"] {
        let head = dev.form("/preferences", &[("lang", "xx"), ("back", back)]).head;
        assert!(head.contains("location: /\r\n") && !head.contains("set-cookie"), "{back}: {head}");
    }
    dev.stop();
}

#[test]
fn lists_are_paged_by_where_the_last_one_ended() {
    let mut file = String::from("tasks:\n");
    for number in 0..90 {
        file.push_str(&format!("  - {{name: task {number:02}, trigger: manual, group: g{}, command: \"true\"}}\n", number % 2));
    }
    let folder = Folder::with(&file);
    let dev = folder.dev();
    let (mut path, mut seen) = ("/tasks?group=g1".to_owned(), Vec::new());
    loop {
        let page = dev.page(&path).body;
        seen.extend(page.split("<th scope=\"row\"><a href=\"/tasks/").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()));
        let Some(next) = page.split("rel=\"next\" href=\"").nth(1) else { break };
        path = next.split('"').next().unwrap().replace("&#38;", "&");
    }
    let expected: Vec<_> = (0..90).filter(|number| number % 2 == 1).map(|number| format!("task%20{number:02}")).collect();
    assert_eq!(seen, expected);
    for number in 0..60 {
        dev.post("/api/v1/tasks/task%2000/trigger", Some(&format!("k{number}")), &json!({}));
    }
    let first = dev.page("/instances?task=task%2000").body;
    let next = first.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap().replace("&#38;", "&");
    let second = dev.page(&next).body;
    let ids =
        |page: &str| page.split("class=\"id\" href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect::<Vec<_>>();
    let all: std::collections::BTreeSet<_> = ids(&first).into_iter().chain(ids(&second)).collect();
    assert_eq!((ids(&first).len(), ids(&second).len(), all.len()), (50, 10, 60));
    dev.stop();
}

/// On MariaDB, with a replica that falls silent and no worker at first.
#[test]
fn a_cluster_says_what_is_wrong_with_it() {
    let database = punctual_testbed::MariaDb::start().unwrap();
    let url = database.create("console").unwrap();
    let folder = Folder::new();
    let start = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(arguments).current_dir(folder.path("")).env("PUNCTUAL_DATABASE", &url);
        Dev::spawn(command)
    };
    let (ours, others) = (format!("127.0.0.1:{}", punctual_testbed::free_port()), format!("127.0.0.1:{}", punctual_testbed::free_port()));
    let dev = start(&["server", "--name", "one", "--listen", "127.0.0.1:0", "--listen-workers", &ours]);
    dev.address();
    let document = "name: by hand\ngroup: night\ntrigger: manual\ncommand: echo done\n";
    dev.done("/tasks", &[("document", document)], "is made");
    dev.done("/tasks/by%20hand/trigger", &[], "Triggered");
    // A replica that has just begun may have no partitions yet: then nobody has taken the trigger up when the page answers.
    let id = eventually("the instance", || dev.instances("by hand").first().map(|instance| instance["id"].as_str().unwrap().to_owned()));
    let story = format!("/instances/{id}");
    eventually("that nobody can have it", || dev.page("/").body.contains("no worker is connected").then_some(()));
    assert!(dev.page("/workers").body.contains("no worker is connected"));
    let other = start(&["server", "--name", "two", "--listen", "127.0.0.1:0", "--listen-workers", &others]);
    eventually("both share", || dev.page("/replicas").body.contains("two-").then_some(()));
    other.kill();
    eventually("that a replica is silent", || dev.page("/").body.contains("has been silent").then_some(()));
    let worker = start(&["worker", "--name", "w", "--server", &ours, "--allow-commands"]);
    worker.says("connected");
    let ended = within(PATIENCE, || dev.page(&story).body.contains("data-state=\"succeeded\"").then_some(()));
    ended.unwrap_or_else(|| panic!("it never ends: {:#}\n{}\n{}", dev.instance(&id), dev.told(), worker.told()));
    dev.done("/tasks/by%20hand/edit", &[("document", &document.replace("done", "more"))], "is changed");
    for path in [
        "/",
        "/tasks",
        "/tasks/by%20hand",
        "/tasks/by%20hand/changes",
        &story,
        "/workers",
        "/replicas",
        "/calendar",
        "/audit",
        "/dead-letters",
        "/backfills",
    ] {
        let page = dev.page(path);
        assert_eq!(page.status, 200, "{path}: {page:?}");
        check_page(path, &page);
    }
    drop(worker);
    dev.stop();
}

//! The console in a browser: headless Chromium, driven by WebDriver. What people do there with real clicks, how the pages look (screenshots stay
//! in `target/screenshots`), and what axe-core says of them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::elements::Element;
use fantoccini::error::CmdError;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{Dev, Folder, eventually, request, within};

/// Its rules, by npm's name for it. Fetched when a test needs it; nothing of it is kept here.
const AXE: &str = "axe-core@4.14.1";

/// A browser. Dropping it ends it and its driver.
struct Browser {
    runtime: Runtime,
    client: Option<Client>,
    driver: Child,
    base: String,
}

impl Browser {
    fn on(dev: &Dev) -> Self {
        let mut command = Command::new("chromedriver");
        let mut driver =
            command.args(["--port=0"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap_or_else(|error| {
                panic!("chromedriver can't be started: {error}; on Debian: apt-get install chromium chromium-driver")
            });
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port =
            lines.find_map(|line| line.ok()?.split("started successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok());
        let port = port.expect("the driver's port");
        // What else it says is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en-US", "--window-size=1440,1000"];
        let options = json!({ "goog:chromeOptions": { "args": arguments, "prefs": { "intl.accept_languages": "en-US,en" } } });
        let Value::Object(capabilities) = options else { unreachable!() };
        let connecting = async {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            builder.capabilities(capabilities).connect(&format!("http://127.0.0.1:{port}")).await
        };
        let client = runtime.block_on(connecting).expect("a session");
        Browser { runtime, client: Some(client), driver, base: format!("http://{}", dev.address()) }
    }

    fn client(&self) -> &Client {
        self.client.as_ref().unwrap()
    }

    fn open(&self, path: &str) {
        self.runtime.block_on(self.client().goto(&format!("{}{path}", self.base))).unwrap();
    }

    fn size(&self, width: u32, height: u32) {
        self.runtime.block_on(self.client().set_window_size(width, height)).unwrap();
    }

    /// The path of the page.
    fn path(&self) -> String {
        self.runtime.block_on(self.client().current_url()).unwrap().path().to_owned()
    }

    /// Does something with an element as soon as that can be done: pages go on by themselves.
    #[track_caller]
    fn with<T, F: Future<Output = Result<T, CmdError>>>(&self, selector: &str, act: impl Fn(Element) -> F) -> T {
        let mut last = String::new();
        let done = within(Duration::from_secs(30), || {
            let acting = async { act(self.client().find(Locator::Css(selector)).await?).await };
            self.runtime.block_on(acting).map_err(|error| last = error.to_string()).ok()
        });
        done.unwrap_or_else(|| panic!("{selector} on {}: {last}\n{}", self.path(), self.text("body")))
    }

    #[track_caller]
    fn click(&self, selector: &str) {
        self.with(selector, |element| async move { element.click().await });
    }

    #[track_caller]
    fn type_into(&self, selector: &str, text: &str) {
        self.with(selector, |element| async move {
            element.clear().await?;
            element.send_keys(text).await
        });
    }

    fn text(&self, selector: &str) -> String {
        let reading = async { self.client().find(Locator::Css(selector)).await?.text().await };
        self.runtime.block_on(reading).unwrap_or_default()
    }

    #[track_caller]
    fn shows(&self, selector: &str, text: &str) {
        let shown = within(Duration::from_secs(30), || self.text(selector).contains(text).then_some(()));
        shown.unwrap_or_else(|| panic!("{selector} on {} never says {text:?}, but {:?}", self.path(), self.text(selector)));
    }

    /// Waits for a page, and for its script: before that no key does anything.
    #[track_caller]
    fn comes_to(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        let is_whole = || self.run("return document.readyState") == "complete";
        eventually(what, || (is_there(&self.path()) && is_whole()).then_some(()));
    }

    fn run(&self, script: &str) -> Value {
        self.runtime.block_on(self.client().execute(script, Vec::new())).unwrap()
    }

    /// A key, as if it were pressed on the page.
    fn press(&self, key: &str) {
        self.with("body", |element| async move { element.send_keys(key).await });
    }

    fn shoot(&self, name: &str) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        let image = self.runtime.block_on(self.client().screenshot()).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), image).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            let _ = self.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), client.close()).await });
        }
        if let Some(pid) = Pid::from_raw(self.driver.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        if within(Duration::from_secs(5), || self.driver.try_wait().ok().flatten()).is_none() {
            let _ = self.driver.kill();
            let _ = self.driver.wait();
        }
    }
}

const FILE: &str = r#"
tasks:
  - name: nightly report
    description: Sends what was sold to everybody who wants it
    owner: ada
    group: billing
    trigger: {cron: "30 1 * * *", timezone: America/New_York}
    command: echo sent
  - name: heartbeat
    description: Beats
    owner: ops
    trigger: {fixed_rate: 2s}
    command: echo beat
  - name: doomed
    description: Is given up
    owner: ops
    trigger: manual
    command: echo "this goes wrong" >&2; exit 3
    retry: {max_attempts: 2, first: 1s, jitter: none}
  - name: waits
    trigger: manual
    command: while [ ! -e never ]; do sleep 0.05; done
  - name: warehouse
    description: Loads the warehouse
    owner: data
    group: warehouse
    trigger: manual
    nodes:
      - {name: extract orders, command: "true"}
      - {name: extract customers, command: "true"}
      - {name: check, after: [extract orders, extract customers], command: test -e mended}
      - {name: transform, after: [extract orders, check], command: "true"}
      - {name: load facts, after: transform, command: "true"}
      - {name: load dimensions, after: [extract customers, transform], command: "true"}
      - {name: publish, after: [load facts, load dimensions], command: "true"}
"#;

#[test]
fn a_newcomer_makes_a_task_sees_it_fail_and_mends_it() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let browser = Browser::on(&dev);
    browser.open("/");
    browser.shows("h1", "Overview");
    browser.click("nav a[href='/tasks']");
    browser.click("a[data-new]");

    // What is wrong is said while it is typed, with its place.
    browser.type_into("#document", "name: my first\ntrigger: {cron: \"99 * * * *\"}\ncommand: echo hello\n");
    browser.shows("#checked", "PUN-114");
    browser.shoot("new-task-wrong");
    browser.click("#checked .place");
    assert_eq!(
        browser.run("const t = document.getElementById('document'); return t.value.slice(t.selectionStart, t.selectionEnd)"),
        "trigger: {cron: \"99 * * * *\"}"
    );
    let document =
        "name: my first\ntrigger: manual\ncommand: \"for i in 1 2 3 4 5 6 7 8 9; do echo line $i; sleep 1; done; test -e mended\"\n";
    browser.type_into("#document", document);
    browser.shows("#fine", "my first");
    browser.click("form.editor .button.primary");
    browser.comes_to("the task's page", |path| path == "/tasks/my%20first");
    browser.shows(".flash", "my first is made");

    // It runs, and what it writes comes as it is written.
    browser.click(".drop summary");
    browser.type_into("#trigger-reason", "to see whether it works");
    browser.click(".drop form .button");
    browser.comes_to("the instance's page", |path| path.starts_with("/instances/"));
    let first = browser.path();
    browser.run("window.isTheSame = true");
    browser.shows("pre.log", "line 1");
    browser.shows(".sub", "running");
    assert!(!browser.text("pre.log").contains("line 9"), "it came at once");
    browser.shoot("instance-running");
    browser.shows("pre.log", "line 9");
    browser.shows(".sub", "failed");
    browser.shows(".timeline", "exit code 1");
    assert_eq!(browser.run("return window.isTheSame"), true, "nothing was loaded again");
    browser.shoot("instance-failed");

    // Mended, it is run again.
    folder.write("mended", "");
    browser.click("#rerun");
    browser.type_into("dialog[open] input", "it is mended");
    browser.click("dialog[open] [data-yes]");
    browser.comes_to("the new run", |path| path != first);
    browser.shows(".flash", "runs again");
    browser.shows(".sub", "succeeded");
    browser.shoot("instance-succeeded");
    dev.stop();
}

#[test]
fn a_log_is_shown_as_it_is_written_whatever_is_in_it() {
    let folder = Folder::with(
        "tasks:
  - name: hostile
    trigger: manual
    command: |
      echo '<script>window.hurt = 1</script><img src=x onerror=\"window.hurt = 1\">'
      printf '\\033[31mERROR red\\033[0m bell\\007 \\033]0;title\\007\\n'
      while [ ! -e go ]; do sleep 0.02; done
      echo \"at $(date +%s%N)\"; echo 'WARN </pre><script>window.hurt = 2</script>'
      while [ ! -e end ]; do sleep 0.02; done
      echo last
",
    );
    let dev = folder.dev();
    let browser = Browser::on(&dev);
    let id = dev.cli(&["trigger", "hostile", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
    eventually("lines", || (dev.get(&format!("/api/v1/instances/{id}/logs"))["lines"].as_array()?.len() == 2).then_some(()));
    browser.open(&format!("/instances/{id}"));
    browser.shows("pre.log", "<script>window.hurt = 1</script>");
    browser.shows("pre.log .error .said", "ERROR red bell\u{2407} \u{241b}]0;title\u{2407}");
    // The moment at which a line is there, by the browser's own clock.
    browser.run(
        "new MutationObserver((_, seen) => { const line = [...document.querySelectorAll('.said')].find((one) => one.textContent.startsWith('at ')); \
         if (line) { window.delay = Date.now() - Number(line.textContent.slice(3)) / 1e6; seen.disconnect(); } }) \
         .observe(document.querySelector('pre.log'), { childList: true, subtree: true }); window.isTheSame = true",
    );
    folder.write("go", "");
    browser.shows("pre.log .warn .said", "WARN </pre><script>window.hurt = 2</script>");
    eprintln!("a line is in the browser after {} ms", browser.run("return Math.round(window.delay)"));
    browser.shoot("instance-log");
    folder.write("end", "");
    browser.shows("pre.log", "last");
    browser.shows(".sub", "succeeded");
    assert_eq!(browser.run("return document.querySelectorAll('pre.log .line').length"), 5, "each once");
    assert_eq!(
        browser.run("return [window.hurt ?? 0, window.isTheSame, document.querySelectorAll('pre.log script, pre.log img').length]"),
        json!([0, true, 0])
    );

    // The same from the server, and without script by the address alone.
    browser.open(&format!("/instances/{id}?level=warn"));
    browser.shows("pre.log .error .said", "ERROR red bell\u{2407}");
    assert_eq!(browser.run("return document.querySelectorAll('pre.log .line').length"), 2);
    browser.type_into("#text", "nothing like it");
    browser.click("#log .button");
    browser.shows("#log .none", "No line");
    assert_eq!(browser.run("return window.hurt ?? 0"), 0);
    dev.stop();
}

#[test]
fn what_can_t_be_undone_is_asked_first() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let browser = Browser::on(&dev);
    let id = dev.cli(&["trigger", "waits", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
    browser.open(&format!("/instances/{id}"));
    let cancel = format!("form[action='/instances/{id}/cancel'] button");
    browser.click(&cancel);
    browser.shows("dialog[open] h2", &format!("Cancel instance {id}?"));
    assert_eq!(browser.text("dialog[open] [data-yes]"), "Yes, cancel");
    browser.shoot("confirm");
    browser.click("dialog[open] [value='no']");
    assert_eq!(dev.instance(&id)["state"], "running");
    browser.click(&cancel);
    browser.type_into("dialog[open] input", "wrong customer");
    browser.click("dialog[open] [data-yes]");
    browser.shows(".flash", "is asked to end");
    browser.shows(".timeline", "wrong customer");
    browser.shows(".sub", "cancelled");

    // Several dead letters at once.
    for _ in 0..2 {
        dev.cli(&["trigger", "doomed"]);
    }
    eventually("dead letters", || (dev.get("/api/v1/dead-letters")["dead_letters"].as_array()?.len() == 2).then_some(()));
    browser.open("/dead-letters");
    browser.click("[data-tick-all]");
    browser.shoot("dead-letters");
    browser.click("button[formaction='/dead-letters/discard']");
    browser.click("dialog[open] [data-yes]");
    assert_eq!(browser.run("return document.querySelector('dialog[open] input').matches(':invalid')"), true, "a reason is asked for");
    browser.type_into("dialog[open] input", "nobody needs them");
    browser.click("dialog[open] [data-yes]");
    browser.shows(".flash", "2 discarded");
    dev.stop();
}

#[test]
fn a_workflow_is_followed_and_run_again_from_a_node() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let browser = Browser::on(&dev);
    browser.open("/tasks/warehouse");
    browser.click(".drop summary");
    browser.click(".drop form .button");
    browser.shows(".sub", "failed");
    browser.shows("svg .node.failed", "check");
    browser.shoot("run-failed");
    let run = browser.path();
    browser.click("a:has(> .node.failed)");
    browser.comes_to("the node's instance", |path| path != run);
    browser.shows("h1", "check");
    browser.shows(".timeline", "exit code 1");
    browser.click(".crumbs a:last-child");
    browser.comes_to("the run", |path| path == run);
    folder.write("mended", "");
    browser.click("tbody tr:nth-child(3) form button");
    browser.click("dialog[open] button[value='yes']");
    browser.comes_to("the new run", |path| path != run);
    browser.shows(".sub", "succeeded");
    browser.shows("table", "carried over");
    browser.shoot("run-succeeded");
    dev.stop();
}

#[test]
fn keys_theme_and_language() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let browser = Browser::on(&dev);
    browser.open("/");
    browser.press("?");
    browser.shows("#keys[open] h2", "Keys");
    browser.shoot("keys");
    browser.click("#keys[open] .button");
    browser.press("g");
    browser.press("t");
    browser.comes_to("the tasks", |path| path == "/tasks");
    browser.press("j");
    browser.press("j");
    assert_eq!(browser.run("return document.querySelectorAll('tr.here').length"), 1);
    assert_eq!(browser.text("tr.here th a"), "heartbeat");
    browser.press("/");
    assert_eq!(browser.run("return document.activeElement.id"), "search");
    // Without a mouse: the first thing is the way past the navigation.
    browser.open("/");
    browser.press("\u{e004}");
    assert_eq!(browser.run("return document.activeElement.className"), "skip");
    browser.click("button[value='dark']");
    browser.shows("html[data-theme='dark'] h1", "Overview");
    assert_eq!(browser.run("return getComputedStyle(document.body).colorScheme"), "dark");
    browser.click("button[value='zh']");
    browser.shows("h1", "概览");
    browser.shoot("overview-chinese-dark");
    // Times are in the zone of whoever looks, and say so.
    let time = browser.run("const t = document.querySelector('time'); return [t.textContent, t.title, t.dateTime]");
    assert!(time[1].as_str().unwrap().ends_with(time[2].as_str().unwrap()) && !time[0].as_str().unwrap().contains("UTC"), "{time}");
    dev.stop();
}

/// What has changed comes by the stream, once a second at most; asked by the clock it would take half a minute.
#[test]
fn pages_change_as_things_happen() {
    let folder = Folder::with(FILE);
    let listen = format!("127.0.0.1:{}", punctual_testbed::free_port());
    let dev = folder.dev_with(&["--listen", &listen]);
    let browser = Browser::on(&dev);
    let counts = "window.isTheSame = true; window.asked = 0; const asks = window.fetch; window.fetch = (...all) => { window.asked += 1; return asks(...all); }";
    for (path, selector) in [("/instances?task=doomed", "#live tbody"), ("/tasks/doomed", "#live tbody"), ("/", "#live")] {
        browser.open(path);
        browser.comes_to("the page", |at| path.starts_with(at));
        browser.with("#live[data-stream='all']", |element| async move { element.text().await });
        browser.run(counts);
        let id = dev.cli(&["trigger", "doomed", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
        let begun = Instant::now();
        let shown = format!("{selector} a[href='/instances/{id}']");
        browser.with(&shown, |element| async move { element.text().await });
        assert!(begun.elapsed() < Duration::from_secs(12), "{path}: {:?}", begun.elapsed());
        assert_eq!(browser.run("return window.isTheSame"), true, "{path} was loaded again");
    }
    // Beats change something several times each two seconds.
    let asked = || browser.run("return window.asked").as_i64().unwrap();
    let (before, begun) = (asked(), Instant::now());
    eventually("it is asked again and again", || (asked() >= before + 4).then_some(()));
    assert!(begun.elapsed() > Duration::from_millis(2_500), "four within {:?}", begun.elapsed());
    // A stream that has ended is taken up again, here by another process.
    dev.stop();
    browser.with("#live[data-stream='none']", |element| async move { element.text().await });
    let dev = folder.dev_with(&["--listen", &listen]);
    browser.with("#live[data-stream='all']", |element| async move { element.text().await });
    assert_eq!(browser.run("return window.isTheSame"), true, "it was loaded again");
    // An instance is followed to its end.
    let run = dev.cli(&["trigger", "waits", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
    browser.open(&format!("/instances/{run}"));
    browser.shows(".sub", "running");
    browser.with("#live[data-stream='all']", |element| async move { element.text().await });
    dev.cli(&["kill", &run]);
    browser.shows(".sub", "cancelled");
    // What has ended changes no more, and is not listened to.
    eventually("it does not listen", || {
        (browser.run("return document.getElementById('live').dataset.live ?? null") == Value::Null).then_some(())
    });
    dev.stop();
}

#[test]
fn how_a_task_has_been_is_seen_at_a_glance() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let browser = Browser::on(&dev);
    dev.cli(&["trigger", "doomed"]);
    dev.instance_in("doomed", "dead_lettered");
    browser.open("/tasks?q=is given UP");
    browser.with("tr:has(a[href='/tasks/doomed']) svg.days[aria-label*='0 succeeded, 1 failed'] rect.failed", |bar| async move {
        bar.text().await
    });
    assert_eq!(browser.run("return document.querySelectorAll('tr[data-row]').length"), 1, "one has that in its description");
    browser.click("a[href='/tasks/doomed']");
    browser.comes_to("the task", |path| path == "/tasks/doomed");
    browser.shows("#health", "Last 30 days");
    browser.click(".more-below summary");
    browser.with(".more-below[open] tbody tr", |row| async move { row.text().await });
    assert!(browser.text(".more-below tbody tr").ends_with("0 1 0"), "{}", browser.text(".more-below tbody tr"));
    browser.click("button[value='zh']");
    browser.shows("#health", "近 30 天");
    browser.shoot("task-health-chinese");
    dev.stop();
}

const PASSWORD: &str = "correct horse battery";

fn status_with(dev: &Dev, token: &str, path: &str) -> u16 {
    request(dev.address(), "GET", path, &[("authorization", &format!("Bearer {token}"))], b"").status
}

impl Browser {
    #[track_caller]
    fn sign_in(&self, name: &str, password: &str) {
        self.comes_to("the sign-in", |path| path == "/sign-in");
        self.type_into("#name", name);
        self.type_into("#password", password);
        self.click("form button[type='submit']");
        self.comes_to("behind the sign-in", |path| path != "/sign-in");
    }

    #[track_caller]
    fn sign_out(&self) {
        self.open("/settings");
        self.click("#sign-out");
        self.comes_to("signed out", |path| path == "/sign-in");
    }
}

#[test]
fn an_admin_manages_users_and_tokens_and_others_are_refused() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let browser = Browser::on(&dev);
    browser.open("/users");
    browser.shows(".notice", "There are no users");
    browser.type_into("#name", "root");
    browser.type_into("#password", PASSWORD);
    browser.click("#add-user");
    browser.sign_in("root", PASSWORD);
    browser.comes_to("the user", |path| path == "/users/root");
    browser.shows("#sessions + .scroll", "this one");

    // A password that was made is told once.
    browser.open("/users");
    browser.type_into("#name", "ann");
    browser.click("#add-user");
    browser.shows("h1", "User ann is added.");
    let made = browser.run("return document.getElementById('secret').value").as_str().unwrap().to_owned();
    browser.shoot("user-added");
    browser.open("/users/ann");
    assert!(!browser.run("return document.documentElement.outerHTML").as_str().unwrap().contains(&made));
    browser.shows(".sub", "viewer");
    browser.type_into("#grants", "viewer, boss");
    browser.click("#grant");
    browser.shows(".refusal", "PUN-305");
    browser.open("/users/ann");
    browser.type_into("#grants", "viewer, operator@billing");
    browser.click("#grant");
    browser.shows(".flash", "User ann is changed.");
    browser.shows(".sub", "viewer, operator@billing");

    browser.open("/tokens");
    browser.type_into("main #name", "the deploy script");
    browser.click("#make-token");
    browser.shows("h1", "Token made: the deploy script");
    let token = browser.run("return document.getElementById('secret').value").as_str().unwrap().to_owned();
    assert_eq!(status_with(&dev, &token, "/api/v1/users"), 200);
    browser.click(".refusal .button");
    browser.comes_to("the tokens", |path| path == "/tokens");
    browser.shows("tbody", "the deploy script");
    browser.shoot("tokens");
    browser.click("tbody .danger");
    browser.click("dialog[open] [data-yes]");
    browser.shows(".flash", "is revoked");
    assert_eq!(status_with(&dev, &token, "/api/v1/users"), 401);

    // One's own account.
    let elsewhere = json!({ "name": "root", "password": PASSWORD }).to_string();
    let other = request(dev.address(), "POST", "/api/v1/sign-in", &[("content-type", "application/json")], elsewhere.as_bytes());
    assert_eq!(other.status, 200, "{other:?}");
    browser.open("/settings");
    eventually("both", || (browser.run("return document.querySelectorAll('#sessions + .scroll tbody tr').length") == 2).then_some(()));
    browser.click("#sign-out-others");
    browser.click("dialog[open] [data-yes]");
    browser.shows(".flash", "signed out everywhere but here");
    assert_eq!(browser.run("return document.querySelectorAll('#sessions + .scroll tbody tr').length"), 1);
    for (current, again, told) in [
        ("wrong", "other words than before", "PUN-404"),
        (PASSWORD, "not the same words", "PUN-484"),
        (PASSWORD, "other words than before", ""),
    ] {
        browser.open("/settings");
        browser.type_into("#current", current);
        browser.type_into("main #password", "other words than before");
        browser.type_into("#again", again);
        browser.click("#set-password");
        if told.is_empty() {
            browser.shows(".flash", "The password of root is set");
        } else {
            browser.shows(".refusal", told);
        }
    }
    browser.open("/settings");
    browser.type_into("#zone", "Asia/Tokyo");
    browser.click("section:has(#appearance) .button");
    browser.shows("dd[data-zone]", "Asia/Tokyo");
    let hour = "const t = document.querySelector('dd time'); return [t.textContent.slice(-8, -6), String((new Date(t.dateTime).getUTCHours() + 9) % 24).padStart(2, '0')]";
    let hours = browser.run(hour);
    assert_eq!(hours[0], hours[1], "times are in that zone");
    browser.shoot("settings-signed-in");
    browser.type_into("#zone", "Asia/Nowhere");
    browser.click("section:has(#appearance) .button");
    browser.shows(".refusal", "there is no time zone Asia/Nowhere");

    // Who is no admin is not shown the way, and refused.
    browser.sign_out();
    browser.open("/users");
    browser.sign_in("ann", &made);
    browser.shows("h1", "Not allowed");
    browser.shows(".refusal", "PUN-406");
    assert_eq!(browser.run("return document.querySelector(\"nav a[href='/users']\")"), Value::Null);
    browser.click(".refusal a[href='/errors/PUN-406']");
    browser.comes_to("what it means", |path| path == "/errors/PUN-406");
    browser.shows(".refusal", "What to do:");
    browser.click("button[value='zh']");
    let is_chinese = || browser.run("return document.documentElement.lang").as_str().is_some_and(|lang| lang.starts_with("zh"));
    eventually("the same in Chinese", || is_chinese().then_some(()));
    browser.open("/tokens");
    browser.shows("h1", "令牌");
    browser.shoot("tokens-chinese");
    assert_eq!(browser.run("return document.getElementById('owner')"), Value::Null, "she makes her own only");
    browser.open("/users/root");
    browser.shows("h1", "没有权限");
    browser.sign_out();

    // What an admin does to a user is done at once.
    browser.open("/users/ann");
    browser.sign_in("root", "other words than before");
    browser.click("#disable");
    browser.click("dialog[open] [data-yes]");
    browser.shows(".flash", "用户 ann 已修改");
    browser.click("#remove");
    browser.click("dialog[open] [data-yes]");
    browser.shows(".flash", "用户 ann 已删除");
    browser.open("/audit");
    browser.shows("tbody", "删除用户");
    dev.stop();
}

#[test]
fn who_sees_a_group_sees_its_part_of_each_page() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    dev.cli(&["pause", "doomed", "--why", "of nobody"]);
    dev.cli(&["pause", "--group", "billing", "--why", "the bank is closed"]);
    dev.cli(&["resume", "--group", "billing"]);
    dev.cli(&["pause", "nightly report", "--why", "the bank is closed"]);
    dev.cli(&["trigger", "doomed"]);
    dev.cli(&["trigger", "warehouse"]);
    dev.instance_in("warehouse", "failed");
    let post = |path: &str, headers: &[(&str, &str)], body: Value| {
        let headers = [&[("content-type", "application/json")], headers].concat();
        request(dev.address(), "POST", path, &headers, body.to_string().as_bytes())
    };
    let user = |name: &str, grants: Value| json!({ "name": name, "password": PASSWORD, "grants": grants });
    assert_eq!(post("/api/v1/users", &[], user("root", json!([{ "role": "admin" }]))).status, 201);
    let signed_in = post("/api/v1/sign-in", &[], json!({ "name": "root", "password": PASSWORD }));
    let cookie = signed_in.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap().split(';').next().unwrap().to_owned();
    let csrf = signed_in.json()["csrf"].as_str().unwrap().to_owned();
    let grants = json!([{ "role": "operator", "group": "billing" }, { "role": "viewer", "group": "warehouse" }]);
    let session = [("cookie", &*cookie), ("x-csrf-token", &*csrf)];
    assert_eq!(post("/api/v1/users", &session, user("bo", grants)).status, 201);
    let browser = Browser::on(&dev);
    browser.open("/");
    browser.sign_in("bo", PASSWORD);
    browser.shows("h1", "Overview");
    browser.shows(".sub", "billing, warehouse");
    browser.shows("section:has(#failures)", "warehouse");
    browser.shows("section:has(#concerns)", "nightly report");
    assert!(!browser.text("main").contains("doomed") && !browser.text("main").contains("heartbeat"), "{}", browser.text("main"));
    browser.shoot("overview-of-groups");
    for (path, theirs) in [
        ("/tasks", "nightly report"),
        ("/instances", "warehouse"),
        ("/pauses", "nightly report"),
        ("/audit", "nightly report"),
        ("/calendar", "Calendar"),
        ("/dead-letters", "Dead letters"),
        ("/backfills", "Backfills"),
    ] {
        browser.open(path);
        browser.shows("main", theirs);
        let text = browser.text("main");
        assert!(!text.contains("doomed") && !text.contains("heartbeat") && !text.contains("PUN-"), "{path}: {text}");
    }
    // He operates what is of one of the groups.
    browser.open("/pauses");
    browser.click("tbody form button");
    browser.shows(".flash", "Resumed: nightly report");
    // What is of everything says why it is not theirs.
    for path in ["/workers", "/replicas"] {
        browser.open(path);
        browser.shows(".refusal", "viewer everywhere, and not for some groups only");
    }
    dev.stop();
}

/// The rules of axe-core, where npm can fetch them.
fn axe(folder: &Path) -> Option<String> {
    let run =
        |command: &mut Command| command.current_dir(folder).stdin(Stdio::null()).output().ok().filter(|output| output.status.success());
    run(Command::new("npm").args(["pack", "--silent", AXE]))?;
    let archive = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|kind| kind == "tgz"))?;
    run(Command::new("tar").arg("xzf").arg(&archive).arg("package/axe.min.js"))?;
    std::fs::read_to_string(folder.join("package/axe.min.js")).ok()
}

#[test]
fn every_page_can_be_seen_and_read_by_everybody() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let run = dev.cli(&["trigger", "warehouse", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
    let letter = dev.cli(&["trigger", "doomed", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
    dev.instance_in("doomed", "dead_lettered");
    eventually("the end of the run", || dev.instance(&run)["ended_at"].as_str().map(drop));
    dev.cli(&["pause", "--group", "billing", "--why", "the bank is closed"]);
    dev.cli(&["backfill", "nightly report", "--from", "2026-03-07T00:00:00Z", "--to", "2026-03-10T00:00:00Z"]);
    let (run, letter) = (format!("/instances/{run}"), format!("/instances/{letter}"));
    let pages = [
        ("overview", "/"),
        ("tasks", "/tasks"),
        ("task", "/tasks/nightly%20report"),
        ("task-workflow", "/tasks/warehouse"),
        ("task-new", "/tasks/new"),
        ("instances", "/instances"),
        ("instance", &*letter),
        ("run", &*run),
        ("dead-letters", "/dead-letters"),
        ("backfills", "/backfills"),
        ("pauses", "/pauses"),
        ("workers", "/workers"),
        ("replicas", "/replicas"),
        ("audit", "/audit"),
        ("calendar", "/calendar"),
        ("settings", "/settings"),
        ("users", "/users"),
        ("tokens", "/tokens"),
        ("error-code", "/errors/PUN-406"),
        ("not-there", "/nothing"),
    ];
    let scratch = tempfile::tempdir().unwrap();
    let axe = axe(scratch.path());
    if axe.is_none() {
        eprintln!("{AXE} can't be fetched from npm: the rules of accessibility are not checked");
    }
    let browser = Browser::on(&dev);
    for (theme, sizes) in [("light", [(1440, 1000), (360, 780)]), ("dark", [(1440, 1000), (360, 780)])] {
        browser.open("/settings");
        browser.with("#theme", |element| async move { element.select_by_value(theme).await });
        browser.click("main form .button");
        for (width, height) in sizes {
            browser.size(width, height);
            let device = if width < 500 { "phone" } else { "desktop" };
            for (name, path) in pages {
                browser.open(path);
                browser.shoot(&format!("{name}-{device}-{theme}"));
                let wide = browser.run("const wide = [...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > innerWidth && !one.parentElement.closest('.scroll, pre, .graph, nav')); return [document.documentElement.scrollWidth, innerWidth, wide.map((one) => one.outerHTML.slice(0, 90))]");
                assert!(wide[0].as_i64() <= wide[1].as_i64(), "{path} is wider than a {device}: {wide}");
                let Some(axe) = &axe else { continue };
                let script = format!(
                    "{axe}; const [done] = [...arguments].slice(-1); axe.run().then((found) => done(found.violations.map((one) => [one.impact, one.id, one.nodes.slice(0, 3).map((node) => node.html + ' ' + (node.any[0]?.message ?? ''))])))"
                );
                let found = browser.runtime.block_on(browser.client().execute_async(&script, Vec::new())).unwrap();
                let serious: Vec<_> = found.as_array().unwrap().iter().filter(|one| one[0] == "serious" || one[0] == "critical").collect();
                assert!(serious.is_empty(), "{path} on a {device}, {theme}: {serious:#?}");
            }
        }
    }
    dev.stop();
}

//! The console in a browser: headless Chromium, driven by WebDriver. What people do there with real clicks, how the pages look (screenshots stay
//! in `target/screenshots`), and what axe-core says of them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::error::CmdError;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{Dev, Folder, eventually, within};

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
        ("not-there", "/nothing"),
    ];
    let scratch = tempfile::tempdir().unwrap();
    let axe = axe(scratch.path());
    if axe.is_none() {
        eprintln!("{AXE} can't be fetched from npm: the rules of accessibility are not checked");
    }
    let browser = Browser::on(&dev);
    for (theme, sizes) in [("light", [(1440, 1000), (400, 860)]), ("dark", [(1440, 1000), (400, 860)])] {
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

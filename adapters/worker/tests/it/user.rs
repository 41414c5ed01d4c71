use punctual_core::protocol::End;
use serde_json::json;

use crate::harness::{run, text};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn the_workers_own_user_is_nothing_special() {
    let name = String::from_utf8(std::process::Command::new("id").arg("-un").output().expect("id").stdout).expect("UTF-8");
    let uid = rustix::process::geteuid().as_raw().to_string();
    for user in [name.trim(), &uid] {
        let ended = run("command", json!({"argv": ["id", "-u"], "user": user})).await;
        assert_eq!((ended.end, text(&ended.output).trim()), (End::Succeeded, &*uid), "{:?}", ended.detail);
    }
}

#[tokio::test]
async fn root_runs_programs_as_others_and_others_are_told_that_they_cannot() {
    if !is_root() {
        let ended = run("command", json!({"argv": ["id"], "user": "root"})).await;
        assert_eq!(ended.end, End::FailedForGood);
        assert!(ended.detail.expect("a detail").contains("Start the worker as root"));
        return;
    }
    let line = "id -un; echo $HOME; echo $PUNCTUAL_INSTANCE; echo \"$MINE\"; cat";
    let ended = run("command", json!({"shell": line, "user": "nobody", "env": {"MINE": "a  'b"}, "stdin": "in"})).await;
    assert_eq!(ended.end, End::Succeeded, "{ended:?}");
    let lines: Vec<&str> = text(&ended.output).lines().collect();
    assert_eq!([lines[0], lines[2], lines[3], lines[4]], ["nobody", "0-42", "a  'b", "in"]);
    assert_ne!(lines[1], std::env::var("HOME").unwrap_or_default(), "not the home of root");

    let ended = run("command", json!({"argv": ["sh", "-c", "kill -9 $$"], "user": "nobody"})).await;
    assert_eq!(ended.detail.as_deref(), Some("killed by signal 9 (SIGKILL)"));
    let ended = run("command", json!({"argv": ["printf", "%s|", "--", "a b", "$HOME"], "user": "nobody", "env": {"HOME": "/mine"}})).await;
    assert_eq!(text(&ended.output), "--|a b|$HOME|");
    let ended = run("command", json!({"argv": ["no-such-program-here"], "user": "nobody"})).await;
    assert_eq!(ended.end, End::FailedForGood);
}

#[tokio::test]
async fn another_users_program_has_a_result_and_can_hand_out_nobody_elses_files() {
    if !is_root() {
        return;
    }
    let line = "echo '{\"by\": 1}' > $PUNCTUAL_RESULT; echo $PUNCTUAL_RESULT";
    let ended = run("command", json!({"shell": line, "user": "nobody"})).await;
    assert_eq!((ended.end, ended.detail.as_deref(), ended.result.as_deref()), (End::Succeeded, None, Some(r#"{"by": 1}"#)));
    let folder = std::path::Path::new(text(&ended.output).trim()).parent().expect("a folder");
    assert!(folder.is_absolute() && !folder.exists());

    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), "s3cret").expect("written");
    let line = format!("ln -s {} $PUNCTUAL_RESULT", secret.path().display());
    let ended = run("command", json!({"shell": line, "user": "nobody"})).await;
    assert_eq!((ended.end, ended.result), (End::Succeeded, None));
    assert!(ended.detail.expect("a detail").contains("can't be opened"));
    // A file of root's in the folder: what the system would not let it link to, but somebody may have put there.
    let line = format!("ln {0} $PUNCTUAL_RESULT 2> /dev/null || exit 9", secret.path().display());
    let ended = run("command", json!({"shell": line, "user": "nobody"})).await;
    assert_eq!(ended.result, None, "{ended:?}");
}

#[tokio::test]
async fn a_user_that_is_none_is_named() {
    for user in ["no-such-user", "", "-x", "--help", "a\nb", "root:x", "\u{7}\u{1b}[2J", "root; id", "nul\0"] {
        let ended = run("command", json!({"argv": ["id"], "user": user})).await;
        assert_eq!(ended.end, End::FailedForGood, "{user:?}");
        let detail = ended.detail.expect("a detail");
        assert!(detail.contains("no user") && !detail.contains(['\u{1b}', '\n']), "{detail}");
    }
}

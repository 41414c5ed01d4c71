//! The overview of all commands, by what people want to do.

use std::fmt::Write as _;

use clap::Command;

/// The groups of commands. Each command that is shown is in one of them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Write tasks", &["validate", "apply", "diff", "remove", "export", "rehearse", "cron", "import", "schema"]),
    ("Look", &["get", "describe", "explain", "logs", "status", "doctor"]),
    (
        "Act",
        &[
            "trigger",
            "cancel",
            "kill",
            "skip",
            "rerun",
            "mark-succeeded",
            "mark-failed",
            "backfill",
            "pause",
            "resume",
            "drain",
            "undrain",
            "dead-letters",
        ],
    ),
    ("Run", &["dev", "server", "worker", "migrate", "bench"]),
    ("Set up", &["context", "users", "tokens", "completions", "man", "help"]),
];
/// The width of the names.
const WIDTH: usize = 16;

/// The command with its overview.
pub(super) fn grouped(command: Command) -> Command {
    let mut text = String::from("{about}\n\n{usage-heading} {usage}\n");
    for (title, names) in GROUPS {
        let _ = write!(text, "\n{title}:\n");
        for name in *names {
            let about = match command.find_subcommand(name).and_then(Command::get_about) {
                Some(about) => about.to_string(),
                None => "Print this overview, or the help of a command".to_owned(),
            };
            let first = about.split_once(". ").map_or(about.as_str(), |(first, _)| first);
            let _ = writeln!(text, "  {name:<WIDTH$}{}", first.trim_end_matches('.'));
        }
    }
    text += "\nOptions:\n{options}{after-help}";
    command.help_template(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_that_is_shown_is_in_one_group() {
        let command = Cli::command();
        let shown: BTreeSet<_> = command.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
        let grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().filter(|name| *name != "help").collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), shown);
        assert_eq!(grouped.len(), shown.len(), "none twice");
        assert!(grouped.iter().all(|name| name.len() < WIDTH));
    }

    /// With an example each, also those of commands that have some of their own.
    #[test]
    fn docs_cli_md_has_every_command() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).expect("the page");
        fn look(command: &Command, path: &str, page: &str, missing: &mut Vec<String>) {
            for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
                let path = format!("{path} {}", below.get_name());
                let is_there =
                    page.lines().any(|line| line.strip_prefix(&*path).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')));
                if !is_there {
                    missing.push(path.clone());
                }
                look(below, &path, page, missing);
            }
        }
        let mut missing = Vec::new();
        look(&Cli::command(), "punctual", &page, &mut missing);
        assert_eq!(missing, [""; 0]);
        // And nothing that there is not.
        for line in page.lines().filter(|line| line.starts_with("punctual ")) {
            let words = line.split(" #").next().unwrap_or_default().split('>').next().unwrap_or_default();
            let mut command = &Cli::command();
            for word in words.split_whitespace().skip(1) {
                let Some(below) = command.find_subcommand(word) else { break };
                command = below;
            }
            assert_ne!(command.get_name(), "punctual", "{line}");
            let known: Vec<String> =
                command.get_arguments().filter_map(|argument| argument.get_long().map(|long| format!("--{long}"))).collect();
            for option in words.split_whitespace().filter(|word| word.starts_with("--")) {
                assert!(known.iter().any(|known| known == option), "{line}: {option} is none of {known:?}");
            }
        }
    }
}

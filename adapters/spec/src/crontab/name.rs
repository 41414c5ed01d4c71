//! Names for imported tasks: the same lines get the same names, however often and in whatever order they are imported.

use std::collections::{HashMap, HashSet};

use super::Candidate;
use crate::handler::{CommandConfig, Program};
use crate::spec::{Handler, Trigger};

/// Longest part of a name that comes from the file or from the command, in characters.
const PART_CHARS_MAX: usize = 48;

/// A name for each candidate: the file's name and the command's first word. Where that names several lines, each also gets a hash of
/// what it runs and when; lines that are the same to the letter are numbered.
pub(super) fn names(file: &str, candidates: &[Candidate]) -> Vec<String> {
    let stem = file.rsplit('/').next().unwrap_or_default();
    let stem = clean(stem.strip_suffix(".crontab").unwrap_or(stem));
    let bases: Vec<String> = candidates.iter().map(|candidate| base(&stem, candidate)).collect();
    let mut uses: HashMap<&str, usize> = HashMap::new();
    bases.iter().for_each(|base| *uses.entry(base).or_default() += 1);
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut taken: HashSet<String> = HashSet::new();
    let mut names = Vec::with_capacity(candidates.len());
    for (base, candidate) in bases.iter().zip(candidates) {
        let name = if uses[base.as_str()] == 1 { base.clone() } else { format!("{base}-{:08x}", hash(candidate)) };
        let number = numbers.entry(name.clone()).or_default();
        // A name with a number may be another line's first word, hence the loop.
        let unique = loop {
            *number += 1;
            let numbered = if *number == 1 { name.clone() } else { format!("{name}-{number}") };
            if taken.insert(numbered.clone()) {
                break numbered;
            }
        };
        names.push(unique);
    }
    names
}

fn base(stem: &str, candidate: &Candidate) -> String {
    let command = config(candidate).map_or("", |config| match &config.program {
        Program::Shell(line) => line.as_str(),
        Program::Argv(argv) => argv.first().map_or("", String::as_str),
    });
    let word = clean(first_word(command).rsplit('/').find(|part| !part.is_empty()).unwrap_or_default());
    match (stem.is_empty(), word.is_empty()) {
        (false, false) => format!("{stem}-{word}"),
        (false, true) => format!("{stem}-line"),
        (true, false) => word,
        (true, true) => format!("line-{}", candidate.line),
    }
}

fn config(candidate: &Candidate) -> Option<&CommandConfig> {
    match &candidate.spec.handler {
        Handler::Command(config) => Some(config),
        _ => None,
    }
}

/// The first word that says what is run: past variables, tests, changes of folder, and helpers such as `sudo`.
fn first_word(command: &str) -> &str {
    const PASSED: [&str; 11] = ["sudo", "nice", "ionice", "exec", "env", "time", "nohup", "chronic", "(", "{", "!"];
    let is_variable = |word: &str| word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_alphanumeric() || c == '_'));
    let parts = command.split(['&', '|', ';']).filter(|part| !part.trim().is_empty());
    let mut first = "";
    for part in parts {
        let word = part.split_ascii_whitespace().find(|word| !is_variable(word) && !PASSED.contains(word) && !word.starts_with('-'));
        let word = word.unwrap_or_default().trim_matches(['(', ')', '"', '\'', '{', '}']);
        if first.is_empty() {
            first = word;
        }
        if !["test", "[", "[[", "cd", "export", ".", "source", ":", "if", ""].contains(&word) {
            return word;
        }
    }
    first
}

/// Letters, digits, dots, hyphens and underscores; everything else becomes one hyphen.
fn clean(text: &str) -> String {
    let mut clean = String::new();
    for c in text.chars().take(PART_CHARS_MAX) {
        if c.is_alphanumeric() || matches!(c, '.' | '_') {
            clean.push(c);
        } else if !clean.ends_with('-') && !clean.is_empty() {
            clean.push('-');
        }
    }
    clean.trim_end_matches('-').to_owned()
}

/// FNV-1a over when, as whom and what, folded to 32 bits: the same on every machine, for ever.
fn hash(candidate: &Candidate) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    if let Trigger::Cron(cron) = &candidate.spec.trigger {
        add(&cron.cron);
        add(&cron.timezone);
    }
    if let Some(config) = config(candidate) {
        if let Program::Shell(line) = &config.program {
            add(line);
        }
        add(config.user.as_deref().unwrap_or_default());
        add(config.stdin.as_deref().unwrap_or_default());
    }
    (hash ^ (hash >> 32)) as u32
}

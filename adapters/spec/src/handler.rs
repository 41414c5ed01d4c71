//! The configurations of the built-in handlers: written in task files, read by the worker that runs them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// The name under which workers announce the command handler.
pub const COMMAND: &str = "command";
/// The name under which workers announce the HTTP handler.
pub const HTTP: &str = "http";
/// The name under which workers announce the handler that does nothing.
pub const NOOP: &str = "noop";

/// Runs a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandConfig {
    /// What to run.
    #[serde(flatten)]
    pub program: Program,
    /// Added to the worker's own environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where to run it; the worker's own directory where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// What the program reads; the payload where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Whom to run it as; only root may run programs as somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Exit codes that mean success.
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub success_codes: Vec<u8>,
}

impl CommandConfig {
    /// This program, with nothing else said.
    pub fn of(program: Program) -> Self {
        CommandConfig { program, env: BTreeMap::new(), working_directory: None, stdin: None, user: None, success_codes: zero() }
    }
}

fn zero() -> Vec<u8> {
    vec![0]
}

fn is_zero(codes: &Vec<u8>) -> bool {
    codes == &[0]
}

/// A program with its arguments, or a line for a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// The program and its arguments, with no shell between.
    Argv(Vec<String>),
    /// A line for a shell: the program at `env.SHELL` where the task sets that, else `/bin/sh`.
    Shell(String),
}

/// Makes an HTTP call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// `http` or `https`.
    pub url: String,
    /// GET where it is left out.
    #[serde(default)]
    pub method: Method,
    /// Added to the worker's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What is sent; the payload where it is left out, unless the method is GET or HEAD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Statuses that mean success, as numbers or ranges such as `200-299`, which is the default.
    #[serde(default = "two_hundreds", skip_serializing_if = "is_two_hundreds")]
    pub success_statuses: Vec<String>,
    /// Where redirects may lead.
    #[serde(default)]
    pub redirects: Redirects,
}

fn two_hundreds() -> Vec<String> {
    vec!["200-299".to_owned()]
}

fn is_two_hundreds(statuses: &Vec<String>) -> bool {
    statuses == &["200-299"]
}

impl HttpConfig {
    /// The statuses that mean success, 100 to 599.
    ///
    /// # Errors
    ///
    /// In words, which of [`HttpConfig::success_statuses`] is neither a status nor a range of them.
    pub fn success_ranges(&self) -> Result<Vec<RangeInclusive<u16>>, String> {
        let status = |text: &str| text.trim().parse().ok().filter(|status| (100..=599).contains(status));
        let range = |text: &String| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            match (status(first), status(last)) {
                (Some(first), Some(last)) if first <= last => Ok(first..=last),
                _ => Err(format!("{text:?} is neither a status, such as 404, nor a range of them, such as 200-299")),
            }
        };
        self.success_statuses.iter().map(range).collect()
    }
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

/// Where redirects may lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Redirects {
    /// Nowhere: a redirect is the answer.
    None,
    /// To the same scheme, host and port.
    #[default]
    SameOrigin,
    /// Anywhere.
    Any,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_either_a_line_or_arguments() {
        let read = serde_json::from_str::<CommandConfig>;
        let command = read(r#"{"argv": ["a", "b"], "env": {"A": "1"}}"#).expect("a command");
        assert_eq!(command.program, Program::Argv(vec!["a".into(), "b".into()]));
        assert_eq!(command.success_codes, [0]);
        assert_eq!(read(r#"{"shell": "a | b"}"#).expect("a command").program, Program::Shell("a | b".into()));
        assert_eq!(serde_json::to_string(&command).expect("JSON"), r#"{"argv":["a","b"],"env":{"A":"1"}}"#);
        for wrong in [r#"{}"#, r#"{"argv": ["a"], "shell": "a"}"#, r#"{"shell": "a", "colour": "red"}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn statuses_are_single_or_ranges() {
        let ranges = |statuses: &[&str]| {
            let list = serde_json::to_string(statuses).expect("JSON");
            let config = format!(r#"{{"url": "http://x", "success_statuses": {list}}}"#);
            serde_json::from_str::<HttpConfig>(&config).expect("a call").success_ranges()
        };
        assert_eq!(ranges(&["200-299", "404"]), Ok(vec![200..=299, 404..=404]));
        for wrong in ["", "2xx", "299-200", "99", "600", "200-", "-200", "+200-299-1"] {
            assert!(ranges(&[wrong]).is_err(), "{wrong}");
        }
    }
}

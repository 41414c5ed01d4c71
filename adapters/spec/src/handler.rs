//! The configurations of the built-in handlers: written in task files, read by the worker that runs them.

use std::collections::BTreeMap;

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

//! `punctual context`: clusters by name, with a token each, in a file that only its user reads.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Exit;
use super::accounts::secret_line;
use super::client::ApiArgs;
use super::output::Output;
use super::remote::table;

/// Where commands go to that name nothing.
const HERE: &str = "http://127.0.0.1:8650";
/// Others than the file's owner.
const OTHERS: u32 = 0o077;

/// What is wrong with the contexts.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ContextError {
    #[error("PUN-419: the contexts can't be read from {file}: {reason}")]
    Unreadable { file: String, reason: String },
    #[error("PUN-419: the contexts can't be written to {file}: {reason}")]
    Unwritable { file: String, reason: String },
    #[error("PUN-419: others can read {file}, and it has tokens. Take that from them with `chmod 600 {file}`, and make new tokens")]
    Open { file: String },
    #[error("PUN-419: there is no folder for the contexts: set HOME or XDG_CONFIG_HOME")]
    NoFolder,
    #[error("PUN-420: there is no context {name:?}; `punctual context list` shows all")]
    NoSuchContext { name: String },
}

impl ContextError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            ContextError::NoSuchContext { .. } => "PUN-420",
            _ => "PUN-419",
        }
    }
}

/// One cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Context {
    api: String,
    token: Option<String>,
    #[serde(default)]
    plain_http: bool,
}

/// The file.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
struct Contexts {
    current: Option<String>,
    contexts: BTreeMap<String, Context>,
}

/// Where a command goes to, and what it shows there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) api: String,
    pub(crate) token: Option<String>,
    pub(crate) plain_http: bool,
}

/// Where these arguments lead. A context's token goes to the context's address only.
pub(crate) fn target(args: &ApiArgs) -> Result<Target, ContextError> {
    let contexts = match (&args.context, &args.api) {
        (None, Some(_)) => Contexts::default(),
        (Some(_), _) => Contexts::read(&file().ok_or(ContextError::NoFolder)?)?,
        (None, None) => file().map_or(Ok(Contexts::default()), |file| Contexts::read(&file))?,
    };
    resolve(&contexts, args)
}

fn resolve(contexts: &Contexts, args: &ApiArgs) -> Result<Target, ContextError> {
    let token = args.token.clone();
    let name = match (&args.context, &args.api) {
        (Some(name), _) => Some(name),
        (None, Some(api)) => return Ok(Target { api: api.clone(), token, plain_http: args.plain_http }),
        (None, None) => contexts.current.as_ref(),
    };
    let Some(name) = name else { return Ok(Target { api: HERE.to_owned(), token, plain_http: args.plain_http }) };
    let context = contexts.contexts.get(name).ok_or_else(|| ContextError::NoSuchContext { name: name.clone() })?.clone();
    Ok(Target { api: context.api, token: token.or(context.token), plain_http: args.plain_http || context.plain_http })
}

fn file() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = from("XDG_CONFIG_HOME").or_else(|| from("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("punctual").join("contexts.toml"))
}

impl Contexts {
    fn read(file: &Path) -> Result<Contexts, ContextError> {
        let shown = || file.display().to_string();
        let unreadable = |reason: String| ContextError::Unreadable { file: shown(), reason };
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Contexts::default()),
            text => text.map_err(|error| unreadable(error.to_string()))?,
        };
        let contexts: Contexts = toml::from_str(&text).map_err(|error| unreadable(error.message().to_owned()))?;
        let mode = std::fs::metadata(file).map_err(|error| unreadable(error.to_string()))?.permissions().mode();
        if mode & OTHERS != 0 && contexts.contexts.values().any(|context| context.token.is_some()) {
            return Err(ContextError::Open { file: shown() });
        }
        Ok(contexts)
    }

    /// Puts a whole new file in place of the old one, which nobody else could read at any time.
    fn write(&self, file: &Path) -> Result<(), ContextError> {
        let written = (|| {
            let folder = file.parent().unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder)?;
            let mut new = tempfile::NamedTempFile::new_in(folder)?;
            new.write_all(toml::to_string(self).map_err(std::io::Error::other)?.as_bytes())?;
            new.as_file().set_permissions(std::fs::Permissions::from_mode(0o600))?;
            new.persist(file).map_err(|error| error.error)
        })();
        written.map(drop).map_err(|error| ContextError::Unwritable { file: file.display().to_string(), reason: error.to_string() })
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct ContextArgs {
    #[command(subcommand)]
    command: ContextCommand,
}

#[derive(clap::Subcommand, Debug)]
enum ContextCommand {
    /// Add a cluster, or change one. The first one is used from then on.
    Add(AddArgs),
    /// Choose the cluster that commands go to.
    Use {
        /// Its name
        name: String,
    },
    /// List clusters. Tokens are not shown.
    List {
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Forget a cluster and its token. The token itself stays good until it is revoked.
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(clap::Args, Debug)]
struct AddArgs {
    /// What to call it
    name: String,
    /// The address of its API
    #[arg(long, value_name = "URL")]
    api: String,
    /// Read a token from the standard input
    #[arg(long)]
    token_stdin: bool,
    /// Send the token without TLS to another machine
    #[arg(long)]
    plain_http: bool,
}

impl ContextArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        match self.command.done(output) {
            Ok(()) => Exit::Done,
            Err(error) => {
                output.remark(error);
                Exit::Found
            }
        }
    }
}

impl ContextCommand {
    fn done(self, output: &mut Output) -> Result<(), ContextError> {
        let file = file().ok_or(ContextError::NoFolder)?;
        let mut contexts = Contexts::read(&file)?;
        let known = |contexts: &Contexts, name: &String| match contexts.contexts.contains_key(name) {
            true => Ok(()),
            false => Err(ContextError::NoSuchContext { name: name.clone() }),
        };
        match self {
            ContextCommand::Add(AddArgs { name, api, token_stdin, plain_http }) => {
                let unreadable = |reason: String| ContextError::Unreadable { file: "the standard input".to_owned(), reason };
                let token = match token_stdin {
                    true => Some(secret_line("Token: ").map_err(|error| unreadable(error.to_string()))?),
                    false => contexts.contexts.get(&name).filter(|context| context.api == api).and_then(|context| context.token.clone()),
                };
                contexts.contexts.insert(name.clone(), Context { api, token, plain_http });
                contexts.current.get_or_insert(name.clone());
                contexts.write(&file)?;
                output.line(format_args!("context {name} is written to {}", file.display()));
            }
            ContextCommand::Use { name } => {
                known(&contexts, &name)?;
                contexts.current = Some(name.clone());
                contexts.write(&file)?;
                output.line(format_args!("commands go to {name}"));
            }
            ContextCommand::Remove { name } => {
                known(&contexts, &name)?;
                contexts.contexts.remove(&name);
                contexts.current = contexts.current.filter(|current| *current != name);
                contexts.write(&file)?;
                output.line(format_args!("context {name} is removed"));
            }
            ContextCommand::List { json } => {
                let is_current = |name: &String| contexts.current.as_ref() == Some(name);
                let all = contexts.contexts.iter();
                if json {
                    let rows = all.map(|(name, context)| {
                        json!({ "name": name, "api": context.api, "current": is_current(name), "token": context.token.is_some() })
                    });
                    output.json(&json!({ "contexts": rows.collect::<Vec<_>>() }));
                    return Ok(());
                }
                let mut shown = table(["", "NAME", "API", "TOKEN"]);
                for (name, context) in all {
                    let token = if context.token.is_some() { "yes" } else { "" };
                    shown.add_row([if is_current(name) { "*" } else { "" }, name, &context.api, token]);
                }
                output.line(shown);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> Contexts {
        let context = |api: &str, token: Option<&str>| Context { api: api.into(), token: token.map(Into::into), plain_http: false };
        let contexts = [("prod", context("https://prod", Some("pun_p"))), ("test", context("https://test", None))];
        Contexts { current: Some("prod".into()), contexts: contexts.map(|(name, context)| (name.to_owned(), context)).into() }
    }

    fn led(api: Option<&str>, token: Option<&str>, context: Option<&str>) -> Result<(String, Option<String>), ContextError> {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let args = ApiArgs { api: text(api), token: text(token), context: text(context), ..ApiArgs::default() };
        resolve(&contexts(), &args).map(|target| (target.api, target.token))
    }

    #[test]
    fn a_context_s_token_goes_to_its_address_only() {
        let to = |api: &str, token: Option<&str>| (api.to_owned(), token.map(str::to_owned));
        assert_eq!(led(None, None, None).unwrap(), to("https://prod", Some("pun_p")));
        assert_eq!(led(None, Some("pun_x"), None).unwrap(), to("https://prod", Some("pun_x")));
        assert_eq!(led(Some("http://other"), None, None).unwrap(), to("http://other", None), "not to another address");
        assert_eq!(led(Some("http://other"), None, Some("test")).unwrap(), to("https://test", None));
        assert_eq!(led(None, None, Some("prod")).unwrap(), to("https://prod", Some("pun_p")));
        assert_eq!(led(None, None, Some("none")).expect_err("there is none").code(), "PUN-420");
        assert_eq!(resolve(&Contexts::default(), &ApiArgs::default()).unwrap().api, HERE);
    }

    #[test]
    fn only_its_user_reads_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("punctual/contexts.toml");
        assert_eq!(Contexts::read(&file).unwrap(), Contexts::default());
        contexts().write(&file).unwrap();
        assert_eq!(Contexts::read(&file).unwrap(), contexts());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Contexts::read(&file), Err(ContextError::Open { .. })));
        // Writing makes it right again.
        contexts().write(&file).unwrap();
        assert!(Contexts::read(&file).is_ok());
        std::fs::write(&file, "current = 5").unwrap();
        assert!(matches!(Contexts::read(&file), Err(ContextError::Unreadable { .. })));
    }
}

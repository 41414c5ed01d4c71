//! `punctual users` and `punctual tokens`.

use std::io::{BufRead, IsTerminal, Write};

use punctual_core::time::Millis;
use serde_json::{Value, json};

use super::Exit;
use super::ask::field;
use super::client::{ApiArgs, Client, ClientError};
use super::output::Output;
use super::remote::{Printed, answer, pretty, table, text, user};
use crate::identity::{Grant, Role};

/// A role, in one group or everywhere: `operator`, `operator@billing`.
#[derive(Clone, Debug)]
pub(super) struct GrantArg {
    role: String,
    group: Option<String>,
}

impl GrantArg {
    /// As it is checked.
    pub(super) fn to_grant(&self) -> Grant {
        let role = Role::from_name(&self.role).unwrap_or(Role::Viewer);
        Grant { role, group: self.group.as_deref().map(Into::into) }
    }
}

pub(super) fn grant(text: &str) -> Result<GrantArg, String> {
    let (role, group) = text.split_once('@').map_or((text, None), |(role, group)| (role, Some(group)));
    let known = Role::from_name(role).is_some();
    if !known || group.is_some_and(str::is_empty) {
        return Err("write viewer, operator, editor or admin, and @GROUP behind it for one group of tasks only".to_owned());
    }
    Ok(GrantArg { role: role.to_owned(), group: group.map(str::to_owned) })
}

fn asked(grants: &[GrantArg]) -> Value {
    grants.iter().map(|grant| json!({ "role": grant.role, "group": grant.group })).collect()
}

fn duration(text: &str) -> Result<Millis, String> {
    punctual_spec::duration::parse(text).map_err(|error| error.to_string())
}

/// A line of the standard input; on a terminal it is asked for, and not shown.
pub(super) fn secret_line(prompt: &str) -> std::io::Result<String> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = std::io::stdin();
    let shown = if stdin.is_terminal() { tcgetattr(&stdin).ok() } else { None };
    if let Some(mut hidden) = shown.clone() {
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
        write!(std::io::stderr(), "{prompt}")?;
    }
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    if let Some(shown) = shown {
        tcsetattr(&stdin, OptionalActions::Now, &shown)?;
        writeln!(std::io::stderr())?;
    }
    if read? == 0 {
        return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "nothing was given"));
    }
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// The same, for commands that ask.
fn secret(prompt: &str) -> Result<String, ClientError> {
    secret_line(prompt).map_err(|_| ClientError::Unfit { field: "the standard input", problem: "a password is read from it, a line" })
}

fn grants_text(value: &Value) -> String {
    let one = |grant: &Value| match grant["group"].as_str() {
        Some(_) => format!("{}@{}", text(&grant["role"]), text(&grant["group"])),
        None => text(&grant["role"]),
    };
    value.as_array().into_iter().flatten().map(one).collect::<Vec<_>>().join(", ")
}

#[derive(clap::Args, Debug)]
pub(crate) struct UsersArgs {
    #[command(subcommand)]
    command: UsersCommand,
}

#[derive(clap::Subcommand, Debug)]
enum UsersCommand {
    /// Add a user. From the first one on everybody signs in.
    Add(AddArgs),
    /// List users.
    List(UsersListArgs),
    /// Keep a user from signing in; their sessions end.
    Disable(UserArgs),
    /// Let a user sign in again.
    Enable(UserArgs),
    /// Sign a user out everywhere; their tokens stay.
    SignOut(UserArgs),
    /// Set a password; other sessions of the user end.
    Passwd(PasswdArgs),
    /// Say what a user may do from now on, in place of what they might until now.
    Grant(GrantArgs),
    /// Remove a user, with their sessions and tokens.
    Remove(UserArgs),
}

#[derive(clap::Args, Debug)]
struct AddArgs {
    /// Their name
    name: String,
    /// What they may do: a role, and @GROUP behind it for one group of tasks only; may be given several times
    #[arg(long = "grant", value_name = "ROLE[@GROUP]", value_parser = grant)]
    grants: Vec<GrantArg>,
    /// Read the password from the standard input; without this one is made and printed
    #[arg(long)]
    password_stdin: bool,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl AddArgs {
    async fn ask(&self) -> Printed {
        let password = if self.password_stdin { Some(secret("Password: ")?) } else { None };
        let body = json!({ "name": self.name, "password": password, "grants": asked(&self.grants), "by": user(), "reason": self.reason });
        let added = Client::new(&self.api).post(&["users"], None, &body).await?;
        if self.api.json {
            return Ok(pretty(&added));
        }
        let password = added["password"].as_str().map(|password| format!("\npassword   {password}")).unwrap_or_default();
        Ok(format!("{} is added: {}{password}", text(&added["name"]), grants_text(&added["grants"])))
    }
}

#[derive(clap::Args, Debug)]
struct UsersListArgs {
    #[command(flatten)]
    api: ApiArgs,
}

impl UsersListArgs {
    async fn ask(&self) -> Printed {
        let users = Client::new(&self.api).all("users", &[]).await?;
        if self.api.json {
            return Ok(pretty(&json!({ "users": users })));
        }
        let mut shown = table(["NAME", "MAY", "STATE", "ADDED"]);
        for user in &users {
            let state = if user["disabled"] == true { "disabled" } else { "" };
            shown.add_row([text(&user["name"]), grants_text(&user["grants"]), state.to_owned(), field(user, "created_at")]);
        }
        Ok(shown.to_string())
    }
}

#[derive(clap::Args, Debug)]
struct UserArgs {
    /// Their name
    name: String,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl UserArgs {
    async fn set_disabled(&self, disabled: bool) -> Printed {
        let body = json!({ "disabled": disabled, "by": user(), "reason": self.reason });
        let edited = Client::new(&self.api).patch(&["users", &self.name], &body).await?;
        if self.api.json {
            return Ok(pretty(&edited));
        }
        Ok(format!("{} is {}", self.name, if disabled { "disabled" } else { "enabled" }))
    }

    async fn sign_out(&self) -> Printed {
        let body = json!({ "by": user(), "reason": self.reason });
        let ended = Client::new(&self.api).delete(&["users", &self.name, "sessions"], &body).await?;
        Ok(if self.api.json { pretty(&ended) } else { format!("{} is signed out everywhere", self.name) })
    }

    async fn remove(&self) -> Printed {
        let removed = Client::new(&self.api).delete(&["users", &self.name], &json!({ "by": user(), "reason": self.reason })).await?;
        Ok(if self.api.json { pretty(&removed) } else { format!("{} is removed", self.name) })
    }
}

#[derive(clap::Args, Debug)]
struct PasswdArgs {
    /// Whose
    name: String,
    /// Set it as an admin, without the one until now
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl PasswdArgs {
    async fn ask(&self) -> Printed {
        let mut client = Client::new(&self.api);
        let current = if self.reset { None } else { Some(secret("Password until now: ")?) };
        let password = secret("New password: ")?;
        if let Some(current) = &current {
            client.sign_in(&self.name, current).await?;
        }
        let body = json!({ "password": password, "current": current, "by": user() });
        let set = client.put(&["users", &self.name, "password"], &body).await?;
        if current.is_some() {
            client.post(&["sign-out"], None, &json!({})).await?;
        }
        Ok(if self.api.json { pretty(&set) } else { format!("the password of {} is set; their other sessions have ended", self.name) })
    }
}

#[derive(clap::Args, Debug)]
struct GrantArgs {
    /// Who
    name: String,
    /// A role, and @GROUP behind it for one group of tasks only; none: nothing
    #[arg(value_name = "ROLE[@GROUP]", value_parser = grant)]
    grants: Vec<GrantArg>,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl GrantArgs {
    async fn ask(&self) -> Printed {
        let body = json!({ "grants": asked(&self.grants), "by": user(), "reason": self.reason });
        let edited = Client::new(&self.api).patch(&["users", &self.name], &body).await?;
        if self.api.json {
            return Ok(pretty(&edited));
        }
        let may = grants_text(&edited["grants"]);
        Ok(format!("{} may from now on: {}", self.name, if may.is_empty() { "nothing" } else { &may }))
    }
}

impl UsersArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        use UsersCommand::{Add, Disable, Enable, Grant, List, Passwd, Remove, SignOut};
        match self.command {
            Add(args) => answer(output, args.api.json, async move { args.ask().await }),
            List(args) => answer(output, args.api.json, async move { args.ask().await }),
            Disable(args) => answer(output, args.api.json, async move { args.set_disabled(true).await }),
            Enable(args) => answer(output, args.api.json, async move { args.set_disabled(false).await }),
            SignOut(args) => answer(output, args.api.json, async move { args.sign_out().await }),
            Passwd(args) => answer(output, args.api.json, async move { args.ask().await }),
            Grant(args) => answer(output, args.api.json, async move { args.ask().await }),
            Remove(args) => answer(output, args.api.json, async move { args.remove().await }),
        }
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    command: TokensCommand,
}

#[derive(clap::Subcommand, Debug)]
enum TokensCommand {
    /// Make a token, which is printed this once.
    Create(CreateArgs),
    /// List tokens that have not expired.
    List(TokensListArgs),
    /// Revoke a token.
    Revoke(RevokeArgs),
}

#[derive(clap::Args, Debug)]
struct CreateArgs {
    /// What it is for
    name: String,
    /// Sign in with this name, and a password that is read from the standard input
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// As an admin: whose it is
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// What it is good for: a role, and @GROUP behind it; may be given several times. Left out, it is what its owner may
    #[arg(long = "grant", value_name = "ROLE[@GROUP]", value_parser = grant)]
    grants: Vec<GrantArg>,
    /// How long it is good, such as 90d
    #[arg(long, default_value = "90d", value_name = "DURATION", value_parser = duration)]
    expires_in: Millis,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl CreateArgs {
    async fn ask(&self) -> Printed {
        let mut client = Client::new(&self.api);
        if let Some(name) = &self.user {
            client.sign_in(name, &secret("Password: ")?).await?;
        }
        let grants = (!self.grants.is_empty()).then(|| asked(&self.grants));
        let seconds = self.expires_in.0.div_ceil(1_000);
        let body = json!({
            "name": self.name, "owner": self.owner, "grants": grants, "expires_in_s": seconds, "by": user(), "reason": self.reason,
        });
        let made = client.post(&["tokens"], None, &body).await;
        if self.user.is_some() {
            client.post(&["sign-out"], None, &json!({})).await?;
        }
        let made = made?;
        if self.api.json {
            return Ok(pretty(&made));
        }
        // The token alone, for whatever reads it.
        Ok(text(&made["token"]))
    }
}

#[derive(clap::Args, Debug)]
struct TokensListArgs {
    /// As an admin: of this user
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    owner: Option<String>,
    /// As an admin: of all users
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl TokensListArgs {
    async fn ask(&self) -> Printed {
        let mut query = vec![("all", self.all.to_string())];
        query.extend(self.owner.clone().map(|owner| ("owner", owner)));
        let tokens = Client::new(&self.api).all("tokens", &query).await?;
        if self.api.json {
            return Ok(pretty(&json!({ "tokens": tokens })));
        }
        let mut shown = table(["ID", "NAME", "OWNER", "MAY", "EXPIRES", "USED"]);
        for token in &tokens {
            let fields = [&token["id"], &token["name"], &token["owner"]].map(text);
            let [id, name, owner] = fields;
            shown.add_row([id, name, owner, grants_text(&token["grants"]), field(token, "expires_at"), field(token, "used_at")]);
        }
        Ok(shown.to_string())
    }
}

#[derive(clap::Args, Debug)]
struct RevokeArgs {
    /// The token's number
    id: u64,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl RevokeArgs {
    async fn ask(&self) -> Printed {
        let body = json!({ "by": user(), "reason": self.reason });
        let revoked = Client::new(&self.api).delete(&["tokens", &self.id.to_string()], &body).await?;
        Ok(if self.api.json { pretty(&revoked) } else { format!("token {} is revoked", self.id) })
    }
}

impl TokensArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        use TokensCommand::{Create, List, Revoke};
        match self.command {
            Create(args) => answer(output, args.api.json, async move { args.ask().await }),
            List(args) => answer(output, args.api.json, async move { args.ask().await }),
            Revoke(args) => answer(output, args.api.json, async move { args.ask().await }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_roles_with_a_group_behind_them() {
        let read = |text: &str| grant(text).ok().map(|grant| (grant.role, grant.group));
        assert_eq!(read("viewer"), Some(("viewer".to_owned(), None)));
        assert_eq!(read("operator@a@b"), Some(("operator".to_owned(), Some("a@b".to_owned()))));
        for bad in ["", "root", "Viewer", "viewer@", "@billing"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}

//! Running a program as another user.

use std::path::{Path, PathBuf};

use tokio::process::Command;

/// A line of the user database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: String,
    pub(crate) shell: String,
}

/// Whom a program is to be run as.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RunAs {
    /// The worker's own user.
    Myself,
    /// Somebody else, by way of `setpriv`.
    Other {
        /// The user.
        account: Account,
        /// Where `setpriv` is.
        setpriv: PathBuf,
    },
}

/// Why a program can't be run as a user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    #[error("there is no user {0:?} on this worker. Make the user, or correct `user`")]
    Unknown(String),
    #[error(
        "the worker runs as user {own} and can't run programs as {wanted:?}. Start the worker as root or as that user, or leave `user` out"
    )]
    NotRoot { own: u32, wanted: String },
    #[error("`setpriv` is needed to run programs as another user, and is not on this worker's PATH. Install util-linux")]
    NoSetpriv,
    /// The only one that may pass by itself.
    #[error("the user database can't be read: {0}")]
    Database(String),
}

/// Decides how to run a program as `user`, a name or a number.
pub(crate) async fn resolve(user: &str) -> Result<RunAs, UserError> {
    let account = look_up(user).await?;
    let own = rustix::process::geteuid().as_raw();
    if account.uid == own {
        return Ok(RunAs::Myself);
    }
    if own != 0 {
        return Err(UserError::NotRoot { own, wanted: user.to_owned() });
    }
    let setpriv = find_program("setpriv", std::env::var_os("PATH").as_deref(), Path::new("/")).ok_or(UserError::NoSetpriv)?;
    Ok(RunAs::Other { account, setpriv })
}

/// The user database has more sources than its file, and `getent` asks all of them; the file alone spares a process.
async fn look_up(user: &str) -> Result<Account, UserError> {
    let unknown = || UserError::Unknown(user.to_owned());
    if user.is_empty() || user.contains([':', '\n', '\0']) {
        return Err(unknown());
    }
    let file = tokio::fs::read_to_string("/etc/passwd").await.unwrap_or_default();
    if let Some(account) = file.lines().filter_map(parse_account).find(|account| account.name == user) {
        return Ok(account);
    }
    let answer = match Command::new("getent").args(["passwd", "--", user]).kill_on_drop(true).output().await {
        Ok(answer) => answer,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(unknown()),
        Err(error) => return Err(UserError::Database(error.to_string())),
    };
    match answer.status.code() {
        Some(0) => String::from_utf8_lossy(&answer.stdout).lines().find_map(parse_account).ok_or_else(unknown),
        Some(2) => Err(unknown()),
        _ => Err(UserError::Database(format!("getent {}: {}", answer.status, String::from_utf8_lossy(&answer.stderr).trim()))),
    }
}

fn parse_account(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let home = fields.nth(1)?.to_owned();
    let shell = fields.next()?.to_owned();
    Some(Account { name, uid, gid, home, shell })
}

/// The file that a name stands for, where it can be executed by somebody.
pub(crate) fn find_program(name: &str, path: Option<&std::ffi::OsStr>, directory: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let executable = |file: &PathBuf| file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
    if name.contains('/') {
        return Some(directory.join(name)).filter(executable);
    }
    let path = path.unwrap_or(std::ffi::OsStr::new("/bin:/usr/bin"));
    std::env::split_paths(path).map(|folder| directory.join(folder).join(name)).find(executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_user_database() {
        let account = parse_account("web:x:33:34:Web server,,:/var/www:/usr/sbin/nologin").expect("a line");
        let expected = Account { name: "web".into(), uid: 33, gid: 34, home: "/var/www".into(), shell: "/usr/sbin/nologin".into() };
        assert_eq!(account, expected);
        assert_eq!(parse_account("+::::::"), None);
        assert_eq!(parse_account(""), None);
    }
}

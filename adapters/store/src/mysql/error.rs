//! What the server says, in the words of the port.

use std::sync::Arc;

use punctual_driver::ports::StoreError;
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError};

use crate::codec::Malformed;
use crate::mysql::session::STATEMENT_TIMEOUT;

/// The server's numbers that mean something here; both servers share them.
mod number {
    pub(super) const DUPLICATE: u16 = 1062;
    pub(super) const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub(super) const DEADLOCK: u16 = 1213;
    pub(super) const TOO_MANY_CONNECTIONS: [u16; 2] = [1040, 1203];
    pub(super) const FULL: [u16; 3] = [1021, 1114, 3675];
    pub(super) const READ_ONLY: [u16; 4] = [1290, 1792, 1836, 3100];
    pub(super) const DENIED: [u16; 6] = [1044, 1045, 1142, 1143, 1227, 1698];
    pub(super) const NO_DATABASE: u16 = 1049;
}

/// What went wrong with a statement.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The driver or the server said so.
    Sql(sqlx::Error),
    /// No answer in time.
    Timeout,
    /// A stored value that this program never wrote.
    Malformed(Malformed),
    /// Said already.
    Store(StoreError),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Failure::Sql(error)
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Failure::Malformed(malformed)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}

fn server_number(error: &sqlx::Error) -> Option<u16> {
    match error {
        sqlx::Error::Database(error) => error.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number),
        _ => None,
    }
}

impl Failure {
    /// The number that the server gave, if it was the server who complained.
    fn number(&self) -> Option<u16> {
        match self {
            Failure::Sql(error) => server_number(error),
            _ => None,
        }
    }

    /// Whether a unique key has the row already.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.number() == Some(number::DUPLICATE)
    }

    /// Whether the transaction was surely rolled back, or can be: others were in the way.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.number(), Some(number::DEADLOCK | number::LOCK_WAIT_TIMEOUT))
    }

    /// Whether the connection still answers: the server itself complained of the statement, or nobody did.
    pub(crate) fn connection_holds(&self) -> bool {
        match self {
            Failure::Sql(error) => matches!(
                error,
                sqlx::Error::Database(_) | sqlx::Error::RowNotFound | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)
            ),
            Failure::Timeout => false,
            Failure::Malformed(_) | Failure::Store(_) => true,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Sql(error) => error.fmt(f),
            Failure::Timeout => write!(f, "no answer within {} s", STATEMENT_TIMEOUT.as_secs()),
            Failure::Malformed(malformed) => malformed.fmt(f),
            Failure::Store(error) => error.fmt(f),
        }
    }
}

/// The database's name, for errors: host, port and database, never user or password.
#[derive(Clone, Debug)]
pub(crate) struct Database(Arc<str>);

impl Database {
    pub(crate) fn new(options: &MySqlConnectOptions) -> Self {
        let database = options.get_database().unwrap_or_default();
        Database(format!("{}:{}/{database}", options.get_host(), options.get_port()).into())
    }

    pub(crate) fn name(&self) -> String {
        self.0.to_string()
    }

    pub(crate) fn error(&self, failure: Failure) -> StoreError {
        let (database, reason) = (self.name(), failure.to_string());
        match failure {
            Failure::Store(error) => error,
            Failure::Malformed(_) => StoreError::Corrupt { database, reason },
            Failure::Timeout => StoreError::Unreachable { database, reason },
            Failure::Sql(error) => match (server_number(&error), error) {
                (Some(number::DEADLOCK | number::LOCK_WAIT_TIMEOUT), _) => StoreError::Busy { database, reason },
                (Some(found), _) if number::TOO_MANY_CONNECTIONS.contains(&found) => StoreError::Busy { database, reason },
                (Some(found), _) if number::FULL.contains(&found) => StoreError::Full { database, reason },
                (Some(found), _) if number::READ_ONLY.contains(&found) => self.read_only(&reason),
                (Some(found), _) if number::DENIED.contains(&found) => StoreError::Denied { database, reason },
                (Some(number::NO_DATABASE), _) => StoreError::NoDatabase { database, reason },
                (None, sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut) => {
                    StoreError::Unreachable { database, reason }
                }
                (None, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => StoreError::Corrupt { database, reason },
                _ => StoreError::Other { database, reason },
            },
        }
    }

    /// A failure of what may have been written all the same, where the connection went with it.
    pub(crate) fn unsure(&self, failure: Failure) -> StoreError {
        match failure.connection_holds() {
            true => self.error(failure),
            false => StoreError::Unsure { database: self.name(), reason: failure.to_string() },
        }
    }

    pub(crate) fn read_only(&self, reason: &str) -> StoreError {
        StoreError::ReadOnlyServer { database: self.name(), reason: reason.to_owned() }
    }

    pub(crate) fn other(&self, reason: &str) -> StoreError {
        StoreError::Other { database: self.name(), reason: reason.to_owned() }
    }
}

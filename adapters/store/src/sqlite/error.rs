//! What SQLite says, in the words of the port.

use std::path::Path;
use std::sync::Arc;

use punctual_driver::ports::StoreError;
use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_WRITE;
use rusqlite::types::Type;

use crate::codec::Malformed;

/// The database's name, for errors.
#[derive(Clone, Debug)]
pub(crate) struct Database(Arc<str>);

impl Database {
    pub(crate) fn new(path: &Path) -> Self {
        Database(path.display().to_string().into())
    }

    pub(crate) fn name(&self) -> String {
        self.0.to_string()
    }

    pub(crate) fn error(&self, error: rusqlite::Error) -> StoreError {
        let (database, reason) = (self.name(), error.to_string());
        match &error {
            // SQLite keeps to itself what the system has said.
            rusqlite::Error::SqliteFailure(failure, _) if failure.extended_code == SQLITE_IOERR_WRITE => {
                let reason = format!(
                    "{reason}: the file could not be written, for a limit of file sizes (`ulimit -f`), a quota, or a disk that fails"
                );
                StoreError::Other { database, reason }
            }
            rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy { database, reason },
                ErrorCode::DiskFull => StoreError::Full { database, reason },
                ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied => StoreError::ReadOnly { database, reason },
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt { database, reason },
                _ => StoreError::Other { database, reason },
            },
            // A value that this program never wrote.
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..) => StoreError::Corrupt { database, reason },
            _ => StoreError::Other { database, reason },
        }
    }

    pub(crate) fn io(&self, error: &std::io::Error) -> StoreError {
        let (database, reason) = (self.name(), error.to_string());
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::Full { database, reason },
            _ => StoreError::ReadOnly { database, reason },
        }
    }

    pub(crate) fn corrupt(&self, reason: &str) -> StoreError {
        StoreError::Corrupt { database: self.name(), reason: reason.to_owned() }
    }

    pub(crate) fn other(&self, reason: &str) -> StoreError {
        StoreError::Other { database: self.name(), reason: reason.to_owned() }
    }
}

/// A stored value of column `column` that nothing of ours would have written.
pub(crate) fn malformed(column: usize, what: Malformed) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, Box::new(what))
}

//! Once an instance, in a transaction on SQLite.
//!
//! ```no_run
//! use punctual_worker::once::{Claim, sqlite};
//! use punctual_worker::{HandlerError, TaskContext};
//!
//! async fn book(context: TaskContext, database: sqlx::SqlitePool, cents: i64) -> Result<(), HandlerError> {
//!     let mut transaction = database.begin().await?;
//!     if sqlite::claim(&mut transaction, &context.once()).await? == Claim::First {
//!         sqlx::query("UPDATE accounts SET cents = cents + ?").bind(cents).execute(&mut *transaction).await?;
//!         transaction.commit().await?;
//!     }
//!     Ok(())
//! }
//! ```

use std::time::Duration;

use sqlx::{Executor, Sqlite, Transaction};

use super::{Claim, Key, seconds};

/// Makes the table of claims where there is none. Run it with [`sqlx::raw_sql`], or copy it to your migrations.
pub const TABLE: &str = "
CREATE TABLE IF NOT EXISTS punctual_once (
    key TEXT NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS punctual_once_at ON punctual_once (at)";

/// Claims the effect within the transaction that has it. A database of SQLite has one writer: while another transaction writes, this waits
/// as long as the connection's `busy_timeout` lets it.
///
/// # Errors
///
/// What the database says, also that another transaction has written since this one first read. The transaction is of no more use then,
/// and the attempt may be retried.
pub async fn claim(transaction: &mut Transaction<'_, Sqlite>, key: &Key) -> Result<Claim, sqlx::Error> {
    let insert = sqlx::query("INSERT INTO punctual_once (key, fence, at) VALUES (?, ?, unixepoch()) ON CONFLICT DO NOTHING");
    let done = insert.bind(key.text()).bind(key.signed_fence()).execute(&mut **transaction).await?;
    Ok(if done.rows_affected() == 1 { Claim::First } else { Claim::Repeated })
}

/// Forgets claims that are older than `age`, and answers how many. No attempt of their instances may come any more: an age of weeks costs
/// little.
///
/// # Errors
///
/// What the database says.
pub async fn forget<'e>(database: impl Executor<'e, Database = Sqlite>, age: Duration) -> Result<u64, sqlx::Error> {
    let delete = sqlx::query("DELETE FROM punctual_once WHERE at < unixepoch() - ?");
    Ok(delete.bind(seconds(age)).execute(database).await?.rows_affected())
}

//! Once an instance, in a transaction on MySQL or MariaDB.
//!
//! ```no_run
//! use punctual_worker::once::{Claim, mysql};
//! use punctual_worker::{HandlerError, TaskContext};
//!
//! async fn book(context: TaskContext, database: sqlx::MySqlPool, cents: i64) -> Result<(), HandlerError> {
//!     let mut transaction = database.begin().await?;
//!     if mysql::claim(&mut transaction, &context.once()).await? == Claim::First {
//!         sqlx::query("UPDATE accounts SET cents = cents + ?").bind(cents).execute(&mut *transaction).await?;
//!         transaction.commit().await?;
//!     }
//!     Ok(())
//! }
//! ```

use std::time::Duration;

use sqlx::{Executor, MySql, Transaction};

use super::{Claim, Key, seconds};

/// Makes the table of claims where there is none. Run it with [`sqlx::raw_sql`], or copy it to your migrations.
pub const TABLE: &str = "
CREATE TABLE IF NOT EXISTS punctual_once (
    `key` VARBINARY(255) NOT NULL PRIMARY KEY,
    fence BIGINT UNSIGNED NOT NULL,
    at DATETIME(3) NOT NULL,
    KEY punctual_once_at (at)
) ENGINE = InnoDB";

/// Claims the effect within the transaction that has it. Waits for another attempt's transaction that has claimed it, as long as the
/// server's `innodb_lock_wait_timeout` lets it.
///
/// # Errors
///
/// What the database says, a deadlock or a wait that took too long included. The transaction is of no more use then, and the attempt may
/// be retried.
pub async fn claim(transaction: &mut Transaction<'_, MySql>, key: &Key) -> Result<Claim, sqlx::Error> {
    let insert = sqlx::query("INSERT INTO punctual_once (`key`, fence, at) VALUES (?, ?, UTC_TIMESTAMP(3))");
    match insert.bind(key.text().into_bytes()).bind(key.fence().0).execute(&mut **transaction).await {
        Ok(_) => Ok(Claim::First),
        // Of a statement that fails so the server undoes that statement and nothing else.
        Err(error) if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => Ok(Claim::Repeated),
        Err(error) => Err(error),
    }
}

/// Forgets claims that are older than `age`, and answers how many. No attempt of their instances may come any more: an age of weeks costs
/// little.
///
/// # Errors
///
/// What the database says.
pub async fn forget<'e>(database: impl Executor<'e, Database = MySql>, age: Duration) -> Result<u64, sqlx::Error> {
    let delete = sqlx::query("DELETE FROM punctual_once WHERE at < UTC_TIMESTAMP(3) - INTERVAL ? SECOND");
    Ok(delete.bind(seconds(age)).execute(database).await?.rows_affected())
}

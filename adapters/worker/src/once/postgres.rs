//! Once an instance, in a transaction on PostgreSQL.
//!
//! ```no_run
//! use punctual_worker::once::{Claim, postgres};
//! use punctual_worker::{HandlerError, TaskContext};
//!
//! async fn book(context: TaskContext, database: sqlx::PgPool, cents: i64) -> Result<(), HandlerError> {
//!     let mut transaction = database.begin().await?;
//!     if postgres::claim(&mut transaction, &context.once()).await? == Claim::First {
//!         sqlx::query("UPDATE accounts SET cents = cents + $1").bind(cents).execute(&mut *transaction).await?;
//!         transaction.commit().await?;
//!     }
//!     Ok(())
//! }
//! ```

use std::time::Duration;

use sqlx::{Executor, Postgres, Transaction};

use super::{Claim, Key, seconds};

/// Makes the table of claims where there is none. Run it with [`sqlx::raw_sql`], or copy it to your migrations.
pub const TABLE: &str = "
CREATE TABLE IF NOT EXISTS punctual_once (
    key VARCHAR(255) COLLATE \"C\" PRIMARY KEY,
    fence BIGINT NOT NULL,
    at TIMESTAMPTZ NOT NULL
);
CREATE INDEX IF NOT EXISTS punctual_once_at ON punctual_once (at)";

/// Claims the effect within the transaction that has it. Waits for another attempt's transaction that has claimed it.
///
/// # Errors
///
/// What the database says: at the levels above `READ COMMITTED` also that another transaction came first. The transaction is of no more
/// use then, and the attempt may be retried.
pub async fn claim(transaction: &mut Transaction<'_, Postgres>, key: &Key) -> Result<Claim, sqlx::Error> {
    // A unique violation would be the end of the whole transaction here.
    let insert = sqlx::query("INSERT INTO punctual_once (key, fence, at) VALUES ($1, $2, now()) ON CONFLICT DO NOTHING");
    let done = insert.bind(key.text()).bind(key.signed_fence()).execute(&mut **transaction).await?;
    Ok(if done.rows_affected() == 1 { Claim::First } else { Claim::Repeated })
}

/// Forgets claims that are older than `age`, and answers how many. No attempt of their instances may come any more: an age of weeks costs
/// little.
///
/// # Errors
///
/// What the database says.
pub async fn forget<'e>(database: impl Executor<'e, Database = Postgres>, age: Duration) -> Result<u64, sqlx::Error> {
    let delete = sqlx::query("DELETE FROM punctual_once WHERE at < now() - $1 * INTERVAL '1 second'");
    Ok(delete.bind(seconds(age)).execute(database).await?.rows_affected())
}

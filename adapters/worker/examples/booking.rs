//! A worker that books each payment once in a database of its own:
//! `cargo run -p punctual-worker --features once-sqlite --example booking`

use punctual_worker::once::{Claim, sqlite};
use punctual_worker::{HandlerError, TaskContext, Worker};
use serde::Deserialize;
use sqlx::SqlitePool;

const ACCOUNTS: &str = "CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, cents INTEGER NOT NULL)";

#[derive(Deserialize)]
struct Payment {
    account: String,
    cents: i64,
}

/// Answers what is on the account afterwards.
async fn book(context: TaskContext, database: SqlitePool, payment: Payment) -> Result<i64, HandlerError> {
    let mut transaction = database.begin().await?;
    if sqlite::claim(&mut transaction, &context.once()).await? == Claim::First {
        sqlx::query("INSERT INTO accounts (name, cents) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET cents = cents + excluded.cents")
            .bind(&payment.account)
            .bind(payment.cents)
            .execute(&mut *transaction)
            .await?;
    } else {
        context.log("an earlier attempt has booked it");
    }
    let cents = sqlx::query_scalar("SELECT cents FROM accounts WHERE name = ?").bind(&payment.account).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(cents)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = SqlitePool::connect("sqlite:accounts.db?mode=rwc").await?;
    for table in [sqlite::TABLE, ACCOUNTS] {
        sqlx::raw_sql(table).execute(&database).await?;
    }
    let handler = move |context: TaskContext, payment: Payment| book(context, database.clone(), payment);
    let worker = Worker::builder().server("http://127.0.0.1:8651").name("booking").handler("book", handler).build()?;
    let shutdown = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    Ok(worker.run_until(shutdown).await?)
}

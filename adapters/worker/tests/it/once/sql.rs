//! The same for each database.

use std::time::Duration;

use crate::harness::DEADLINE;

/// Tests of one database. `$open` makes an empty one and answers its pool and what has to live as long.
macro_rules! suite {
    ($name:ident, $effect:literal, $open:expr $(, #[$attribute:meta])?) => {
        mod $name {
            use std::time::Duration;

            use punctual_worker::once::{Claim, Key, $name as once};
            use tokio::time::{sleep, timeout};

            use super::LONG;
            use crate::harness::DEADLINE;
            use crate::once::{Numbers, key};

            type Pool = super::pools::$name::Pool;

            async fn prepare(pool: &Pool) {
                // Twice: it is there the second time.
                for table in [once::TABLE, once::TABLE, "CREATE TABLE effects (instance VARCHAR(255) NOT NULL)"] {
                    sqlx::raw_sql(table).execute(pool).await.expect("a table");
                }
            }

            async fn count(pool: &Pool, table: &str) -> i64 {
                sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"))).fetch_one(pool).await.expect("a count")
            }

            /// An attempt from its beginning to its end.
            async fn attempt(pool: &Pool, key: &Key, dies: bool) -> Result<Claim, sqlx::Error> {
                let mut transaction = pool.begin().await?;
                let claim = once::claim(&mut transaction, key).await?;
                if claim == Claim::First {
                    sqlx::query($effect).bind(key.text()).execute(&mut *transaction).await?;
                }
                if !dies {
                    transaction.commit().await?;
                }
                Ok(claim)
            }

            $(#[$attribute])?
            #[tokio::test]
            async fn happens_once_whichever_attempt_comes_later() {
                let (pool, _kept) = $open.await;
                prepare(&pool).await;
                for (fence, expected) in [(5, Claim::First), (5, Claim::Repeated), (9, Claim::Repeated), (2, Claim::Repeated)] {
                    assert_eq!(attempt(&pool, &key(1, fence), false).await.expect("an answer"), expected, "fence {fence}");
                }
                assert_eq!(attempt(&pool, &key(2, 5), false).await.expect("an answer"), Claim::First);
                for expected in [Claim::First, Claim::Repeated] {
                    assert_eq!(attempt(&pool, &key(1, 9).step("mail"), false).await.expect("an answer"), expected);
                }
                assert_eq!((count(&pool, "effects").await, count(&pool, "punctual_once").await), (3, 3));

                assert_eq!(once::forget(&pool, LONG).await.expect("nothing is so old"), 0);
                assert_eq!(once::forget(&pool, Duration::MAX).await.expect("nothing is so old"), 0);
                sleep(Duration::from_millis(2_100)).await;
                assert_eq!(once::forget(&pool, Duration::from_secs(1)).await.expect("all are"), 3);
            }

            $(#[$attribute])?
            #[tokio::test]
            async fn an_attempt_that_is_aborted_leaves_nothing() {
                let (pool, _kept) = $open.await;
                prepare(&pool).await;
                assert_eq!(attempt(&pool, &key(1, 1), true).await.expect("an answer"), Claim::First);
                assert_eq!((count(&pool, "effects").await, count(&pool, "punctual_once").await), (0, 0));
                assert_eq!(attempt(&pool, &key(1, 2), false).await.expect("an answer"), Claim::First);
                assert_eq!(attempt(&pool, &key(1, 1), false).await.expect("an answer"), Claim::Repeated);
                assert_eq!(count(&pool, "effects").await, 1);
            }

            /// The second one waits, and what it is told rests on how the first one has ended.
            $(#[$attribute])?
            #[tokio::test]
            async fn of_two_at_once_the_second_waits_for_the_first() {
                let (pool, _kept) = $open.await;
                prepare(&pool).await;
                for (instance, commits, expected) in [(1, true, Claim::Repeated), (2, false, Claim::First)] {
                    let mut first = pool.begin().await.expect("a transaction");
                    assert_eq!(once::claim(&mut first, &key(instance, 2)).await.expect("an answer"), Claim::First);
                    let second = tokio::spawn({
                        let pool = pool.clone();
                        async move { attempt(&pool, &key(instance, 1), false).await }
                    });
                    sleep(Duration::from_millis(200)).await;
                    assert!(!second.is_finished(), "it doesn't know yet");
                    if commits {
                        first.commit().await.expect("a commit");
                    } else {
                        first.rollback().await.expect("a rollback");
                    }
                    let second = timeout(DEADLINE, second).await.expect("it ends").expect("no panic");
                    assert_eq!(second.expect("an answer"), expected);
                }
            }

            /// Attempts of some instances side by side, some of which die before their commit: once one has gone through, there is
            /// exactly one effect.
            $(#[$attribute])?
            #[tokio::test]
            async fn whatever_runs_at_once_there_is_one_effect_an_instance() {
                const INSTANCES: u64 = 12;
                let (pool, _kept) = $open.await;
                prepare(&pool).await;
                let mut numbers = Numbers(7);
                let mut attempts = Vec::new();
                for fence in 0..5 {
                    for instance in 0..INSTANCES {
                        let (pool, dies, pause) = (pool.clone(), numbers.below(3) == 0, Duration::from_millis(numbers.below(30)));
                        attempts.push(tokio::spawn(async move {
                            sleep(pause).await;
                            let claim = attempt(&pool, &key(instance, fence), dies).await;
                            // An error is no claim: such an attempt would be retried.
                            u64::from(claim.is_ok_and(|claim| claim == Claim::First) && !dies)
                        }));
                    }
                }
                let mut committed = 0;
                for attempt in attempts {
                    committed += timeout(DEADLINE, attempt).await.expect("it ends").expect("no panic");
                }
                for instance in 0..INSTANCES {
                    committed += u64::from(attempt(&pool, &key(instance, 9), false).await.expect("an answer") == Claim::First);
                }
                assert_eq!(committed, INSTANCES);
                assert_eq!(u64::try_from(count(&pool, "effects").await), Ok(INSTANCES));
            }
        }
    };
}

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3_600);

mod pools {
    pub(super) mod mysql {
        pub(crate) type Pool = sqlx::MySqlPool;
    }
    pub(super) mod postgres {
        pub(crate) type Pool = sqlx::PgPool;
    }
    pub(super) mod sqlite {
        pub(crate) type Pool = sqlx::SqlitePool;
    }
}

suite!(mysql, "INSERT INTO effects VALUES (?)", super::mysql_pool());
suite!(sqlite, "INSERT INTO effects VALUES (?)", super::sqlite_pool());
suite!(
    postgres,
    "INSERT INTO effects VALUES ($1)",
    super::postgres_pool(),
    #[ignore = "needs an empty PostgreSQL database for each test, PUNCTUAL_POSTGRES names one and is used with --test-threads 1"]
);

async fn mysql_pool() -> (sqlx::MySqlPool, punctual_testbed::MariaDb) {
    let server = punctual_testbed::MariaDb::start().expect("a server");
    let url = server.create("own").expect("a database");
    let pool = sqlx::pool::PoolOptions::new().max_connections(8).acquire_timeout(DEADLINE).connect(&url).await.expect("a connection");
    (pool, server)
}

async fn sqlite_pool() -> (sqlx::SqlitePool, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.path().join("own.db")).create_if_missing(true);
    let options = options.busy_timeout(DEADLINE).journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
    let pool = sqlx::pool::PoolOptions::new().max_connections(8).acquire_timeout(DEADLINE).connect_with(options).await;
    (pool.expect("a connection"), folder)
}

async fn postgres_pool() -> (sqlx::PgPool, ()) {
    let url = std::env::var("PUNCTUAL_POSTGRES").expect("an address");
    let pool: sqlx::PgPool = sqlx::pool::PoolOptions::new().max_connections(8).connect(&url).await.expect("a connection");
    sqlx::raw_sql("DROP TABLE IF EXISTS punctual_once, effects").execute(&pool).await.expect("nothing is left");
    (pool, ())
}

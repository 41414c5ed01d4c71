//! Connections: how they are made, and that none is used again of which nobody knows what it is in the middle of.
//!
//! Four pools, so that nobody waits behind somebody slower: one for the owner's commits, one for beats and leases, which must not wait for
//! a long commit, one for what others write, who take turns, and one for reads. Every statement has a limit in time. A connection on which
//! one ran out, or whose user went away in the middle, is closed: the server rolls its transaction back then, and at the latest after
//! [`IDLE_TIMEOUT_SECS`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_driver::ports::StoreError;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Either, MySql, MySqlConnection, MySqlPool, Row};
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::mysql::error::{Database, Failure};
use crate::mysql::schema;

/// How long a statement may take.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one that changes tables may take.
const LONG_TIMEOUT: Duration = Duration::from_secs(600);
/// So much earlier than whoever waits for it the server gives up what reads.
const READ_LIMIT_SLACK: Duration = Duration::from_secs(1);
/// How long it may take until a connection is there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement waits for a lock that another transaction has; shorter than [`STATEMENT_TIMEOUT`], so that the server answers.
const LOCK_TIMEOUT_SECS: u64 = 3;
/// The server ends a connection that says nothing for so long, and rolls back what it was in the middle of: a machine that lost its power
/// holds no lock for longer.
const IDLE_TIMEOUT_SECS: u64 = 20;
/// A pool ends its idle connections before the server does.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(IDLE_TIMEOUT_SECS / 2);
/// A connection that was idle for longer is asked whether it is still there before it is used.
const PING_AFTER: Duration = Duration::from_secs(1);
/// The oldest servers that are supported.
const MYSQL_MIN: (u32, u32) = (8, 0);
const MARIADB_MIN: (u32, u32) = (10, 6);

/// How transactions of a pool see each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Isolation {
    /// For writes: each statement sees what is committed.
    ReadCommitted,
    /// For reads: all of one moment.
    Snapshot,
}

/// Connections of one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    pool: MySqlPool,
    /// Why the last connection was not good enough: the pool itself only says that time ran out.
    problem: Arc<Mutex<Option<StoreError>>>,
    database: Database,
}

impl Connections {
    pub(crate) fn new(database: &Database, options: &MySqlConnectOptions, most: u32, isolation: Isolation) -> Self {
        let level = match isolation {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::Snapshot => "REPEATABLE READ",
        };
        // MariaDB makes a join of a list with a thousand values or more, and may then read, and lock, the whole table.
        let settings = format!(
            "SET SESSION TRANSACTION ISOLATION LEVEL {level}; SET SESSION autocommit = 1, innodb_lock_wait_timeout = {LOCK_TIMEOUT_SECS}, \
             wait_timeout = {IDLE_TIMEOUT_SECS} /*M!100318 , in_predicate_conversion_threshold = 0 */"
        );
        let checked = database.clone();
        let problem: Arc<Mutex<Option<StoreError>>> = Arc::default();
        let told = Arc::clone(&problem);
        let pool = MySqlPoolOptions::new()
            .max_connections(most)
            .acquire_timeout(CONNECT_TIMEOUT)
            .idle_timeout(POOL_IDLE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, met| {
                Box::pin(async move {
                    use sqlx::Connection;
                    Ok(met.idle_for < PING_AFTER || matches!(timeout(STATEMENT_TIMEOUT, connection.ping()).await, Ok(Ok(()))))
                })
            })
            .after_connect(move |connection, _| {
                let (settings, database) = (settings.clone(), checked.clone());
                let problem = Arc::clone(&told);
                Box::pin(async move {
                    sqlx::raw_sql(AssertSqlSafe(settings)).execute(&mut *connection).await?;
                    let checked = check_server(&database, connection).await;
                    let refused = checked.is_err();
                    *problem.lock().unwrap_or_else(PoisonError::into_inner) = checked.err();
                    if refused { Err(sqlx::Error::PoolClosed) } else { Ok(()) }
                })
            })
            .connect_lazy_with(options.clone());
        Connections { pool, problem, database: database.clone() }
    }

    /// A connection for statements that each are a transaction.
    pub(crate) async fn session(&self) -> Result<Session, StoreError> {
        match self.pool.acquire().await {
            Ok(connection) => Ok(Session { connection: Some(connection), database: self.database.clone() }),
            Err(sqlx::Error::PoolTimedOut) => {
                let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner).take();
                Err(problem.unwrap_or_else(|| self.database.error(sqlx::Error::PoolTimedOut.into())))
            }
            Err(error) => Err(self.database.error(error.into())),
        }
    }

    /// Begins a transaction that writes.
    pub(crate) async fn begin(&self) -> Result<Session, StoreError> {
        self.begin_with("START TRANSACTION").await
    }

    /// Begins one that reads what is committed now, all of it of this moment.
    pub(crate) async fn begin_snapshot(&self) -> Result<Session, StoreError> {
        self.begin_with("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await
    }

    async fn begin_with(&self, sql: &'static str) -> Result<Session, StoreError> {
        let mut session = self.session().await?;
        match session.run(sql.to_owned()).await {
            Ok(_) => Ok(session),
            Err(failure) => Err(self.database.error(failure)),
        }
    }

    /// A failure in the words of the port.
    pub(crate) fn error(&self, failure: Failure) -> StoreError {
        self.database.error(failure)
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

/// Connects once, and checks the server: what is wrong is said in its own words, which a pool would not do.
pub(crate) async fn connect(database: &Database, options: &MySqlConnectOptions) -> Result<MySqlConnection, StoreError> {
    use sqlx::Connection;
    let connected = timeout(CONNECT_TIMEOUT, MySqlConnection::connect_with(options)).await;
    let connected = connected.unwrap_or_else(|_| {
        let text = format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
        Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text)))
    });
    let mut connection = connected.map_err(|error| database.error(error.into()))?;
    check_server(database, &mut connection).await?;
    Ok(connection)
}

/// Checks that a server is new enough and takes writes.
pub(crate) async fn check_server(database: &Database, connection: &mut MySqlConnection) -> Result<(), StoreError> {
    let error = |error: sqlx::Error| database.error(error.into());
    let row =
        sqlx::raw_sql("SELECT CAST(VERSION() AS CHAR), CAST(@@global.read_only AS SIGNED), CAST(@@global.innodb_read_only AS SIGNED)")
            .fetch_one(&mut *connection)
            .await
            .map_err(error)?;
    let version: String = row.try_get(0).map_err(error)?;
    if !is_new_enough(&version) {
        return Err(StoreError::TooOld { database: database.name(), found: version });
    }
    for (column, setting) in [(1, "read_only"), (2, "innodb_read_only")] {
        if row.try_get::<i64, _>(column).map_err(error)? != 0 {
            return Err(
                database.read_only(&format!("the server is set to {setting}: it is a replica, or being replaced; name the primary"))
            );
        }
    }
    Ok(())
}

/// Whether this is MySQL 8.0, MariaDB 10.6, or a newer one.
fn is_new_enough(version: &str) -> bool {
    let is_mariadb = version.to_ascii_lowercase().contains("mariadb");
    // MariaDB used to hide behind this, for replicas of MySQL's.
    let version = if is_mariadb { version.strip_prefix("5.5.5-").unwrap_or(version) } else { version };
    let mut numbers = version.split(|character: char| !character.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    found >= if is_mariadb { MARIADB_MIN } else { MYSQL_MIN }
}

/// What a statement answered.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// How many rows it found or wrote.
    pub(crate) found: u64,
    /// The rows that it read.
    pub(crate) rows: Vec<MySqlRow>,
}

/// A connection in use. Dropped without having been given back, it is closed.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Option<PoolConnection<MySql>>,
    database: Database,
}

impl Session {
    pub(crate) fn connection(&mut self) -> &mut MySqlConnection {
        self.connection.as_mut().expect("it is given back at the end only")
    }

    /// Runs statements; how many rows they found.
    pub(crate) async fn run(&mut self, sql: String) -> Result<u64, Failure> {
        let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.connection());
        Ok(timeout(STATEMENT_TIMEOUT, ran).await.map_err(|_| Failure::Timeout)??.rows_affected())
    }

    /// Runs a statement that changes tables, which may take long.
    pub(crate) async fn run_long(&mut self, sql: String) -> Result<(), Failure> {
        let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.connection());
        timeout(LONG_TIMEOUT, ran).await.map_err(|_| Failure::Timeout)??;
        Ok(())
    }

    /// Waits for the named lock of those who change tables. It goes with the connection, or with [`Session::unlock`].
    pub(crate) async fn lock(&mut self) -> Result<(), Failure> {
        let sql = format!("SELECT CAST(GET_LOCK({}, {}) AS SIGNED)", schema::LOCK, schema::LOCK_SECS);
        let rows = self.rows_long(sql).await?;
        match rows.first().map(|row| row.try_get::<Option<i64>, _>(0)).transpose()?.flatten() {
            Some(1) => Ok(()),
            _ => Err(schema::taken_too_long(&self.database).into()),
        }
    }

    /// Gives the named lock back.
    pub(crate) async fn unlock(&mut self) -> Result<(), Failure> {
        self.rows(format!("SELECT RELEASE_LOCK({})", schema::LOCK)).await.map(drop)
    }

    /// Runs statements one after another; how many rows they found together.
    pub(crate) async fn run_all(&mut self, statements: Vec<String>) -> Result<u64, Failure> {
        let mut found = 0;
        for sql in statements {
            found += self.run(sql).await?;
        }
        Ok(found)
    }

    /// Runs statements in one message; what each of them answered. Where one fails, those behind it are not run, and the answers are those of
    /// the ones before it.
    pub(crate) async fn run_each(&mut self, sql: String) -> (Vec<Answer>, Result<(), Failure>) {
        let mut stream = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_many(self.connection());
        let (mut answers, mut rows) = (Vec::new(), Vec::new());
        loop {
            match timeout(STATEMENT_TIMEOUT, stream.next()).await {
                Ok(None) => return (answers, Ok(())),
                Ok(Some(Ok(Either::Left(end)))) => answers.push(Answer { found: end.rows_affected(), rows: std::mem::take(&mut rows) }),
                Ok(Some(Ok(Either::Right(row)))) => rows.push(row),
                Ok(Some(Err(error))) => return (answers, Err(error.into())),
                Err(_) => return (answers, Err(Failure::Timeout)),
            }
        }
    }

    /// Runs statements in one message; what each of them answered.
    pub(crate) async fn answers(&mut self, sql: String) -> Result<Vec<Answer>, Failure> {
        let (answers, ran) = self.run_each(sql).await;
        ran.map(|()| answers)
    }

    /// Runs statements; the rows that they answer.
    pub(crate) async fn rows(&mut self, sql: String) -> Result<Vec<MySqlRow>, Failure> {
        let ran = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(self.connection());
        Ok(timeout(STATEMENT_TIMEOUT, ran).await.map_err(|_| Failure::Timeout)??)
    }

    /// Runs a statement that reads much; the rows that it answers.
    pub(crate) async fn rows_long(&mut self, sql: String) -> Result<Vec<MySqlRow>, Failure> {
        let ran = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(self.connection());
        Ok(timeout(LONG_TIMEOUT, ran).await.map_err(|_| Failure::Timeout)??)
    }

    /// Has the server itself give up what reads for longer than [`Session::rows`] waits, or [`Session::rows_long`] where it `is_long`: it would go on
    /// for nobody. It holds until the connection is closed.
    pub(crate) async fn limit_reads(&mut self, is_long: bool) -> Result<(), Failure> {
        let most = (if is_long { LONG_TIMEOUT } else { STATEMENT_TIMEOUT }).saturating_sub(READ_LIMIT_SLACK);
        // Each server has its own name for it, and takes the other's for a comment.
        let sql = format!(
            "SET SESSION /*!50708 max_execution_time = {} */ /*M!100101 max_statement_time = {} */",
            most.as_millis(),
            most.as_secs()
        );
        self.run(sql).await.map(drop)
    }

    /// Gives the connection back: nothing is open on it.
    pub(crate) fn give_back(mut self) {
        self.connection.take();
    }

    /// Answers with what statements without a transaction came to.
    pub(crate) fn done<T>(self, answer: Result<T, Failure>) -> Result<T, StoreError> {
        match answer {
            Ok(answer) => {
                self.give_back();
                Ok(answer)
            }
            Err(failure) => {
                let database = self.database.clone();
                if failure.connection_holds() {
                    self.give_back();
                }
                Err(database.error(failure))
            }
        }
    }

    /// Ends the transaction: commits where all went well, else rolls back.
    pub(crate) async fn end<T>(mut self, answer: Result<T, Failure>) -> Result<T, StoreError> {
        let database = self.database.clone();
        match answer {
            Ok(answer) => match self.run("COMMIT".to_owned()).await {
                Ok(_) => {
                    self.give_back();
                    Ok(answer)
                }
                Err(failure) => {
                    self.roll_back(&failure).await;
                    Err(database.unsure(failure))
                }
            },
            Err(failure) => {
                self.roll_back(&failure).await;
                Err(database.error(failure))
            }
        }
    }

    /// Ends what has ended its transaction by itself where it is `done`, and wrote nothing where it is not.
    pub(crate) async fn end_unless<T>(self, answer: Result<T, Failure>, is_done: impl FnOnce(&T) -> bool) -> Result<T, StoreError> {
        match answer {
            Ok(answer) if is_done(&answer) => self.done(Ok(answer)),
            Ok(answer) => self.leave(Ok(answer)).await,
            Err(failure) => {
                let database = self.database.clone();
                self.roll_back(&failure).await;
                Err(database.unsure(failure))
            }
        }
    }

    /// Ends a transaction that wrote nothing.
    pub(crate) async fn leave<T>(mut self, answer: Result<T, Failure>) -> Result<T, StoreError> {
        match self.run("ROLLBACK".to_owned()).await {
            Ok(_) => self.done(answer),
            Err(_) => {
                let database = self.database.clone();
                answer.map_err(|failure| database.error(failure))
            }
        }
    }

    /// Rolls back after a failure: a lock that was waited for in vain leaves the transaction open.
    pub(crate) async fn roll_back(mut self, failure: &Failure) {
        if failure.connection_holds() && self.run("ROLLBACK".to_owned()).await.is_ok() {
            self.give_back();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_gives_up_what_reads_for_too_long() {
        let server = punctual_testbed::MariaDb::start().expect("a server");
        let url = server.create("reads").expect("a database");
        let (database, options) = crate::mysql::parse(&url).expect("an address");
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
            let connections = Connections::new(&database, &options, 1, Isolation::Snapshot);
            let mut session = connections.begin_snapshot().await.expect("a session");
            for (is_long, secs) in [(false, 4), (true, 599)] {
                session.limit_reads(is_long).await.expect("a setting");
                let rows = session.rows("SELECT CAST(@@max_statement_time AS SIGNED)".to_owned()).await.expect("a setting");
                assert_eq!(rows[0].try_get::<i64, _>(0).expect("a number"), secs);
            }
        });
    }

    #[test]
    fn old_servers_are_told_from_new_ones() {
        for new in ["8.0.11", "8.4.3-commercial", "9.1.0", "10.6.0-MariaDB", "5.5.5-10.11.14-MariaDB-0+deb12u2", "11.4.2-MariaDB-log"] {
            assert!(is_new_enough(new), "{new}");
        }
        for old in ["5.7.44", "10.5.23-MariaDB", "5.5.5-10.3.1-MariaDB", "5.5.68-MariaDB", ""] {
            assert!(!is_new_enough(old), "{old}");
        }
    }
}

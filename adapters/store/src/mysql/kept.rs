//! What outlives the month that it lies in: the last firing of each task that there is, with all that is known of it.
//!
//! A task that fires once a year has one thing to show, and it is old. So before a month is dropped, its tasks' last firings are copied into
//! tables of their own; after it they are put back, and lie in what is the first month then: a partition takes whatever is older than its end.
//! Whoever dies in between has lost nothing: the copies stay until somebody has put them back. Only until then those firings can't be found.

use sqlx::Row;

use crate::mysql::error::Failure;
use crate::mysql::session::Session;

/// The tables with something of a firing, in the order in which they are copied: what the others are found by comes first.
const TABLES: [&str; 5] = ["instances", "troubled", "submission_keys", "submissions", "outputs"];
/// Tasks that one statement asks for, and firings that one copies.
const CHUNK: usize = 200;

/// The tables of copies, for a list of locks.
pub(crate) fn locks() -> String {
    TABLES.map(|table| format!("kept_{table} WRITE")).join(", ")
}

/// Puts back what somebody left in the tables of copies, and takes those away: a newer schema may have other columns.
pub(crate) async fn recover(session: &mut Session) -> Result<(), Failure> {
    let names = TABLES.map(|table| format!("'kept_{table}'")).join(", ");
    let sql = format!("SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ({names}) LIMIT 1");
    if session.rows(sql).await?.is_empty() {
        return Ok(());
    }
    // Some may be gone already.
    make_tables(session).await?;
    put_back(session).await?;
    drop_tables(session).await
}

/// Makes the tables of copies that are not there.
pub(crate) async fn make_tables(session: &mut Session) -> Result<(), Failure> {
    for table in TABLES {
        session.run_long(format!("CREATE TABLE IF NOT EXISTS kept_{table} LIKE {table}")).await?;
    }
    Ok(())
}

/// Tasks that there are and whose last firing lies in this month, which ends before `end`. Where one fires meanwhile, too much is kept.
pub(crate) async fn tasks(session: &mut Session, month: &str, end: i64) -> Result<Vec<u64>, Failure> {
    let rows = session.rows_long(format!("SELECT DISTINCT task FROM instances PARTITION ({month})")).await?;
    let of_month = rows.iter().map(|row| row.try_get::<u64, _>(0)).collect::<Result<Vec<_>, _>>()?;
    let mut last = Vec::new();
    for chunk in of_month.chunks(CHUNK) {
        let sql = format!(
            "SELECT id FROM tasks WHERE id IN ({}) AND removed = 0
             AND NOT EXISTS (SELECT 1 FROM instances WHERE instances.task = tasks.id AND instances.fire_time >= {end})",
            listed(chunk)
        );
        for row in session.rows_long(sql).await? {
            last.push(row.try_get(0)?);
        }
    }
    Ok(last)
}

/// Copies the last firing that each of these tasks has in the month, which these tables have. The month is locked.
pub(crate) async fn copy(session: &mut Session, month: &str, of: &[&str], tasks: &[u64]) -> Result<(), Failure> {
    for chunk in tasks.chunks(CHUNK) {
        let last = format!(
            "SELECT task, MAX(fire_time) FROM instances PARTITION ({month}) WHERE task IN ({}) AND part = 0 GROUP BY task",
            listed(chunk)
        );
        let mut firings = Vec::with_capacity(chunk.len());
        for row in session.rows_long(last).await? {
            firings.push(format!("(fire_time = {} AND task = {})", row.try_get::<i64, _>(1)?, row.try_get::<u64, _>(0)?));
        }
        if !firings.is_empty() {
            let those = firings.join(" OR ");
            let sql = format!("INSERT IGNORE INTO kept_instances SELECT * FROM instances PARTITION ({month}) WHERE {those}");
            session.run_long(sql).await?;
        }
    }
    copy_others(session, month, of).await
}

/// Copies what belongs to the firings that are older than `end` and still there, though the month's own are gone: those that were kept, and what
/// fired since then for a time so old.
pub(crate) async fn copy_half(session: &mut Session, month: &str, of: &[&str], end: i64) -> Result<(), Failure> {
    session.run_long(format!("INSERT IGNORE INTO kept_instances SELECT * FROM instances WHERE fire_time < {end}")).await?;
    copy_others(session, month, of).await
}

/// Copies what the other tables have in the month of the copied instances.
async fn copy_others(session: &mut Session, month: &str, of: &[&str]) -> Result<(), Failure> {
    let firing = |table: &str, columns: &[&str]| {
        let same = columns.iter().map(|column| format!("{table}.{column} = kept_instances.{column}"));
        same.collect::<Vec<_>>().join(" AND ")
    };
    for table in TABLES[1..].iter().filter(|table| of.contains(table)) {
        let same = match *table {
            "troubled" => firing(table, &["state", "fire_time", "task", "ordinal", "run", "part"]),
            "submission_keys" => firing(table, &["submission_key", "fire_time", "task", "ordinal", "run"]),
            "submissions" => firing(table, &["ordinal", "run", "fire_time", "task"]),
            _ => "outputs.instance = kept_instances.id AND outputs.fire_time = kept_instances.fire_time".to_owned(),
        };
        let sql = format!(
            "INSERT IGNORE INTO kept_{table} SELECT {table}.* FROM kept_instances STRAIGHT_JOIN {table} PARTITION ({month}) ON {same}"
        );
        session.run_long(sql).await?;
    }
    session.run("COMMIT".to_owned()).await.map(drop)
}

/// How many copies there are in each state.
pub(crate) async fn counts(session: &mut Session) -> Result<Vec<(u8, i64)>, Failure> {
    let rows = session.rows_long("SELECT state, COUNT(*) FROM kept_instances GROUP BY state".to_owned()).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Puts the copies back where they are not, and has none any more.
pub(crate) async fn put_back(session: &mut Session) -> Result<(), Failure> {
    for table in TABLES {
        // A newer schema may have added columns since they were copied.
        let columns = columns(session, table).await?;
        session.run_long(format!("INSERT IGNORE INTO {table} ({columns}) SELECT {columns} FROM kept_{table}")).await?;
    }
    for table in TABLES {
        session.run_long(format!("DELETE FROM kept_{table}")).await?;
    }
    session.run("COMMIT".to_owned()).await.map(drop)
}

/// Takes the tables of copies away again. They are empty: what was in them is back.
pub(crate) async fn drop_tables(session: &mut Session) -> Result<(), Failure> {
    session.run_long(format!("DROP TABLE IF EXISTS {}", TABLES.map(|table| format!("kept_{table}")).join(", "))).await
}

/// The columns of a table of copies.
async fn columns(session: &mut Session, table: &str) -> Result<String, Failure> {
    let sql = format!(
        "SELECT CAST(column_name AS CHAR) FROM information_schema.columns
         WHERE table_schema = DATABASE() AND table_name = 'kept_{table}' ORDER BY ordinal_position"
    );
    let rows = session.rows(sql).await?;
    let names = rows.iter().map(|row| Ok(format!("`{}`", row.try_get::<String, _>(0)?))).collect::<Result<Vec<_>, Failure>>()?;
    Ok(names.join(", "))
}

fn listed(ids: &[u64]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

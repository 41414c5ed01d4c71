//! The database pair: crashes, failovers, a full disk. Everything here waits for servers; callers give it threads of their own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual_testbed::{MariaDb, Problem};

/// Bytes of the file system that each server lies on, where it may be filled.
const ROOM: u64 = 1 << 30;
/// How long a server may take until it writes again that had no room: it looks for some once a minute.
const WRITES_AGAIN: Duration = Duration::from_secs(90);
/// The database's name.
const NAME: &str = "chaos";

/// The server that all writes go to, and the one that has them too.
#[derive(Debug)]
pub struct Pair {
    primary: MariaDb,
    replica: Option<MariaDb>,
    room: Option<u64>,
    servers: u32,
    /// Where logs go of servers that are no more.
    folder: PathBuf,
    is_down: bool,
    is_stopped: bool,
}

impl Pair {
    /// Starts both. `may_fill`: each on a file system of its own, where this process may mount one.
    ///
    /// # Errors
    ///
    /// The programs are not installed, or they say why they can't.
    pub fn start(may_fill: bool, folder: &Path) -> Result<Pair, Problem> {
        let is_root = rustix::process::geteuid().is_root();
        let room = (may_fill && is_root).then_some(ROOM);
        let primary = MariaDb::start_primary(room)?;
        let replica = MariaDb::start_replica(&primary, 2, room)?;
        primary.create(NAME)?;
        Ok(Pair { primary, replica: Some(replica), room, servers: 2, folder: folder.to_owned(), is_down: false, is_stopped: false })
    }

    /// The port of the primary.
    pub fn port(&self) -> u16 {
        self.primary.port()
    }

    /// The primary's address.
    pub fn url(&self) -> String {
        plain(&self.primary.url(NAME))
    }

    /// The primary dies; or, where `stands_still`, it answers nobody.
    pub fn down(&mut self, stands_still: bool) {
        self.is_down = true;
        self.is_stopped = stands_still;
        if stands_still {
            self.primary.signal("STOP");
        } else {
            self.primary.kill();
        }
    }

    /// It starts again, and its replica follows it again.
    ///
    /// # Errors
    ///
    /// It says why it can't.
    pub fn up(&mut self) -> Result<(), Problem> {
        if std::mem::take(&mut self.is_stopped) {
            self.primary.signal("CONT");
        } else {
            self.primary.start_again()?;
        }
        self.is_down = false;
        self.wait_until_followed()
    }

    /// Fails over: the primary dies, and its replica takes its place. `Ok(Err)`: why it would lose what was confirmed, so that nothing was
    /// done.
    ///
    /// # Errors
    ///
    /// What the servers say.
    pub fn fail_over(&mut self) -> Result<Result<(), String>, Problem> {
        if self.is_down {
            return Ok(Err("the database is down".to_owned()));
        }
        let Some(replica) = self.replica.take() else { return Ok(Err("there is no replica".to_owned())) };
        if !self.primary.is_followed()? {
            self.replica = Some(replica);
            return Ok(Err("the replica is not in step".to_owned()));
        }
        self.primary.kill();
        keep_log(&self.primary, &self.folder.join(format!("mariadb-before-{}.log", self.servers)));
        replica.catch_up()?;
        replica.promote()?;
        self.primary = replica;
        Ok(Ok(()))
    }

    /// Gives the primary a new replica, which reads its log from the beginning.
    ///
    /// # Errors
    ///
    /// What the servers say.
    pub fn replace(&mut self) -> Result<(), Problem> {
        if self.replica.is_none() && !self.is_down {
            self.servers += 1;
            self.replica = Some(MariaDb::start_replica(&self.primary, self.servers, self.room)?);
            self.wait_until_followed()?;
        }
        Ok(())
    }

    /// Leaves the primary no room. `Ok(Err)`: why that can't be.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn fill(&mut self) -> Result<Result<(), String>, Problem> {
        match self.room {
            None => Ok(Err("only root can give the database a disk of its own".to_owned())),
            Some(_) if self.is_down => Ok(Err("the database is down".to_owned())),
            Some(_) => self.primary.fill().map(Ok),
        }
    }

    /// Gives it its room again, and waits until it writes.
    ///
    /// # Errors
    ///
    /// It does not.
    pub fn make_room(&mut self) -> Result<(), Problem> {
        self.primary.make_room()?;
        if self.is_down {
            return Ok(());
        }
        self.primary.wait_until_it_writes(WRITES_AGAIN)
    }

    fn wait_until_followed(&self) -> Result<(), Problem> {
        let began = Instant::now();
        while self.replica.is_some() && !self.primary.is_followed()? && began.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Copies the servers' logs.
    pub fn keep_logs(&self) {
        keep_log(&self.primary, &self.folder.join("mariadb-primary.log"));
        if let Some(replica) = &self.replica {
            keep_log(replica, &self.folder.join("mariadb-replica.log"));
        }
    }
}

fn keep_log(server: &MariaDb, into: &Path) {
    // What is not there can't be looked at.
    let _ = std::fs::copy(server.log(), into);
}

/// Without encryption: the proxies look for commits.
pub fn plain(url: &str) -> String {
    format!("{url}?ssl-mode=DISABLED")
}

//! MariaDB.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::server::{Folder, Problem, Server, free_port, output};

/// The only user besides root. Nobody but this machine can reach the server.
const USER: &str = "punctual";
const PASSWORD: &str = "private";

/// A private MariaDB with durable settings: each commit is on disk before it is answered.
#[derive(Debug)]
pub struct MariaDb {
    folder: Folder,
    /// Bytes of the file system of its own that it lies on.
    room: Option<u64>,
    port: u16,
    options: Vec<String>,
    server: Option<Server>,
}

impl MariaDb {
    /// Starts an empty server.
    ///
    /// # Errors
    ///
    /// The programs are not installed, or they say why they can't.
    pub fn start() -> Result<MariaDb, Problem> {
        MariaDb::start_with(&[])
    }

    /// Starts an empty server with further options, such as `--log-bin`.
    ///
    /// # Errors
    ///
    /// The programs are not installed, or they say why they can't.
    pub fn start_with(options: &[&str]) -> Result<MariaDb, Problem> {
        MariaDb::start_in(Folder::new("mariadb")?, None, options)
    }

    fn start_in(folder: Folder, room: Option<u64>, options: &[&str]) -> Result<MariaDb, Problem> {
        let data = folder.path().join("data");
        let temporary = folder.path().join("tmp");
        std::fs::create_dir(&temporary).map_err(|error| Problem::new(format!("{}: {error}", temporary.display())))?;
        let install = [
            "--no-defaults".to_owned(),
            format!("--datadir={}", data.display()),
            "--auth-root-authentication-method=normal".to_owned(),
            "--skip-test-db".to_owned(),
            format!("--tmpdir={}", temporary.display()),
        ];
        output("mariadb-install-db", &[install.to_vec(), as_root()].concat())?;
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut database = MariaDb { folder, room, port: free_port(), options, server: None };
        database.start_again()?;
        database.run(&format!(
            "SET sql_log_bin = 0; CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;"
        ))?;
        Ok(database)
    }

    /// Starts a primary and a replica of it that confirms each commit before it is answered (semi-synchronous, after sync), and answers
    /// when they are in step.
    ///
    /// # Errors
    ///
    /// The programs are not installed, or they say why they can't.
    pub fn start_pair() -> Result<(MariaDb, MariaDb), Problem> {
        let primary = MariaDb::start_primary(None)?;
        let replica = MariaDb::start_replica(&primary, 2, None)?;
        Ok((primary, replica))
    }

    /// Starts a server that semi-synchronous replicas may follow. `room`: so many bytes on a file system of its own, which only root can
    /// have.
    ///
    /// # Errors
    ///
    /// The programs are not installed, or they say why they can't.
    pub fn start_primary(room: Option<u64>) -> Result<MariaDb, Problem> {
        MariaDb::start_replicating(1, room)
    }

    /// Starts an empty replica of a primary, whose log must go back to its beginning, and answers when they are in step.
    ///
    /// # Errors
    ///
    /// The programs are not installed, or they say why they can't.
    pub fn start_replica(primary: &MariaDb, id: u32, room: Option<u64>) -> Result<MariaDb, Problem> {
        let replica = MariaDb::start_replicating(id, room)?;
        replica.run("RESET MASTER; SET GLOBAL gtid_slave_pos = '';")?;
        replica.run("SET GLOBAL read_only = 1;")?;
        replica.follow(primary)?;
        Ok(replica)
    }

    fn start_replicating(id: u32, room: Option<u64>) -> Result<MariaDb, Problem> {
        let id = format!("--server-id={id}");
        let options = [
            &id,
            "--log-bin=log",
            "--gtid-strict-mode=1",
            "--log-slave-updates=1",
            "--sync-binlog=1",
            "--binlog-format=ROW",
            "--rpl-semi-sync-master-enabled=1",
            "--rpl-semi-sync-slave-enabled=1",
            "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
            "--rpl-semi-sync-master-timeout=3600000",
            "--rpl-semi-sync-master-wait-no-slave=0",
        ];
        let folder = room.map_or_else(|| Folder::new("mariadb"), |room| Folder::with_room("mariadb", room))?;
        MariaDb::start_in(folder, room, &options)
    }

    /// Whether a replica confirms each commit just now before it is answered, and has all that was answered.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub fn is_followed(&self) -> Result<bool, Problem> {
        let told = self.run("SHOW STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', 'Rpl_semi_sync_master_clients');")?;
        let is = |name: &str, wanted: &str| told.lines().any(|line| line.split_whitespace().eq([name, wanted]));
        Ok(is("Rpl_semi_sync_master_status", "ON") && is("Rpl_semi_sync_master_clients", "1"))
    }

    /// Waits until this replica has carried out all that has come from its primary, also where that is gone.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub fn catch_up(&self) -> Result<(), Problem> {
        // What it has confirmed, it has written down.
        self.run("STOP SLAVE IO_THREAD;")?;
        let began = Instant::now();
        loop {
            let told = self.run("SHOW SLAVE STATUS\\G")?;
            match told.contains("Slave has read all relay log") {
                true => return Ok(()),
                false if began.elapsed() > Duration::from_secs(30) => return Err(Problem::new(format!("the replica lags behind: {told}"))),
                false => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Takes all room away that is not taken yet. Only for a server that was started with room of its own.
    ///
    /// # Errors
    ///
    /// It has none, or the system says why not.
    pub fn fill(&self) -> Result<(), Problem> {
        if self.room.is_none() {
            return Err(Problem::new("it shares its disk with others"));
        }
        self.folder.set_room(self.folder.taken()?.max(4096))
    }

    /// Gives the room back.
    ///
    /// # Errors
    ///
    /// The system says why not.
    pub fn make_room(&self) -> Result<(), Problem> {
        self.room.map_or(Ok(()), |room| self.folder.set_room(room))
    }

    /// Makes this server a replica of another one, and waits until it has all that the other one has.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub fn follow(&self, primary: &MariaDb) -> Result<(), Problem> {
        self.run(&format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = '{USER}', MASTER_PASSWORD = '{PASSWORD}', \
             MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1; START SLAVE;",
            primary.port
        ))?;
        let position = primary.run("SELECT @@gtid_binlog_pos;")?;
        let reached = self.run(&format!("SELECT MASTER_GTID_WAIT('{}', 30);", position.trim()))?;
        match reached.trim() {
            "0" => Ok(()),
            _ => Err(Problem::new(format!("the replica is not in step: {}", self.run("SHOW SLAVE STATUS\\G")?))),
        }
    }

    /// Ends being a replica: this server takes writes from now on.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub fn promote(&self) -> Result<(), Problem> {
        self.run("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0;").map(drop)
    }

    /// Waits until a write goes through.
    ///
    /// # Errors
    ///
    /// None did in this time.
    pub fn wait_until_it_writes(&self, most: Duration) -> Result<(), Problem> {
        let began = Instant::now();
        loop {
            match self.run("CREATE DATABASE IF NOT EXISTS probe; DROP DATABASE probe;") {
                Ok(_) => return Ok(()),
                Err(problem) if began.elapsed() > most => return Err(problem),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Where it writes its log.
    pub fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Makes a database and answers its address.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub fn create(&self, database: &str) -> Result<String, Problem> {
        self.run(&format!("CREATE DATABASE `{database}` CHARACTER SET utf8mb4;"))?;
        Ok(self.url(database))
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process.
    ///
    /// # Panics
    ///
    /// Where it does not run.
    pub fn pid(&self) -> u32 {
        self.server.as_ref().expect("it runs").pid()
    }

    /// Carries statements out as root; what they answered, one row a line.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub fn run(&self, sql: &str) -> Result<String, Problem> {
        let socket = format!("--socket={}", self.folder.path().join("socket").display());
        let arguments = ["--no-defaults", &socket, "--user=root", "--skip-column-names", "--batch", "--execute", sql];
        output("mariadb", &arguments.map(str::to_owned))
    }

    /// Ends the server as a crash would.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    /// Sends the server a signal, such as `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        if let Some(server) = &self.server {
            server.signal(name);
        }
    }

    /// Starts it again on the same port with the same data.
    ///
    /// # Errors
    ///
    /// It says why it can't.
    pub fn start_again(&mut self) -> Result<(), Problem> {
        let folder = self.folder.path();
        let mut arguments = vec![
            "--no-defaults".to_owned(),
            format!("--datadir={}", folder.join("data").display()),
            format!("--socket={}", folder.join("socket").display()),
            format!("--pid-file={}", folder.join("pid").display()),
            format!("--port={}", self.port),
            format!("--tmpdir={}", folder.join("tmp").display()),
            "--bind-address=127.0.0.1".to_owned(),
            "--skip-name-resolve".to_owned(),
            "--innodb-flush-log-at-trx-commit=1".to_owned(),
            "--innodb-log-file-size=128M".to_owned(),
            "--innodb-buffer-pool-size=256M".to_owned(),
            "--max-connections=300".to_owned(),
            "--character-set-server=utf8mb4".to_owned(),
        ];
        arguments.extend(as_root());
        arguments.extend(self.options.iter().cloned());
        self.server = Some(Server::start("mariadbd", &arguments, self.port, &folder.join("log"))?);
        // It listens a little before it takes connections in.
        let began = Instant::now();
        loop {
            match self.run("SELECT 1;") {
                Ok(_) => return Ok(()),
                Err(_) if began.elapsed() < Duration::from_secs(30) => std::thread::sleep(Duration::from_millis(50)),
                Err(problem) => return Err(problem),
            }
        }
    }
}

/// The server refuses to be root unless told.
fn as_root() -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if is_root { vec!["--user=root".to_owned()] } else { Vec::new() }
}

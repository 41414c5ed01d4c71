//! Redis.

use crate::server::{Folder, Problem, Server, free_port};

/// A private Redis that keeps nothing on disk.
#[derive(Debug)]
pub struct Redis {
    folder: Folder,
    port: u16,
    options: Vec<String>,
    server: Option<Server>,
}

impl Redis {
    /// Starts an empty server.
    ///
    /// # Errors
    ///
    /// The program is not installed, or says why it can't.
    pub fn start() -> Result<Redis, Problem> {
        Redis::start_with(&[])
    }

    /// Starts an empty server with further options, such as `--rename-command EVAL ""`.
    ///
    /// # Errors
    ///
    /// The program is not installed, or says why it can't.
    pub fn start_with(options: &[&str]) -> Result<Redis, Problem> {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut redis = Redis { folder: Folder::new("redis")?, port: free_port(), options, server: None };
        redis.start_again()?;
        Ok(redis)
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
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

    /// Starts it again on the same port, empty.
    ///
    /// # Errors
    ///
    /// It says why it can't.
    pub fn start_again(&mut self) -> Result<(), Problem> {
        let folder = self.folder.path();
        let fixed =
            ["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--save", "", "--appendonly", "no", "--dir"].map(str::to_owned);
        let mut arguments = fixed.to_vec();
        arguments.push(folder.display().to_string());
        arguments.extend(self.options.iter().cloned());
        self.server = Some(Server::start("redis-server", &arguments, self.port, &folder.join("log"))?);
        Ok(())
    }
}

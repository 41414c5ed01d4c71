//! Private database servers: a MariaDB or a Redis on a free port of the loopback, in a temporary folder, that ends with this process
//! however that ends. So do other processes that are started here. The system's own servers are never touched.
//!
//! The programs come from Debian's packages `mariadb-server` and `redis-server`; nothing here installs anything.

mod mariadb;
mod process;
mod redis;
mod server;

pub use mariadb::MariaDb;
pub use process::Process;
pub use redis::Redis;
pub use server::{Problem, free_port};

//! Task files: YAML and crontab in, checked definitions out.

pub mod handler;

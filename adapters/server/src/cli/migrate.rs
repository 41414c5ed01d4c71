//! `punctual migrate`.

use punctual_core::limits;
use punctual_store::MySqlStore;

use super::Exit;
use super::output::Output;

#[derive(clap::Args)]
pub(crate) struct MigrateArgs {
    /// The database: mysql://user:password@host:port/name
    #[arg(long, env = "PUNCTUAL_DATABASE", hide_env_values = true, value_name = "URL")]
    database: String,
    /// Into how many partitions a new database is divided; for good
    #[arg(long, default_value_t = limits::PARTITIONS_DEFAULT, value_parser = clap::value_parser!(u16).range(1..=i64::from(limits::PARTITIONS_MAX)), value_name = "COUNT")]
    partitions: u16,
}

impl MigrateArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        let migrated = super::block_on(
            async {
                let partitions = MySqlStore::migrate(&self.database, self.partitions).await?;
                if partitions != self.partitions {
                    eprintln!("the database has {partitions} partitions, and keeps them");
                }
                Ok(Exit::Done)
            },
            output,
        );
        if migrated == Exit::Done {
            output.line("the database has the newest schema");
        }
        migrated
    }
}

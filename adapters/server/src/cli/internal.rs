//! Which internal addresses HTTP calls may go to.

use punctual_worker::InternalAddresses;

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct InternalArgs {
    /// Let HTTP calls go to internal addresses: all of them, or those of these networks only, such as
    /// --allow-internal-addresses=10.0.0.0/8,192.168.1.7
    #[arg(long, value_name = "NETWORKS", num_args = 0..=1, require_equals = true, default_missing_value = "all", value_delimiter = ',')]
    allow_internal_addresses: Vec<InternalAddresses>,
}

impl InternalArgs {
    /// Those, and these.
    pub(super) fn or(self, more: InternalAddresses) -> InternalAddresses {
        self.allow_internal_addresses.into_iter().fold(more, InternalAddresses::or)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        internal: InternalArgs,
    }

    #[test]
    fn none_are_allowed_unless_they_are_named_or_all_are() {
        let of = |arguments: &[&str]| {
            let parsed = Command::try_parse_from([&["x"], arguments].concat());
            parsed.map(|command| command.internal.or(InternalAddresses::default()))
        };
        assert_eq!(of(&[]).ok(), Some(InternalAddresses::default()));
        assert_eq!(of(&["--allow-internal-addresses"]).ok(), Some(InternalAddresses::all()));
        let some = of(&["--allow-internal-addresses=10.0.0.0/8,192.168.1.7"]).ok().unwrap();
        assert!(some.allow("10.9.9.9".parse().unwrap()) && some.allow("192.168.1.7".parse().unwrap()));
        assert!(!some.allow("127.0.0.1".parse().unwrap()) && !some.allow("192.168.1.8".parse().unwrap()));
        assert!(of(&["--allow-internal-addresses=inside"]).is_err());
    }
}

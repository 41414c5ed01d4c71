//! Where a Redis is.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redis::{Client, ErrorKind, RedisError, RedisResult};

/// How long a sentinel may take to answer.
const SENTINEL_TIME_MAX: Duration = Duration::from_secs(2);

/// Where a Redis is.
///
/// | text | what it is |
/// | --- | --- |
/// | `redis://[user:password@]host:port[/db]`, `rediss://` with TLS | one server |
/// | `redis+sentinel://[user:password@]host:port,host:port/service[/db]`, `rediss+sentinel://` | the primary that sentinels name |
/// | `redis+cluster://[user:password@]host:port,host:port`, `rediss+cluster://` | a cluster, through whichever of these nodes answers |
///
/// It is shown without its password.
#[derive(Clone)]
pub struct Address {
    kind: Kind,
    scheme: &'static str,
    /// `user:password@`, or nothing.
    credentials: String,
    hosts: Vec<String>,
    /// The database's number.
    database: u32,
}

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Server,
    Cluster,
    Sentinel { service: String },
}

/// A text that is no address of a Redis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "PUN-320: {what}. Write redis://host:port, rediss://host:port for TLS, redis+sentinel://host:port,host:port/service or redis+cluster://host:port,host:port"
)]
pub struct AddressError {
    what: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = |what| Err(AddressError { what });
        let Some((scheme, rest)) = text.split_once("://") else { return wrong("the address of Redis has no scheme") };
        let (scheme, kind) = match scheme.split_once('+').map_or((scheme, None), |(scheme, kind)| (scheme, Some(kind))) {
            ("redis", kind) => ("redis", kind),
            ("rediss", kind) => ("rediss", kind),
            _ => return wrong("the address of Redis has an unknown scheme"),
        };
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (format!("{credentials}@"), rest),
            None => (String::new(), rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts: Vec<String> = hosts.split(',').map(|host| with_port(host, kind)).collect();
        if hosts.iter().any(|host| host.starts_with(':') || host.contains(char::is_whitespace)) {
            return wrong("the address of Redis names no host");
        }
        let (service, database) = match kind {
            Some("sentinel") => path.split_once('/').unwrap_or((path, "")),
            _ => ("", path),
        };
        let database = match database {
            "" => 0,
            number => match number.parse() {
                Ok(number) => number,
                Err(_) => return wrong("the database in the address of Redis is not a number"),
            },
        };
        let kind = match kind {
            None if hosts.len() > 1 => return wrong("the address of Redis names several hosts"),
            None => Kind::Server,
            Some("cluster") if database != 0 => return wrong("a Redis cluster has the database 0 only"),
            Some("cluster") => Kind::Cluster,
            Some("sentinel") if service.is_empty() => return wrong("the address of Redis sentinels names no service"),
            Some("sentinel") => Kind::Sentinel { service: service.to_owned() },
            Some(_) => return wrong("the address of Redis has an unknown scheme"),
        };
        Ok(Address { kind, scheme, credentials, hosts, database })
    }
}

fn with_port(host: &str, kind: Option<&str>) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match (has_port, kind) {
        (true, _) => host.to_owned(),
        (false, Some("sentinel")) => format!("{host}:26379"),
        (false, _) => format!("{host}:6379"),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { scheme, hosts, database, .. } = self;
        let hosts = hosts.join(",");
        match &self.kind {
            Kind::Server => write!(f, "{scheme}://{hosts}/{database}"),
            Kind::Cluster => write!(f, "{scheme}+cluster://{hosts}"),
            Kind::Sentinel { service } => write!(f, "{scheme}+sentinel://{hosts}/{service}/{database}"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Address {
    /// The servers that may be asked, in the order in which to try them.
    pub(crate) async fn servers(&self) -> RedisResult<Vec<Client>> {
        let hosts = match &self.kind {
            Kind::Server | Kind::Cluster => self.hosts.clone(),
            Kind::Sentinel { service } => vec![self.primary(service).await?],
        };
        hosts.iter().map(|host| Client::open(format!("{}://{}{host}/{}", self.scheme, self.credentials, self.database))).collect()
    }

    /// Asks the sentinels, one after the other, for the primary.
    async fn primary(&self, service: &str) -> RedisResult<String> {
        let mut last: RedisError = (ErrorKind::Io, "no sentinel answered").into();
        for host in &self.hosts {
            let ask = async {
                let client = Client::open(format!("{}://{host}/", self.scheme))?;
                let mut connection = client.get_multiplexed_async_connection().await?;
                let mut question = redis::cmd("SENTINEL");
                question.arg("get-master-addr-by-name").arg(service);
                question.query_async::<Option<(String, u16)>>(&mut connection).await
            };
            match tokio::time::timeout(SENTINEL_TIME_MAX, ask).await {
                Ok(Ok(Some((host, port)))) => return Ok(format!("{host}:{port}")),
                Ok(Ok(None)) => last = (ErrorKind::InvalidClientConfig, "the sentinels know no such service").into(),
                Ok(Err(error)) => last = error,
                Err(_) => {}
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_passwords() {
        for (text, shown) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("rediss://me:secret@redis.example:7000/3", "rediss://redis.example:7000/3"),
            ("redis+cluster://:secret@a:1,b:2", "redis+cluster://a:1,b:2"),
            ("rediss+sentinel://:s@cret@a,b:2/main/1", "rediss+sentinel://a:26379,b:2/main/1"),
            ("redis://[::1]:6380", "redis://[::1]:6380/0"),
        ] {
            let address: Address = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((address.to_string(), format!("{address:?}")), (shown.to_owned(), shown.to_owned()));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_says_why() {
        for (text, what) in [
            ("localhost:6379", "has no scheme"),
            ("http://a", "an unknown scheme"),
            ("redis+ring://a", "an unknown scheme"),
            ("redis://", "names no host"),
            ("redis://a,b", "several hosts"),
            ("redis://a/zero", "not a number"),
            ("redis+cluster://a/1", "the database 0 only"),
            ("redis+sentinel://a", "names no service"),
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains(what) && error.contains("PUN-320"), "{text}: {error}");
        }
    }
}

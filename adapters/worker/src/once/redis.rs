//! Once an instance, on Redis.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use punctual_worker::once::redis::{Ran, run};
//! use punctual_worker::{HandlerError, TaskContext};
//!
//! const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);
//!
//! async fn book(context: TaskContext, mut redis: redis::aio::MultiplexedConnection, cents: i64) -> Result<(), HandlerError> {
//!     let mut commands = redis::pipe();
//!     commands.incr("{accounts}:total", cents).rpush("{accounts}:entries", context.idempotency_key());
//!     match run::<(i64, u64)>(&mut redis, &context.once(), "accounts", &commands, WEEK).await? {
//!         Ran::First((total, entries)) => context.log(format!("{total} cents in {entries} entries")),
//!         Ran::Repeated => context.log("booked before"),
//!         Ran::Superseded => return Err(HandlerError::retry("a newer attempt has taken over")),
//!     }
//!     Ok(())
//! }
//! ```

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, FromRedisValue, Pipeline, RedisError, RedisResult, Value};

use super::Key;

/// Most arguments of one command, its name included: what Lua passes on at once.
pub const ARGUMENTS_MAX: usize = 1 << 10;

/// The mark is a hash: the highest fence that has come, and each step that was done. Fences are of one length, so that they compare as
/// texts. The mark comes before the commands: Redis undoes nothing, and what failed half-way is not to be begun again.
const SCRIPT: &str = "
local fence, step, keep = ARGV[1], ARGV[2], ARGV[3]
local highest = redis.call('HGET', KEYS[1], 'fence')
if redis.call('HEXISTS', KEYS[1], step) == 1 then return {'repeated'} end
if highest and highest > fence then return {'superseded'} end
redis.call('HSET', KEYS[1], 'fence', fence, step, fence)
redis.call('PEXPIRE', KEYS[1], keep)
local replies = {}
local at = 4
while at <= #ARGV do
    local count = tonumber(ARGV[at])
    replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + count))
    at = at + count + 1
end
return {'first', replies}";

/// What became of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran<T> {
    /// They were run now, and this is what they answered.
    First(T),
    /// Another attempt has run them: nothing was done.
    Repeated,
    /// A newer attempt has been here and has not run them, as it may do yet: nothing was done.
    Superseded,
}

/// Runs the commands once, all of them without anything in between.
///
/// The first attempt that comes runs them and leaves a mark, `{slot}:punctual_once:` and the instance's key, which is kept for `keep` after
/// its last change. An attempt of an older fence than one that has left a mark of the same instance, for whichever step, runs nothing.
///
/// On a cluster the mark is in the slot of `slot`, and all keys of the commands have to be in it too: write them with `{slot}` in them.
/// `keep` has to be longer than attempts of the instance can come. Redis confirms before it has written to disk or to a replica: what it
/// forgets in a crash it forgets mark and all, if the commands are all there is.
///
/// It is a script, so that it takes one way and works on a connection that others use too; the user needs the right to `EVAL`.
///
/// # Errors
///
/// What Redis says. Where it refuses one of the commands while they run, such as for a key of another type, those before it have been
/// run, those behind it have not, and all count as done. A connection that breaks leaves open whether they were run: try again, under the
/// same key.
///
/// # Panics
///
/// Where `slot` is empty or has a brace in it, a command has more than [`ARGUMENTS_MAX`] arguments, or `keep` is shorter than a
/// millisecond.
pub async fn run<T: FromRedisValue>(
    redis: &mut impl ConnectionLike,
    key: &Key,
    slot: &str,
    commands: &Pipeline,
    keep: Duration,
) -> RedisResult<Ran<T>> {
    assert!(!slot.is_empty() && !slot.contains(['{', '}']), "a slot has a name without braces");
    assert!(keep.as_millis() >= 1, "a mark is kept for a while");
    let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX).min(1_000 * 366 * 24 * 3_600 * 1_000);
    let mut script = redis::cmd("EVAL");
    script.arg(SCRIPT).arg(1).arg(format!("{{{slot}}}:punctual_once:{}", key.instance));
    script.arg(format!("{:020}", key.fence.0)).arg(format!("#{}", key.step)).arg(keep_ms);
    for command in commands.cmd_iter() {
        pass_on(&mut script, command);
    }
    let mut answer = script.query_async::<Vec<Value>>(redis).await?;
    let replies = if answer.len() > 1 { answer.pop() } else { None };
    let (what,): (String,) = FromRedisValue::from_redis_value(Value::Array(answer))?;
    match (&*what, replies) {
        ("first", Some(replies)) => Ok(Ran::First(FromRedisValue::from_redis_value(replies)?)),
        ("repeated", None) => Ok(Ran::Repeated),
        ("superseded", None) => Ok(Ran::Superseded),
        _ => Err(RedisError::from((redis::ErrorKind::UnexpectedReturnType, "not an answer of this script"))),
    }
}

/// A command as arguments of the script: how many there are, and they.
fn pass_on(script: &mut Cmd, command: &Cmd) {
    let arguments: Vec<&[u8]> = command
        .args_iter()
        .map(|argument| match argument {
            Arg::Simple(bytes) => bytes,
            // The place of a cursor, which only an iterator over several calls fills in.
            _ => b"0",
        })
        .collect();
    assert!(arguments.len() <= ARGUMENTS_MAX, "a command has at most {ARGUMENTS_MAX} arguments");
    script.arg(arguments.len());
    for argument in arguments {
        script.arg(argument);
    }
}

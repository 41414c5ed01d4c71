//! Both ends of the channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use punctual_driver::link::ToSchedulerNode;
use punctual_driver::ports::{Signals, Wake};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Client, ErrorKind, RedisError, RedisResult};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;

use crate::address::Address;
use crate::message;

/// How long Redis may take to answer, or to take a connection.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// How often it is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// First and longest wait before it is tried again.
const RETRY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

const INBOX: &str = "inbox";
const LEASES: &str = "leases";

/// How it stands with Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Wake-ups come and go.
    Up,
    /// They don't: replicas look by themselves, which takes up to half a second longer.
    Down {
        /// Why.
        reason: String,
    },
}

/// Wakes the replicas of a cluster up over Redis, this process's own at once.
#[derive(Debug)]
pub struct RedisSignals {
    node: mpsc::Sender<ToSchedulerNode>,
    pending: Arc<Pending>,
    state: watch::Receiver<State>,
}

/// What others are to be woken up for.
#[derive(Debug, Default)]
struct Pending {
    inbox: AtomicBool,
    leases: AtomicBool,
    any: Notify,
}

impl RedisSignals {
    /// Connects in the background, and again whenever the connection breaks. `cluster` tells this cluster's wake-ups from those of others
    /// on the same Redis. It ends when `node` does, or all who hold this have gone.
    pub fn connect(address: Address, cluster: &str, node: mpsc::Sender<ToSchedulerNode>) -> RedisSignals {
        // Fails where the process has one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (told, state) = watch::channel(State::Down { reason: "not connected yet".to_owned() });
        let pending = Arc::new(Pending::default());
        let channel = format!("punctual:{cluster}:wake");
        let talking = Talking { address, channel, node: node.clone(), pending: pending.clone(), told };
        tokio::spawn(talking.run());
        RedisSignals { node, pending, state }
    }

    /// How it stands, and each change.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }
}

impl Signals for RedisSignals {
    fn wake(&self, wake: Wake) {
        // A node whose queue is full is awake.
        let _ = self.node.try_send(message(&wake));
        let flag = match wake {
            Wake::Inbox => &self.pending.inbox,
            Wake::Leases => &self.pending.leases,
        };
        if !flag.swap(true, Ordering::AcqRel) {
            self.pending.any.notify_one();
        }
    }
}

struct Talking {
    address: Address,
    channel: String,
    node: mpsc::Sender<ToSchedulerNode>,
    pending: Arc<Pending>,
    told: watch::Sender<State>,
}

impl Talking {
    async fn run(self) {
        let mut wait = RETRY[0];
        loop {
            let began = tokio::time::Instant::now();
            let broken = tokio::select! {
                biased;
                // Those who wake others up have gone, or the one that is woken up.
                () = self.told.closed() => return,
                () = self.node.closed() => return,
                broken = self.talk() => broken,
            };
            self.told.send_replace(State::Down { reason: format!("Redis {}: {broken}", self.address) });
            if began.elapsed() > RETRY[1] {
                wait = RETRY[0];
            }
            sleep(wait).await;
            wait = (wait * 2).min(RETRY[1]);
        }
    }

    /// Carries wake-ups both ways until something breaks.
    async fn talk(&self) -> RedisError {
        let (mut publisher, subscriber) = match self.connected().await {
            Ok(both) => both,
            Err(error) => return error,
        };
        self.told.send_replace(State::Up);
        // What was missed meanwhile.
        self.wake_own(INBOX);
        self.wake_own(LEASES);
        let (mut pinger, mut messages) = subscriber.split();
        let ping = async {
            loop {
                sleep(PING_INTERVAL).await;
                if let Err(error) = in_time(pinger.ping::<redis::Value>()).await {
                    return error;
                }
            }
        };
        let hear = async {
            while let Some(heard) = messages.next().await {
                self.wake_own(&heard.get_payload::<String>().unwrap_or_default());
            }
            RedisError::from((ErrorKind::Io, "the connection ended"))
        };
        let publish = async {
            loop {
                self.pending.any.notified().await;
                for (flag, what) in [(&self.pending.inbox, INBOX), (&self.pending.leases, LEASES)] {
                    if flag.swap(false, Ordering::AcqRel)
                        && let Err(error) = in_time(self.publish(&mut publisher, what)).await
                    {
                        return error;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            error = ping => error,
            error = hear => error,
            error = publish => error,
        }
    }

    async fn publish(&self, publisher: &mut MultiplexedConnection, what: &str) -> RedisResult<()> {
        redis::cmd("PUBLISH").arg(&self.channel).arg(what).query_async(publisher).await
    }

    /// Two connections to the first server that takes them.
    async fn connected(&self) -> RedisResult<(MultiplexedConnection, PubSub)> {
        let mut last: RedisError = (ErrorKind::Io, "there is no server").into();
        for client in self.address.servers().await? {
            match in_time(both(&client, &self.channel)).await {
                Ok(both) => return Ok(both),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Wakes this process's node up. It hears its own wake-ups as well, and looks twice.
    fn wake_own(&self, what: &str) {
        let message = match what {
            INBOX => ToSchedulerNode::InboxSignalled,
            LEASES => ToSchedulerNode::LeasesSignalled,
            _ => return,
        };
        let _ = self.node.try_send(message);
    }
}

async fn both(client: &Client, channel: &str) -> RedisResult<(MultiplexedConnection, PubSub)> {
    let publisher = client.get_multiplexed_async_connection().await?;
    let mut subscriber = client.get_async_pubsub().await?;
    subscriber.subscribe(channel).await?;
    Ok((publisher, subscriber))
}

async fn in_time<T>(answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    timeout(ANSWER_TIME_MAX, answer).await.unwrap_or_else(|_| Err((ErrorKind::Io, "no answer came in time").into()))
}

//! The connections: each goes through a proxy of ours, which does to it what the weather says.
//!
//! What a cut keeps back waits, as it would in a network whose packets are sent again: connections stay open, and what was sent arrives
//! when the cut is mended. An end that closes is heard of by the other one only then too.

mod mysql;
mod peer;
mod pump;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use punctual_sim::draw::Draw;
use punctual_sim::history::Who;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::proxy::mysql::Commits;
use crate::proxy::pump::{Direction, Filter};
use crate::weather::{End, Weather};

pub use crate::proxy::peer::Pids;

/// Where the connections of a proxy lead.
#[derive(Clone, Debug)]
pub enum Link {
    /// From a scheduler to the database.
    Database {
        /// The scheduler.
        scheduler: usize,
    },
    /// From a scheduler to Redis.
    Redis {
        /// The scheduler.
        scheduler: usize,
    },
    /// From workers to a scheduler.
    Workers {
        /// The scheduler.
        scheduler: usize,
        /// Where it listens.
        port: u16,
        /// The workers' processes, by which they are told apart.
        pids: Pids,
    },
}

impl Link {
    fn port(&self, weather: &Weather) -> u16 {
        match self {
            Link::Database { .. } => weather.database_port,
            Link::Redis { .. } => weather.redis_port,
            Link::Workers { port, .. } => *port,
        }
    }

    /// Who dials, and who is dialled.
    fn ends(&self, peer: SocketAddr, own: SocketAddr) -> [End; 2] {
        match self {
            Link::Database { scheduler } => [End::Node(Who::Scheduler(*scheduler)), End::Database],
            Link::Redis { scheduler } => [End::Node(Who::Scheduler(*scheduler)), End::Redis],
            Link::Workers { scheduler, pids, .. } => {
                let worker = peer::worker_of(pids, peer.port(), own.port());
                [worker.map_or(End::Nobody, |worker| End::Node(Who::Worker(worker))), End::Node(Who::Scheduler(*scheduler))]
            }
        }
    }
}

/// Takes connections in, for as long as the future is held. What falls to chance on them is drawn.
///
/// # Errors
///
/// The listener fails.
pub async fn serve(listener: TcpListener, link: Link, draw: Draw, weather: watch::Receiver<Weather>) -> io::Result<()> {
    let draw = Arc::new(Mutex::new(draw));
    loop {
        let (client, peer) = listener.accept().await?;
        let own = listener.local_addr()?;
        let (link, draw, weather) = (link.clone(), draw.clone(), weather.clone());
        tokio::spawn(async move {
            // Looks through the system's tables of sockets.
            let of_link = link.clone();
            let ends = tokio::task::spawn_blocking(move || of_link.ends(peer, own)).await;
            let Ok(ends) = ends else { return };
            // A connection that fails is what its ends make of it.
            let _ = connect(client, &link, ends, draw, weather).await;
        });
    }
}

/// A listener on a free port of the loopback.
///
/// # Errors
///
/// There is none.
pub async fn listener() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
}

async fn connect(
    client: TcpStream,
    link: &Link,
    ends: [End; 2],
    draw: Arc<Mutex<Draw>>,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let begun = weather.borrow().breaks(ends);
    // Where nothing gets through, nothing is dialled.
    let is_open = |weather: &Weather| !weather.passage(ends[0], ends[1]).is_cut && !weather.passage(ends[1], ends[0]).is_cut;
    let port = weather.wait_for(is_open).await.map(|weather| link.port(&weather)).map_err(io::Error::other)?;
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let [dialler, dialled] = ends;
    let commits = match link {
        Link::Database { .. } => Some(Arc::new(Commits::new(draw.clone(), weather.clone()))),
        Link::Redis { .. } | Link::Workers { .. } => None,
    };
    let there = Direction { from: dialler, to: dialled, weather: weather.clone(), filter: Filter::questions(&commits), draw: draw.clone() };
    let back = Direction { from: dialled, to: dialler, weather: weather.clone(), filter: Filter::answers(&commits), draw };
    let flowing = async { tokio::try_join!(there.carry(from_client, to_server), back.carry(from_server, to_client)) };
    tokio::select! {
        biased;
        () = broken(ends, begun, weather) => Err(io::ErrorKind::ConnectionReset.into()),
        flowed = flowing => flowed.map(drop),
    }
}

/// Comes back when the connection is to break.
async fn broken(ends: [End; 2], begun: u64, mut weather: watch::Receiver<Weather>) {
    // Whoever changes the weather is gone only with the run.
    let _ = weather.wait_for(|weather| weather.breaks(ends) != begun).await;
}

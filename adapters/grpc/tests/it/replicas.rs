//! Finding replicas.

use punctual_driver::link::ToWorkerNode;
use punctual_grpc::LinkState;
use tokio::sync::watch;

use crate::harness::{Dialling, Listening, options};

#[tokio::test]
async fn the_second_replica_is_found_through_the_first_and_dropped_when_it_is_gone() {
    let (list, replicas) = watch::channel(Vec::new());
    let mut first = Listening::start(punctual_grpc::ServerOptions { replicas, ..options("a") }).await;
    let mut second = Listening::start(options("b")).await;
    list.send_replace(vec![first.address.to_string(), second.address.to_string()]);
    let mut worker = Dialling::start(&[first.address.to_string()], |_| {});
    let (_, _to_first) = worker.connected("w1").await;
    let _to_worker = first.welcomed().await;
    let (at_second, _link) = loop {
        match worker.next().await {
            ToWorkerNode::Connected(connection, link) => {
                link.send(vec![crate::harness::hello("w1")]).await.expect("the link is open");
                break (connection, second.welcomed().await);
            }
            ToWorkerNode::Messages(..) => {}
            other => panic!("{other:?}"),
        }
    };
    let (at, gone) = (second.address, format!("http://{}", second.address));
    second.kill().await;
    disconnected(&mut worker, at_second).await;
    // Nobody lists it any more, and it is found again all the same: it was restarted.
    list.send_replace(vec![first.address.to_string()]);
    let mut second = Listening::start_at(at, options("b-again")).await;
    let at_second = loop {
        match worker.next().await {
            ToWorkerNode::Connected(connection, link) => {
                link.send(vec![crate::harness::hello("w1")]).await.expect("the link is open");
                second.welcomed().await;
                break connection;
            }
            ToWorkerNode::Messages(..) => {}
            other => panic!("{other:?}"),
        }
    };
    second.kill().await;
    disconnected(&mut worker, at_second).await;
    loop {
        let (address, state) = worker.state().await;
        if state == LinkState::Dropped {
            assert_eq!(address, gone);
            break;
        }
    }
}

async fn disconnected(worker: &mut Dialling, from: punctual_core::ids::ConnectionId) {
    loop {
        match worker.next().await {
            ToWorkerNode::Disconnected(connection) if connection == from => return,
            ToWorkerNode::Messages(..) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_replica_that_is_reached_by_two_addresses_has_one_connection() {
    let (list, replicas) = watch::channel(Vec::new());
    let mut scheduler = Listening::start(punctual_grpc::ServerOptions { replicas, ..options("a") }).await;
    // Another way to write the loopback, which no name service has to be asked about.
    let by_name = format!("0.0.0.0:{}", scheduler.address.port());
    list.send_replace(vec![by_name.clone(), scheduler.address.to_string()]);
    let mut worker = Dialling::start(&[scheduler.address.to_string()], |_| {});
    let (_, _link) = worker.connected("w1").await;
    let _to_worker = scheduler.welcomed().await;
    loop {
        let (address, state) = worker.state().await;
        if let LinkState::SameReplica { replica } = state {
            assert_eq!((address, &*replica), (format!("http://{by_name}"), "a"));
            break;
        }
    }
    assert!(scheduler.node.try_recv().is_err(), "nobody else has come");
}

#[tokio::test]
async fn a_listed_address_in_the_clear_is_not_dialled_by_who_wants_tls() {
    let listed = ["http://127.0.0.1:1", "nonsense", "ftp://127.0.0.1:2", "127.0.0.1"].map(str::to_owned).to_vec();
    let (list, replicas) = watch::channel(listed);
    let authority = crate::tls::Authority::new();
    let tls = Some(authority.server("localhost"));
    let mut scheduler = Listening::start(punctual_grpc::ServerOptions { replicas, tls, ..options("a") }).await;
    let mut worker = Dialling::start(&[scheduler.address.to_string()], |options| options.tls = Some(authority.client(Some("localhost"))));
    let (_, _link) = worker.connected("w1").await;
    let _to_worker = scheduler.welcomed().await;
    assert_eq!(worker.state().await, (format!("https://{}", scheduler.address), LinkState::Connected));
    // It has heard of them by now, and of a change that comes after them.
    let mut other = Listening::start(punctual_grpc::ServerOptions { tls: Some(authority.server("localhost")), ..options("b") }).await;
    list.send_modify(|list| list.push(other.address.to_string()));
    assert_eq!(worker.state().await, (format!("https://{}", other.address), LinkState::Connected));
    other.node.close();
}

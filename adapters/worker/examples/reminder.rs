//! A worker that sends reminders: `cargo run -p punctual-worker --example reminder`

use punctual_worker::{HandlerError, TaskContext, Worker};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
pub(crate) struct Order {
    number: u64,
    address: String,
}

#[derive(Serialize)]
pub(crate) struct Sent {
    message: String,
}

pub(crate) async fn send_reminder(context: TaskContext, order: Order) -> Result<Sent, HandlerError> {
    if !order.address.contains('@') {
        return Err(HandlerError::permanent(format!("order {} has no address", order.number)));
    }
    context.log(format!("reminding {} of order {}", order.address, order.number));
    // Whoever sends it goes by this key, so that a second attempt sends nothing.
    Ok(Sent { message: context.idempotency_key() })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let worker = Worker::builder().server("http://127.0.0.1:8651").name("reminders").handler("send_reminder", send_reminder).build()?;
    let shutdown = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    Ok(worker.run_until(shutdown).await?)
}

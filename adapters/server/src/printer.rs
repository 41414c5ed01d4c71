//! The standard output of a process that runs for long. It is written by a thread of its own: a reader that is slow, stopped or gone holds
//! nothing up. What it has no time for is counted, and the number is printed in its place.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;

/// Texts that may wait to be written.
const QUEUE_MAX: usize = 1_024;

enum Item {
    Text(String),
    Flush(oneshot::Sender<()>),
}

/// Where lines are printed.
#[derive(Clone, Debug)]
pub(crate) struct Printer {
    items: SyncSender<Item>,
    unprinted: Arc<AtomicU64>,
}

impl Printer {
    /// One on the standard output. Past the library's own handle: a thread that is stuck in a write would keep that locked, and who ends
    /// the program wants it.
    pub(crate) fn start() -> std::io::Result<Self> {
        Printer::on(File::from(std::io::stdout().as_fd().try_clone_to_owned()?))
    }

    fn on(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (items, to_write) = sync_channel(QUEUE_MAX);
        let unprinted = Arc::new(AtomicU64::new(0));
        let counted = unprinted.clone();
        std::thread::Builder::new().name("printer".to_owned()).spawn(move || write(out, &to_write, &counted))?;
        Ok(Printer { items, unprinted })
    }

    /// Prints a text that has its own line ends; waits for nothing.
    pub(crate) fn print(&self, text: String) {
        if self.items.try_send(Item::Text(text)).is_err() {
            self.skip();
        }
    }

    /// What prints lines there, or nowhere.
    pub(crate) fn sayer(printer: Option<Printer>) -> crate::logs::Say {
        Arc::new(move |line| {
            if let Some(printer) = &printer {
                printer.print(format!("{line}\n"));
            }
        })
    }

    /// Counts something that nobody has time to print.
    pub(crate) fn skip(&self) {
        self.unprinted.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until all is written, for `time_max` at most.
    pub(crate) async fn flush(&self, time_max: Duration) {
        let (written, is_written) = oneshot::channel();
        if self.items.try_send(Item::Flush(written)).is_ok() {
            let _ = tokio::time::timeout(time_max, is_written).await;
        }
    }
}

fn write(mut out: impl Write, items: &Receiver<Item>, unprinted: &AtomicU64) {
    for item in items {
        // Nobody reads any more: that is no reason to stop scheduling.
        let _ = match item {
            Item::Text(text) => out.write_all(text.as_bytes()),
            Item::Flush(written) => {
                let flushed = out.flush();
                let _ = written.send(());
                flushed
            }
        };
        let count = unprinted.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(out, "! about {count} lines in between were not printed: the output was too slow");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;

    /// Writes when it is let to.
    struct Slow(mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stopped_reader_holds_nobody_up_and_learns_how_much_it_missed() {
        let (go, may_go) = mpsc::channel();
        let text = Arc::new(Mutex::new(Vec::new()));
        let printer = Printer::on(Slow(may_go, text.clone())).unwrap();
        let count = QUEUE_MAX + 100;
        for number in 0..count {
            printer.print(format!("line {number}\n"));
        }
        let unprinted = printer.unprinted.load(Ordering::Relaxed);
        assert!((99..=100).contains(&unprinted), "{unprinted}");
        drop(go);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // The queue is full until the reader has taken something.
        while !String::from_utf8_lossy(&text.lock().unwrap()).contains("line 1023") {
            std::thread::yield_now();
        }
        runtime.block_on(printer.flush(Duration::from_secs(10)));
        let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
        assert!(text.starts_with("line 0\n! about "), "{text}");
        assert_eq!(text.matches(" lines in between were not printed").count(), 1);
    }
}

//! The receiving task of a control connection, and how a caller waits until it has caught up.
//!
//! Connections, the coordinator and the rank's own end are tasks of one thread, with queues between
//! them. A `Mark` goes the way of the messages: a connection passes it on once the kernel holds
//! nothing more, and every queue keeps its order. So a mark that has come through proves that
//! everything that was received before it has been handled.

use std::convert::Infallible;
use std::io;
use std::sync::mpsc as std_mpsc;

use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::task::yield_now;

use crate::channel::Reader;

/// A request to catch up.
#[derive(Clone, Debug)]
pub(crate) enum Mark {
    /// A caller asks, and waits until the last copy is dropped.
    Caller(std_mpsc::Sender<Infallible>),
    /// By a task of the control thread, which counts what comes back of this number.
    Task(u64),
    /// Behind what is sent: dropped once that is written.
    Written(mpsc::Sender<Infallible>),
}

/// The caller's end of a mark.
pub(crate) type Passed = std_mpsc::Receiver<Infallible>;

impl Mark {
    /// A caller's mark, and a receiver that disconnects once all copies of the mark are dropped.
    pub(crate) fn new() -> (Self, Passed) {
        let (caller, passed) = std_mpsc::channel();
        (Self::Caller(caller), passed)
    }
}

/// One event that a connection delivers. Events come in the order of arrival.
#[derive(Debug)]
pub(crate) enum Inbound {
    Message(Vec<u8>),
    /// Nothing more will come; with the error, unless the sender closed between two messages.
    Closed(Option<io::Error>),
    /// All that the kernel had received has been delivered.
    Mark(Mark),
}

/// Delivers what arrives, its end, and then only marks, until nobody can ask for marks any more or
/// `deliver` returns false.
pub(crate) async fn receive(
    mut reader: Reader<OwnedReadHalf>,
    mut marks: mpsc::UnboundedReceiver<Mark>,
    mut deliver: impl AsyncFnMut(Inbound) -> bool,
) {
    let mut waiting = Vec::new();
    loop {
        let inbound = tokio::select! {
            biased;
            next = reader.next() => match next {
                Ok(Some(bytes)) => Inbound::Message(bytes),
                Ok(None) => Inbound::Closed(None),
                Err(e) => Inbound::Closed(Some(e)),
            },
            Some(mark) = marks.recv() => {
                waiting.push(mark);
                continue;
            }
            // Not before the event loop has looked at the sockets once more.
            () = yield_now(), if !waiting.is_empty() => {
                match waiting.pop() {
                    Some(mark) if !reader.has_unread() => Inbound::Mark(mark),
                    still => {
                        waiting.extend(still);
                        continue;
                    }
                }
            }
        };
        let is_closed = matches!(inbound, Inbound::Closed(_));
        if !deliver(inbound).await {
            return;
        }
        if is_closed {
            break;
        }
    }
    for mark in waiting {
        if !deliver(Inbound::Mark(mark)).await {
            return;
        }
    }
    while let Some(mark) = marks.recv().await {
        if !deliver(Inbound::Mark(mark)).await {
            return;
        }
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_wrap, reason = "the numbers of the tests are small")]
mod tests;

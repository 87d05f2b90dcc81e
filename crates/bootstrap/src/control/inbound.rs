//! The receiving task of a control connection, and the marks by which a caller waits for it to
//! catch up.
//!
//! Connections, the coordinator and the rank's own end are tasks of one thread, with queues between
//! them. A `Mark` travels along the path of the messages. A connection passes it on when the kernel
//! holds nothing more, and every queue keeps its order. So when a mark comes through, everything
//! received before it has been handled.

use std::convert::Infallible;
use std::io;
use std::sync::mpsc as std_mpsc;

use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::task::yield_now;

use crate::channel::frames::Reader;

/// A request to catch up.
#[derive(Clone, Debug)]
pub(crate) enum Mark {
    /// From a caller, which waits until the last copy is dropped.
    Caller(std_mpsc::Sender<Infallible>),
    /// From a task of the control thread, which counts the returned copies of this number.
    Task(u64),
    /// Queued behind a message to send, and dropped after that message is written.
    Written(mpsc::Sender<Infallible>),
}

/// The caller's end of a mark.
pub(crate) type Passed = std_mpsc::Receiver<Infallible>;

impl Mark {
    /// Makes a caller's mark, and a receiver that disconnects when all copies of the mark are
    /// dropped.
    pub(crate) fn new() -> (Self, Passed) {
        let (caller, passed) = std_mpsc::channel();
        (Self::Caller(caller), passed)
    }
}

/// One event of a connection. Events come in the order of arrival.
#[derive(Debug)]
pub(crate) enum Inbound {
    Message(Vec<u8>),
    /// Nothing more will come. Holds the error, unless the sender closed between two messages.
    Closed(Option<io::Error>),
    /// Everything that the kernel had received has been delivered.
    Mark(Mark),
}

/// Delivers messages, then the connection's end, then only marks. Returns when no sender of marks
/// is left, or when `deliver` returns false.
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
            // Runs only after the event loop has polled the sockets once more.
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
mod tests {
    //! Checks over a loopback connection that marks come behind all received bytes.

    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::time::Duration;

    use ringfold_types::limits;
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;
    use crate::channel::frames::Writer;
    use crate::channel::greeting::{Greeting, Purpose};
    use crate::channel::{initiate, respond};
    use crate::discover::secret::Secret;

    const SOON: Duration = Duration::from_secs(30);

    /// Records each delivery of `receive` as a number: the length of a message, -1 for the end, and
    /// -2 for a mark.
    struct Fixture {
        delivered: mpsc::UnboundedReceiver<i64>,
        marks: mpsc::UnboundedSender<Mark>,
        sender: std::net::TcpStream,
        ciphertext: Vec<u8>,
    }

    impl Fixture {
        /// Makes a connection, and the bytes that carry messages of these lengths on it.
        async fn new(lengths: &[usize]) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            sender.set_nodelay(true).unwrap();
            let accepted = listener.accept().unwrap().0;
            accepted.set_nonblocking(true).unwrap();
            let (greeting, secret) =
                (Greeting::new(Purpose::Control, "j", 2), Secret::new([1; 32]));
            let (mut ours, mut theirs) = tokio::io::duplex(1024);
            let (session, other) = tokio::join!(
                initiate(&mut ours, &greeting, &secret),
                respond(&mut theirs, &greeting, &secret)
            );
            let mut ciphertext = Vec::new();
            let mut writer = Writer::new(&mut ciphertext, Arc::new(session.unwrap()));
            for length in lengths {
                writer.send(&vec![7; *length]).await.unwrap();
            }
            let (from, _) = TcpStream::from_std(accepted).unwrap().into_split();
            let other = Arc::new(other.unwrap());
            let reader = Reader::new(from, other, limits::CONTROL_BYTES_MAX);
            let (marks, asked) = mpsc::unbounded_channel();
            let (record, delivered) = mpsc::unbounded_channel();
            tokio::spawn(receive(reader, asked, async move |inbound| {
                record
                    .send(match inbound {
                        Inbound::Message(bytes) => bytes.len() as i64,
                        Inbound::Closed(_) => -1,
                        Inbound::Mark(_) => -2,
                    })
                    .is_ok()
            }));
            // The task finds nothing and waits.
            tokio::time::sleep(Duration::from_millis(10)).await;
            Self { delivered, marks, sender, ciphertext }
        }

        async fn next(&mut self) -> Option<i64> {
            timeout(SOON, self.delivered.recv()).await.unwrap()
        }
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn a_mark_comes_behind_all_that_the_kernel_has() {
        run(async {
            let mut fixture = Fixture::new(&[1; 1000]).await;
            let (mark, passed) = Mark::new();
            // Both happen before the event loop can poll the socket.
            fixture.sender.write_all(&fixture.ciphertext).unwrap();
            fixture.marks.send(mark).unwrap();
            for _ in 0..1000 {
                assert_eq!(fixture.next().await, Some(1));
            }
            assert_eq!(fixture.next().await, Some(-2));
            assert_eq!(passed.try_recv(), Err(std_mpsc::TryRecvError::Disconnected));
        });
    }

    #[test]
    fn a_mark_does_not_wait_for_the_rest_of_a_message() {
        run(async {
            let mut fixture = Fixture::new(&[1, 100_000]).await;
            let (begin, rest) = fixture.ciphertext.split_at(fixture.ciphertext.len() - 1);
            fixture.sender.write_all(begin).unwrap();
            fixture.marks.send(Mark::new().0).unwrap();
            let rest = rest.to_vec();
            assert_eq!((fixture.next().await, fixture.next().await), (Some(1), Some(-2)));
            fixture.sender.write_all(&rest).unwrap();
            assert_eq!(fixture.next().await, Some(100_000));
        });
    }

    #[test]
    fn a_mark_comes_behind_the_end_and_marks_go_on_after_it() {
        run(async {
            let mut fixture = Fixture::new(&[5]).await;
            fixture.sender.write_all(&fixture.ciphertext).unwrap();
            fixture.sender.shutdown(std::net::Shutdown::Both).unwrap();
            fixture.marks.send(Mark::new().0).unwrap();
            for expected in [5, -1, -2] {
                assert_eq!(fixture.next().await, Some(expected));
            }
            fixture.marks.send(Mark::new().0).unwrap();
            assert_eq!(fixture.next().await, Some(-2));
            drop(fixture.marks);
            assert_eq!(
                timeout(SOON, fixture.delivered.recv()).await.unwrap(),
                None,
                "it has ended"
            );
        });
    }
}

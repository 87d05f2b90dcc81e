//! A listening port that anybody may connect to and only members get through.
//!
//! A stranger costs a socket, a few hundred bytes and one handshake, for `limits::HANDSHAKE_MS` at
//! most and until `limits::HANDSHAKES_MAX` newer ones have come; then it is dropped and counted.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ringfold_types::limits;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::address;
use crate::channel::{Greeting, HandshakeError, Reader, Writer, greet};
use crate::secret::Secret;

/// A member's first message fits into this: its card, its host's name, a little more.
const FIRST_BYTES_MAX: usize = limits::CARD_BYTES_MAX + 1024;
/// When no file descriptor is left, connections have to wait until one is.
const BREATHER: Duration = Duration::from_millis(50);

/// Who got through.
pub(crate) struct Guest {
    pub(crate) reader: Reader<OwnedReadHalf>,
    pub(crate) writer: Writer<OwnedWriteHalf>,
    pub(crate) from: SocketAddr,
    /// Its first message.
    pub(crate) first: Vec<u8>,
}

/// How many did not get through.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    all: AtomicU32,
    wrong_secret: AtomicU32,
}

impl Strangers {
    pub(crate) fn wrong_secret(&self) -> u32 {
        self.wrong_secret.load(Ordering::Relaxed)
    }

    /// A port scan makes a few lines in the log, not as many as it has connections.
    fn note(&self, from: SocketAddr, cause: &HandshakeError) {
        if matches!(cause, HandshakeError::WrongSecret) {
            self.wrong_secret.fetch_add(1, Ordering::Relaxed);
        }
        let count = self.all.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if count.is_power_of_two() {
            tracing::warn!("turned away a connection from {from}: {cause} ({count} so far)");
        } else {
            tracing::debug!("turned away a connection from {from}: {cause}");
        }
    }
}

/// Lets members in for as long as somebody takes them.
pub(crate) async fn admit(
    listener: TcpListener,
    greeting: Greeting,
    secret: Secret,
    strangers: Arc<Strangers>,
    guests: mpsc::Sender<Guest>,
) {
    let shared = Arc::new((greeting, secret, strangers));
    let mut waiting: VecDeque<(SocketAddr, AbortHandle)> = VecDeque::new();
    while !guests.is_closed() {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                tracing::warn!("cannot accept a connection: {e}");
                sleep(BREATHER).await;
                continue;
            }
        };
        waiting.retain(|(_, handshake)| !handshake.is_finished());
        if waiting.len() >= limits::HANDSHAKES_MAX
            && let Some((from, oldest)) = waiting.pop_front()
        {
            oldest.abort();
            shared.2.note(from, &HandshakeError::Io(io::ErrorKind::ConnectionRefused.into()));
        }
        let (shared, guests) = (Arc::clone(&shared), guests.clone());
        let handshake = tokio::spawn(async move {
            let (greeting, secret, strangers) = &*shared;
            let bound = Duration::from_millis(limits::HANDSHAKE_MS);
            let received = timeout(bound, receive(stream, from, greeting, secret)).await;
            match received.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
            {
                Ok(guest) => {
                    if guests.send(guest).await.is_err() {
                        tracing::debug!("{from} came after the end");
                    }
                }
                Err(cause) => strangers.note(from, &cause),
            }
        });
        waiting.push_back((from, handshake.abort_handle()));
    }
}

async fn receive(
    mut stream: TcpStream,
    from: SocketAddr,
    greeting: &Greeting,
    secret: &Secret,
) -> Result<Guest, HandshakeError> {
    address::tune(&stream)?;
    let session = Arc::new(greet(&mut stream, greeting, secret).await?);
    let (reader, writer) = stream.into_split();
    let mut reader = Reader::new(reader, Arc::clone(&session), FIRST_BYTES_MAX);
    let first = reader.next().await?;
    let first = first.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    reader.set_bytes_max(limits::CONTROL_BYTES_MAX);
    Ok(Guest { reader, writer: Writer::new(writer, session), from, first })
}

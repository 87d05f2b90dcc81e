//! A channel, and how the connecting end makes it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ringfold_types::limits;
use snow::StatelessTransportState;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::frames::{Reader, Writer};
use super::greeting::{Greeting, HandshakeError};
use super::{initiate, socket};
use crate::discover::secret::Secret;

/// A connection to a peer that has proven its membership.
pub(crate) struct Channel {
    pub(crate) reader: Reader<OwnedReadHalf>,
    pub(crate) writer: Writer<OwnedWriteHalf>,
    /// The address of this end.
    pub(crate) local: SocketAddr,
    /// The address of the other end.
    pub(crate) peer: SocketAddr,
}

impl Channel {
    /// The channel of a session over a stream between two addresses, this end's first.
    pub(super) fn new(
        stream: TcpStream,
        [local, peer]: [SocketAddr; 2],
        session: StatelessTransportState,
    ) -> Self {
        let session = Arc::new(session);
        let (reader, writer) = stream.into_split();
        let reader = Reader::new(reader, Arc::clone(&session), limits::CONTROL_BYTES_MAX);
        Self { reader, writer: Writer::new(writer, session), local, peer }
    }
}

/// Makes one attempt to reach a member at `at`, without a time limit.
///
/// # Errors
/// Nobody listens there, or the listener is not the wanted peer.
pub(crate) async fn attempt(
    at: SocketAddr,
    greeting: &Greeting,
    secret: &Secret,
) -> Result<Channel, HandshakeError> {
    let mut stream = TcpStream::connect(at).await?;
    let [local, peer] = [stream.local_addr()?, stream.peer_addr()?];
    // Where nobody listens, a socket of this host can connect to itself.
    if local == peer {
        return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
    }
    socket::tune(&stream)?;
    let session = initiate(&mut stream, greeting, secret).await?;
    Ok(Channel::new(stream, [local, peer], session))
}

//! A connection before its child has proven itself.

use std::task::Context;
use std::time::{Duration, Instant};

use ringfold_transport::offload::handshake::{Acceptor, PAYLOAD_BYTES_MAX, Place, payload_bytes};
use ringfold_transport::offload::header::Header;
use ringfold_types::limits;
use tokio::net::TcpStream;

use crate::connection::Connection;

const HANDSHAKE: Duration = Duration::from_millis(limits::HANDSHAKE_MS);

/// A connection before its child has proven itself.
pub(crate) struct Greeting {
    pub(crate) connection: Connection,
    pub(crate) acceptor: Option<Acceptor>,
    since: Instant,
}

/// The end of a greeting.
pub(crate) enum Greeted {
    Waits,
    Proven(Place),
    Refused(String),
}

impl Greeting {
    /// Begins with a new connection.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn new(stream: TcpStream) -> std::io::Result<Self> {
        tune(&stream)?;
        let connection = Connection::new(stream);
        Ok(Self { connection, acceptor: None, since: Instant::now() })
    }

    /// Whether the child has taken too long.
    pub(crate) fn is_overdue(&self) -> bool {
        self.since.elapsed() >= HANDSHAKE
    }

    /// Goes on as far as messages have arrived.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>, group: u32, key: [u8; 32]) -> Greeted {
        match self.try_advance(cx, group, key) {
            Ok(greeted) => greeted,
            Err(reason) => Greeted::Refused(reason),
        }
    }

    fn try_advance(
        &mut self,
        cx: &mut Context<'_>,
        group: u32,
        key: [u8; 32],
    ) -> Result<Greeted, String> {
        let text = |e: std::io::Error| format!("the connection ended: {e}");
        loop {
            self.connection.flush(cx).map_err(text)?;
            if self.connection.message.is_none() {
                let Some(head) = self.connection.header(cx).map_err(text)? else {
                    return Ok(Greeted::Waits);
                };
                let header = Header::decode(&head).map_err(|e| e.to_string())?;
                let bytes = header.bytes as usize;
                if payload_bytes(header.kind) != Some(bytes) || bytes > PAYLOAD_BYTES_MAX {
                    return Err("a message out of place".into());
                }
                if header.group != group {
                    return Err(format!("the endpoint is that of group {group}"));
                }
                self.connection.message = Some((header, vec![0; bytes]));
            }
            let Some((header, payload)) = self.connection.payload(cx).map_err(text)? else {
                return Ok(Greeted::Waits);
            };
            let Some(acceptor) = &self.acceptor else {
                let acceptor = Acceptor::new(key, &header, &payload).map_err(|e| e.to_string())?;
                self.connection.queue(&acceptor.challenge());
                self.acceptor = Some(acceptor);
                continue;
            };
            if !acceptor.accepts(&header, &payload) {
                return Err("the child did not prove that it knows the group's key".into());
            }
            return Ok(Greeted::Proven(acceptor.place()));
        }
    }
}

/// Sends small messages at once, and notices a child whose host has vanished.
fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let quiet = socket2::TcpKeepalive::new().with_time(Duration::from_secs(10));
    socket.set_tcp_keepalive(&quiet.with_interval(Duration::from_secs(2)).with_retries(5))?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(20)))
}

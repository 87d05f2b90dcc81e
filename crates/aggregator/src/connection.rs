//! One child's connection: bytes that arrive, and bytes that leave. Only `part_with` waits.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use ringfold_transport::offload::header::{HEADER_BYTES, Header};
use ringfold_types::limits::{
    AGGREGATOR_BUFFER_BYTES, AGGREGATOR_FAREWELL_MS, AGGREGATOR_GREETING_BYTES,
};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::links::SharedLinks;
use crate::way::Way;

/// Bytes that one system call reads beside a long payload.
const BUFFER_BYTES: usize = AGGREGATOR_BUFFER_BYTES;
/// Bytes of the buffer before a child has proven itself. A handshake is two short messages.
const GREETING_BYTES: usize = AGGREGATOR_GREETING_BYTES / 4;
/// The pause between two looks at a link that ends.
const PAUSE: Duration = Duration::from_millis(1);
const FAREWELL: Duration = Duration::from_millis(AGGREGATOR_FAREWELL_MS);

/// A connection and its two directions.
#[derive(Debug)]
pub(crate) struct Connection {
    way: Way,
    peer: SocketAddr,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    head: [u8; HEADER_BYTES],
    head_filled: usize,
    /// The message that arrives: its header, its payload, and the bytes of it that are there.
    pub(crate) message: Option<(Header, Vec<u8>)>,
    payload_filled: usize,
    /// Short messages that leave before the next result.
    out: Vec<u8>,
    /// Bytes of the result at the front that have left, with its header.
    result_sent: usize,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        Self {
            way: Way::new(stream),
            peer,
            buffer: vec![0; GREETING_BYTES],
            start: 0,
            end: 0,
            head: [0; HEADER_BYTES],
            head_filled: 0,
            message: None,
            payload_filled: 0,
            out: Vec::new(),
            result_sent: 0,
        }
    }

    /// The address of the child.
    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Takes the buffer that a proven child has.
    pub(crate) fn widen(&mut self) {
        self.buffer.reserve_exact(BUFFER_BYTES - self.buffer.len());
        self.buffer.resize(BUFFER_BYTES, 0);
    }

    /// Welcomes the child, whose link then replaces this connection.
    ///
    /// # Errors
    /// The connection does not take the welcome.
    pub(crate) fn join(&mut self, links: SharedLinks, child: u8, welcome: &[u8]) -> io::Result<()> {
        self.way.join(links, child, welcome)
    }

    /// Whether the child has not spoken by its link yet.
    pub(crate) const fn is_joining(&self) -> bool {
        self.way.is_joining()
    }

    /// Whether a link has replaced the connection.
    pub(crate) const fn has_link(&self) -> bool {
        self.way.has_link()
    }

    /// Notes that the child has spoken by its link.
    pub(crate) const fn settle(&mut self) {
        self.way.settle();
    }

    /// As `header`, for tasks that only wait for it.
    pub(crate) fn poll_header(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<[u8; HEADER_BYTES]>> {
        self.header(cx).transpose().map_or(Poll::Pending, Poll::Ready)
    }

    /// As `payload`, for tasks that only wait for it.
    pub(crate) fn poll_payload(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Header, Vec<u8>)>> {
        self.payload(cx).transpose().map_or(Poll::Pending, Poll::Ready)
    }

    /// As `flush`, for tasks that only wait for it.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.flush(cx) {
            Ok(false) => Poll::Pending,
            result => Poll::Ready(result.map(drop)),
        }
    }

    /// Returns the next header, once it has arrived whole. The caller then sets `message`.
    pub(crate) fn header(
        &mut self,
        cx: &mut Context<'_>,
    ) -> io::Result<Option<[u8; HEADER_BYTES]>> {
        let (mut head, mut filled) = (self.head, self.head_filled);
        let whole = self.fill(cx, &mut head, &mut filled);
        (self.head, self.head_filled) = (head, filled);
        if !whole? {
            return Ok(None);
        }
        (self.head_filled, self.payload_filled) = (0, 0);
        Ok(Some(head))
    }

    /// Returns the message, once its payload has arrived whole.
    pub(crate) fn payload(
        &mut self,
        cx: &mut Context<'_>,
    ) -> io::Result<Option<(Header, Vec<u8>)>> {
        let Some((header, mut payload)) = self.message.take() else { return Ok(None) };
        let mut filled = self.payload_filled;
        let whole = self.fill(cx, &mut payload, &mut filled);
        self.payload_filled = filled;
        if whole? {
            return Ok(Some((header, payload)));
        }
        self.message = Some((header, payload));
        Ok(None)
    }

    /// Fills `dst` behind its first `filled` bytes. Returns whether it is full.
    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        dst: &mut [u8],
        filled: &mut usize,
    ) -> io::Result<bool> {
        while *filled < dst.len() {
            let rest = &mut dst[*filled..];
            let buffered = &self.buffer[self.start..self.end];
            if !buffered.is_empty() {
                let count = buffered.len().min(rest.len());
                rest[..count].copy_from_slice(&buffered[..count]);
                self.start += count;
                *filled += count;
                continue;
            }
            let is_long = rest.len() >= BUFFER_BYTES;
            let into = if is_long { rest } else { &mut self.buffer[..] };
            match self.way.read(cx, into)? {
                Some(count) if is_long => *filled += count,
                Some(count) => (self.start, self.end) = (0, count),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Queues a short message. Returns false if one waits already, or a result has left in part.
    pub(crate) fn queue(&mut self, message: &[u8]) -> bool {
        let has_room = self.out.is_empty() && self.result_sent == 0;
        if has_room {
            self.out.extend_from_slice(message);
        }
        has_room
    }

    /// Sends a last message, and waits a moment until the child has read it. A result that has left
    /// in part leaves no room for one.
    pub(crate) async fn part_with(mut self, message: &[u8]) {
        let farewell = async {
            if self.result_sent > 0 {
                return Ok(());
            }
            self.out.extend_from_slice(message);
            if !self.way.has_link() {
                poll_fn(|cx| self.poll_flush(cx)).await?;
                return self.way.drain(&mut self.buffer).await;
            }
            loop {
                let is_on_its_way = self.way.poll_link()?;
                let has_left = poll_fn(|cx| Poll::Ready(self.flush(cx))).await?;
                if has_left && is_on_its_way {
                    return Ok(());
                }
                sleep(PAUSE).await;
            }
        };
        // A child that is gone or late needs no farewell.
        timeout(FAREWELL, farewell).await.unwrap_or(Ok::<(), io::Error>(())).ok();
    }

    /// Sends what is queued. Returns whether all has left.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        while !self.out.is_empty() {
            match self.way.write(cx, [&self.out, &[]])? {
                Some(sent) => drop(self.out.drain(..sent)),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Sends a result behind the queue. Returns whether all of it has left; until then the caller
    /// passes the same result again.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_>,
        header: &Header,
        payload: &[u8],
    ) -> io::Result<bool> {
        if !self.flush(cx)? {
            return Ok(false);
        }
        let head = header.encode();
        while self.result_sent < HEADER_BYTES + payload.len() {
            let head = head.get(self.result_sent..).unwrap_or_default();
            let start = self.result_sent.saturating_sub(HEADER_BYTES);
            match self.way.write(cx, [head, &payload[start..]])? {
                Some(sent) => self.result_sent += sent,
                None => return Ok(false),
            }
        }
        self.result_sent = 0;
        Ok(true)
    }
}

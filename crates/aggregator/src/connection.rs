//! One child's connection: bytes that arrive, and bytes that leave. Nothing here waits.

use std::io;
use std::task::{Context, Poll};

use ringfold_transport::offload::header::{HEADER_BYTES, Header};
use tokio::net::TcpStream;

/// Bytes that one system call reads beside a long payload.
const BUFFER_BYTES: usize = 4_096;

/// A connection and its two directions.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Box<[u8; BUFFER_BYTES]>,
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
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: Box::new([0; BUFFER_BYTES]),
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
            match self.stream.try_read(into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) if is_long => *filled += count,
                Ok(count) => (self.start, self.end) = (0, count),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    match self.stream.poll_read_ready(cx) {
                        Poll::Ready(ready) => ready?,
                        Poll::Pending => return Ok(false),
                    }
                }
                Err(e) => return Err(e),
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

    /// Sends a last message as far as the socket takes it, behind nothing that has left in part.
    pub(crate) fn close_with(&mut self, message: &[u8]) {
        if self.queue(message) {
            self.stream.try_write(&self.out).ok();
        }
    }

    /// Sends what is queued. Returns whether all has left.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        while !self.out.is_empty() {
            match self.try_send(cx, &[]) {
                Ok(Some(sent)) => drop(self.out.drain(..sent)),
                result => return result.map(|_| false),
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
            let parts = [io::IoSlice::new(head), io::IoSlice::new(&payload[start..])];
            match self.try_send(cx, &parts)? {
                Some(sent) => self.result_sent += sent,
                None => return Ok(false),
            }
        }
        self.result_sent = 0;
        Ok(true)
    }

    /// Writes `parts`, or the queue if there are none. Returns `None` if the socket is full.
    fn try_send(
        &self,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        loop {
            let sent = match parts {
                [] => self.stream.try_write(&self.out),
                parts => self.stream.try_write_vectored(parts),
            };
            match sent {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    match self.stream.poll_write_ready(cx) {
                        Poll::Ready(ready) => ready?,
                        Poll::Pending => return Ok(None),
                    }
                }
                sent => return sent.map(Some),
            }
        }
    }
}

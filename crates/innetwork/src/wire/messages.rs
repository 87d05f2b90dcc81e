//! The messages of one link: each is a header, and a payload of the length that it names.

use ringfold_types::Rank;

use super::header::{HEADER_BYTES, Header};
use super::links::Links;
use ringfold_transport::LinkFault;

/// The message that arrives on a link, and those that leave.
#[derive(Debug)]
pub struct Messages {
    peer: Rank,
    head: [u8; HEADER_BYTES],
    /// Whether the header has arrived whole.
    has_head: bool,
    /// Bytes that have arrived of the header, or else of the payload behind it.
    arrived: usize,
    /// Messages that leave before the next one, and the bytes of them that have left.
    out: Vec<u8>,
    left: usize,
    /// Bytes that have left of the message that `send` got last.
    sent: usize,
}

impl Messages {
    /// The messages from and to `peer`.
    #[must_use]
    pub const fn new(peer: Rank) -> Self {
        let head = [0; HEADER_BYTES];
        Self { peer, head, has_head: false, arrived: 0, out: Vec::new(), left: 0, sent: 0 }
    }

    /// Returns the header of the message that arrives, once it is whole.
    ///
    /// # Errors
    /// The link has ended, and all bytes before its end were read.
    pub fn header(&mut self, links: &mut Links) -> Result<Option<[u8; HEADER_BYTES]>, LinkFault> {
        if !self.has_head && fill(links, self.peer, &mut self.head, &mut self.arrived)? {
            (self.has_head, self.arrived) = (true, 0);
        }
        Ok(self.has_head.then_some(self.head))
    }

    /// Receives the payload of that message into `dst`, which has its length. Returns whether it is
    /// whole. `header` then returns the next one.
    ///
    /// # Errors
    /// As `header`.
    pub fn payload(&mut self, links: &mut Links, dst: &mut [u8]) -> Result<bool, LinkFault> {
        let is_whole = fill(links, self.peer, dst, &mut self.arrived)?;
        if is_whole {
            (self.has_head, self.arrived) = (false, 0);
        }
        Ok(is_whole)
    }

    /// Returns the bytes of the header, or else of the payload, that have arrived.
    #[must_use]
    pub const fn arrived(&self) -> usize {
        self.arrived
    }

    /// Sends a message, and keeps what the link does not take.
    ///
    /// # Errors
    /// The link has ended.
    pub fn post(
        &mut self,
        links: &mut Links,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), LinkFault> {
        if !self.send(links, header, payload)? {
            self.out.extend_from_slice(header.encode().get(self.sent..).unwrap_or_default());
            self.out.extend_from_slice(&payload[self.sent.saturating_sub(HEADER_BYTES)..]);
            self.sent = 0;
        }
        Ok(())
    }

    /// Sends a message. Returns whether it has left whole. Until then the caller passes the same
    /// one again.
    ///
    /// # Errors
    /// The link has ended.
    pub fn send(
        &mut self,
        links: &mut Links,
        header: &Header,
        payload: &[u8],
    ) -> Result<bool, LinkFault> {
        if !self.flush(links)? {
            return Ok(false);
        }
        let head = header.encode();
        while self.sent < HEADER_BYTES + payload.len() {
            let sent = match head.get(self.sent..).filter(|rest| !rest.is_empty()) {
                Some(rest) => links.write(self.peer, rest, !payload.is_empty())?,
                None => links.write(self.peer, &payload[self.sent - HEADER_BYTES..], false)?,
            };
            if sent == 0 {
                return Ok(false);
            }
            self.sent += sent;
        }
        self.sent = 0;
        Ok(true)
    }

    /// Sends what `post` has kept. Returns whether all has left.
    ///
    /// # Errors
    /// The link has ended.
    pub fn flush(&mut self, links: &mut Links) -> Result<bool, LinkFault> {
        while self.left < self.out.len() {
            match links.write(self.peer, &self.out[self.left..], false)? {
                0 => return Ok(false),
                sent => self.left += sent,
            }
        }
        self.out.clear();
        self.left = 0;
        Ok(true)
    }

    /// Whether no message waits, and none has left in part.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.out.is_empty() && self.sent == 0
    }
}

/// Fills `dst` behind its first `filled` bytes. Returns whether it is full.
fn fill(
    links: &mut Links,
    peer: Rank,
    dst: &mut [u8],
    filled: &mut usize,
) -> Result<bool, LinkFault> {
    while *filled < dst.len() {
        match links.read(peer, &mut dst[*filled..])? {
            0 => return Ok(false),
            bytes => *filled += bytes,
        }
    }
    Ok(true)
}

//! Point-to-point messages: any number of sends and receives that progress together.
//!
//! Messages have a lane of their own. A message is a header of 16 bytes with its tag and its length
//! in bytes, and then its bytes. The bytes of a short message follow in the same message of the
//! transport. Those of a longer one are a message of their own, which a transport may place
//! directly in the receiver's memory.

use ringfold_transport::Link;
use ringfold_types::limits::{INLINE_BYTES, MESSAGE_LANE};
use ringfold_types::{Lane, Rank};

use ringfold_collectives::Progress;

use crate::error::{CallError, Message};
use crate::execute::Work;
use crate::router::Router;
use crate::watch::Watch;

/// Bytes of a header.
const HEADER_BYTES: usize = 16;
/// The transport's tag of headers, and of short messages behind them.
const HEADER_TAG: u32 = 1;
/// The transport's tag of the bytes of longer messages.
const BODY_TAG: u32 = 2;

/// A message that this rank sends.
#[derive(Debug)]
pub(crate) struct Outgoing<'b> {
    pub(crate) to: Rank,
    pub(crate) tag: u32,
    pub(crate) bytes: &'b [u8],
    /// Bytes that the transport has accepted, with the header.
    accepted: usize,
}

/// A message that this rank receives.
#[derive(Debug)]
pub(crate) struct Incoming<'b> {
    pub(crate) from: Rank,
    pub(crate) tag: u32,
    pub(crate) bytes: &'b mut [u8],
    /// Bytes that have arrived, with the header.
    arrived: usize,
}

/// Messages that progress together. Those of one direction between two ranks keep their order, and
/// no message waits for others.
pub(crate) struct Messages<'m, 'b> {
    /// In the order of their receivers.
    outgoing: &'m mut [Outgoing<'b>],
    /// In the order of their senders.
    incoming: &'m mut [Incoming<'b>],
}

impl<'b> Outgoing<'b> {
    pub(crate) const fn new(bytes: &'b [u8], to: Rank, tag: u32) -> Self {
        Self { to, tag, bytes, accepted: 0 }
    }

    pub(crate) const fn message(&self) -> Message {
        Message { is_sent: true, peer: self.to, tag: self.tag, bytes: self.bytes.len() }
    }

    const fn is_done(&self) -> bool {
        self.accepted == HEADER_BYTES + self.bytes.len()
    }

    /// Sends what the transport takes now. Returns whether it took anything.
    fn advance(&mut self, router: &mut Router) -> Result<bool, CallError> {
        let before = self.accepted;
        let link = link(self.to);
        if self.bytes.len() <= INLINE_BYTES {
            let mut whole = [0; HEADER_BYTES + INLINE_BYTES];
            let whole = &mut whole[..HEADER_BYTES + self.bytes.len()];
            let (header, body) = whole.split_at_mut(HEADER_BYTES);
            header.copy_from_slice(&encode(self.tag, self.bytes.len()));
            body.copy_from_slice(self.bytes);
            self.accepted += router.to(link).send(link, HEADER_TAG, &whole[self.accepted..])?;
            return Ok(self.accepted > before);
        }
        if self.accepted < HEADER_BYTES {
            let header = encode(self.tag, self.bytes.len());
            let rest = &header[self.accepted..];
            self.accepted += router.to(link).send(link, HEADER_TAG, rest)?;
        }
        while let Some(sent) = self.accepted.checked_sub(HEADER_BYTES)
            && sent < self.bytes.len()
        {
            match router.to(link).send(link, BODY_TAG, &self.bytes[sent..])? {
                0 => break,
                accepted => self.accepted += accepted,
            }
        }
        Ok(self.accepted > before)
    }
}

impl<'b> Incoming<'b> {
    pub(crate) const fn new(bytes: &'b mut [u8], from: Rank, tag: u32) -> Self {
        Self { from, tag, bytes, arrived: 0 }
    }

    pub(crate) const fn message(&self) -> Message {
        Message { is_sent: false, peer: self.from, tag: self.tag, bytes: self.bytes.len() }
    }

    const fn is_done(&self) -> bool {
        self.arrived == HEADER_BYTES + self.bytes.len()
    }

    /// Receives what has arrived. Returns whether anything had.
    fn advance(&mut self, router: &mut Router) -> Result<bool, CallError> {
        let before = self.arrived;
        let link = link(self.from);
        if self.arrived == 0 {
            let Some(fragment) = router.readable(link)? else { return Ok(false) };
            let header = fragment.bytes.first_chunk().filter(|_| fragment.tag == HEADER_TAG);
            let Some(header) = header else { return Err(self.garbled()) };
            self.check(header)?;
            router.to(link).consume(link, HEADER_BYTES);
            self.arrived = HEADER_BYTES;
        }
        let tag = if self.bytes.len() <= INLINE_BYTES { HEADER_TAG } else { BODY_TAG };
        while !self.is_done() {
            let rest = &mut self.bytes[self.arrived - HEADER_BYTES..];
            match router.to(link).recv(link, tag, rest)? {
                None => break,
                Some(received) if received.tag != tag => return Err(self.garbled()),
                Some(received) => self.arrived += received.bytes,
            }
        }
        Ok(self.arrived > before)
    }

    /// Checks the header at the front against the message that this rank expects.
    fn check(&self, header: &[u8; HEADER_BYTES]) -> Result<(), CallError> {
        let (tag, bytes) = decode(header);
        if (tag, bytes) == (self.tag, self.bytes.len() as u64) {
            return Ok(());
        }
        let cause = format!("{} met a message of {bytes} bytes with tag {tag}", self.message());
        Err(CallError::Unexpected { peer: self.from, cause })
    }

    /// The error for bytes that no rank sends here.
    fn garbled(&self) -> CallError {
        let cause = format!("{} met bytes that are no message", self.message());
        CallError::Unexpected { peer: self.from, cause }
    }
}

impl<'m, 'b> Messages<'m, 'b> {
    /// Messages of rank `own`, in their order for each peer. Those to itself are done at once: the
    /// n-th one that it sends is the n-th one that it receives, and has the same length.
    pub(crate) fn new(
        outgoing: &'m mut [Outgoing<'b>],
        incoming: &'m mut [Incoming<'b>],
        own: Rank,
    ) -> Self {
        let sent = outgoing.iter_mut().filter(|it| it.to == own);
        let received = incoming.iter_mut().filter(|it| it.from == own);
        for (sent, received) in sent.zip(received) {
            received.bytes.copy_from_slice(sent.bytes);
            (sent.accepted, received.arrived) =
                (HEADER_BYTES + sent.bytes.len(), HEADER_BYTES + received.bytes.len());
        }
        // The sorts are stable, and leave a single message where it is.
        outgoing.sort_by_key(|it| it.to);
        incoming.sort_by_key(|it| it.from);
        Self { outgoing, incoming }
    }

    /// The first unfinished message: one with `peer` if there is any.
    pub(crate) fn unfinished(&self, peer: Option<Rank>) -> Option<Message> {
        let outgoing = self.outgoing.iter().filter(|it| !it.is_done()).map(Outgoing::message);
        let incoming = self.incoming.iter().filter(|it| !it.is_done()).map(Incoming::message);
        let of_peer = |it: &Message| peer.is_none_or(|peer| it.peer == peer);
        let mut all = incoming.chain(outgoing);
        let any = all.clone().next();
        all.find(of_peer).or(any)
    }
}

impl Work for Messages<'_, '_> {
    fn advance(&mut self, router: &mut Router, _: &Watch, _: usize) -> Result<Progress, CallError> {
        let (mut has_moved, mut is_done) = (false, true);
        for to_one in self.outgoing.chunk_by_mut(|a, b| a.to == b.to) {
            for outgoing in to_one.iter_mut().skip_while(|it| it.is_done()) {
                has_moved |= outgoing.advance(router)?;
                if !outgoing.is_done() {
                    is_done = false;
                    break;
                }
            }
        }
        for from_one in self.incoming.chunk_by_mut(|a, b| a.from == b.from) {
            for incoming in from_one.iter_mut().skip_while(|it| it.is_done()) {
                has_moved |= incoming.advance(router)?;
                if !incoming.is_done() {
                    is_done = false;
                    break;
                }
            }
        }
        Ok(match (is_done, has_moved) {
            (true, _) => Progress::Done,
            (false, true) => Progress::Moved,
            (false, false) => Progress::Idle,
        })
    }
}

/// The link of messages to and from a peer.
const fn link(peer: Rank) -> Link {
    Link { peer, lane: Lane(MESSAGE_LANE) }
}

fn encode(tag: u32, bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&tag.to_le_bytes());
    header[8..].copy_from_slice(&(bytes as u64).to_le_bytes());
    header
}

/// The tag and the length in a header, which may have any value.
fn decode(header: &[u8; HEADER_BYTES]) -> (u32, u64) {
    let [t0, t1, t2, t3, _, _, _, _, bytes @ ..] = *header;
    (u32::from_le_bytes([t0, t1, t2, t3]), u64::from_le_bytes(bytes))
}

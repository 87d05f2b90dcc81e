//! The messages of an uneven collective. Both ends of each know its length, and compare it.

use std::ops::Range;
use std::time::Instant;

use ringfold_collectives::Progress;
use ringfold_collectives::pairs::distance;
use ringfold_types::Rank;
use ringfold_types::limits::{INLINE_BYTES, PARTS_AT_ONCE};

use super::header::{Elements, HEADER_BYTES, Header};
use super::track::Track;
use super::{LEFT_GRACE, has_left};
use crate::buffers::{AlignedBytes, Buffers};
use crate::error::{CallError, Message};
use crate::execute::{Work, signals_foreign};
use crate::router::Router;
use crate::watch::Watch;

/// A message that this rank sends.
#[derive(Clone, Debug)]
struct Outgoing {
    to: Rank,
    /// Its bytes in the input.
    range: Range<usize>,
    /// Bytes that the transport has accepted, with the header.
    accepted: usize,
}

/// A message that this rank receives.
#[derive(Clone, Debug)]
struct Incoming {
    from: Rank,
    /// The place of its bytes in the output.
    range: Range<usize>,
    /// Bytes that have arrived, with the header.
    arrived: usize,
    /// The transport knows where the bytes are wanted.
    is_expected: bool,
}

/// The messages that a rank sends and receives in one round of a call. A communicator keeps the
/// lists between calls, so repeated calls allocate nothing.
///
/// Messages of one direction between two ranks keep their order, and no message waits for others.
/// Few of each direction progress at the same time. So every rank must have a message for every
/// other rank that has one for it, as `pairs` proves for collectives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchange {
    tag: u32,
    /// In the order of the distance from this rank to their receivers, once the round has begun.
    outgoing: Vec<Outgoing>,
    /// In the order of the distance from their senders to this rank.
    incoming: Vec<Incoming>,
    /// The bytes of the parts of an output.
    pub(crate) ranges: Vec<Range<usize>>,
    /// When this rank began to park, since when nothing has moved.
    idle_since: Option<Instant>,
}

/// The buffers of a call that its messages read and fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// All ranks send and receive. In place they send from a copy.
    Both,
    /// A buffer in place is read.
    Sends,
    /// A buffer in place is filled.
    Receives,
}

impl Sides {
    /// The input and the output of the messages. The `copy` is made when the call is new.
    pub(crate) fn of<'b>(
        self,
        buffers: &'b mut Buffers<'_>,
        copy: &'b mut AlignedBytes,
        is_new: bool,
    ) -> (&'b [u8], &'b mut [u8]) {
        if self == Self::Both {
            let Buffers::Apart { input, output } = buffers.apart(is_new, copy) else {
                unreachable!("a copy is apart")
            };
            return (input, output);
        }
        match buffers {
            Buffers::Apart { input, output } => (input, output),
            Buffers::InPlace(both) => {
                if self == Self::Sends {
                    (both, &mut [])
                } else {
                    (&[], both)
                }
            }
        }
    }
}

/// An exchange in the memory of its call.
pub(crate) struct Exchanging<'m> {
    pub(crate) exchange: &'m mut Exchange,
    pub(crate) input: &'m [u8],
    pub(crate) output: &'m mut [u8],
}

impl Outgoing {
    const fn is_done(&self) -> bool {
        self.accepted == HEADER_BYTES + self.range.end - self.range.start
    }

    fn advance(
        &mut self,
        track: Track,
        input: &[u8],
        router: &mut Router,
    ) -> Result<bool, CallError> {
        let bytes = &input[self.range.clone()];
        let header = Header { tag: 0, elements: Elements::BYTES, bytes: bytes.len() as u64 };
        Ok(track.send(router, self.to, &header, bytes, &mut self.accepted)?)
    }
}

impl Incoming {
    const fn is_done(&self) -> bool {
        self.arrived == HEADER_BYTES + self.range.end - self.range.start
    }

    /// Receives what has arrived. Returns whether anything had.
    fn advance(
        &mut self,
        track: Track,
        output: &mut [u8],
        router: &mut Router,
    ) -> Result<bool, CallError> {
        let before = self.arrived;
        let link = track.link(self.from);
        let bytes = &mut output[self.range.clone()];
        let foreign = CallError::Foreign(self.from);
        if bytes.len() > INLINE_BYTES && !self.is_expected && !self.is_done() {
            let skip = HEADER_BYTES.saturating_sub(self.arrived);
            let rest = &mut bytes[self.arrived.saturating_sub(HEADER_BYTES)..];
            let tag = track.tag_of_body(self.range.len());
            self.is_expected = router.to(link).expect(link, tag, skip, rest);
        }
        if self.arrived == 0 {
            let Some(front) = router.readable(link)? else { return Ok(false) };
            let Ok((header, rest)) = track.begins(front) else { return Err(foreign) };
            if header.bytes != bytes.len() as u64 {
                return Err(self.unexpected(&header));
            }
            self.arrived = HEADER_BYTES;
            if bytes.len() <= INLINE_BYTES
                && let Some(body) = rest.get(..bytes.len())
            {
                // A short message that is here as a whole.
                bytes.copy_from_slice(body);
                self.arrived += bytes.len();
            }
            router.to(link).consume(link, self.arrived);
        }
        let mut arrived = self.arrived - HEADER_BYTES;
        if track.receive(router, self.from, bytes, &mut arrived)?.is_err() {
            return Err(foreign);
        }
        self.arrived = HEADER_BYTES + arrived;
        Ok(self.arrived > before)
    }

    /// The error for the header of a message of another length.
    #[cold]
    fn unexpected(&self, header: &Header) -> CallError {
        let own = Message { is_sent: false, peer: self.from, tag: 0, bytes: self.range.len() };
        let cause =
            format!("{own} met a message of {} bytes with tag {}", header.bytes, header.tag);
        CallError::Unexpected { peer: self.from, cause }
    }
}

impl Exchange {
    /// Empties the lists.
    pub(crate) fn clear(&mut self) {
        self.outgoing.clear();
        self.incoming.clear();
    }

    /// Adds a message of these bytes of the input.
    pub(crate) fn send(&mut self, to: Rank, range: Range<usize>) {
        self.outgoing.push(Outgoing { to, range, accepted: 0 });
    }

    /// Adds a message that fills these bytes of the output.
    pub(crate) fn receive(&mut self, from: Rank, range: Range<usize>) {
        self.incoming.push(Incoming { from, range, arrived: 0, is_expected: false });
    }

    /// Begins the exchange of rank `own`. Its messages to itself are done at once: the n-th one
    /// that it sends is the n-th one that it receives, and has the same length.
    pub(crate) fn begin(
        &mut self,
        tag: u32,
        (own, size): (Rank, usize),
        (input, output): (&[u8], &mut [u8]),
    ) {
        (self.tag, self.idle_since) = (tag, None);
        let sent = self.outgoing.iter_mut().filter(|it| it.to == own);
        let received = self.incoming.iter_mut().filter(|it| it.from == own);
        for (sent, received) in sent.zip(received) {
            output[received.range.clone()].copy_from_slice(&input[sent.range.clone()]);
            (sent.accepted, received.arrived) =
                (HEADER_BYTES + sent.range.len(), HEADER_BYTES + received.range.len());
        }
        self.outgoing.sort_by_key(|it| distance(own, it.to, size));
        self.incoming.sort_by_key(|it| distance(it.from, own, size));
    }

    /// Sends and receives what is possible now.
    fn advance(
        &mut self,
        (input, output): (&[u8], &mut [u8]),
        router: &mut Router,
    ) -> Result<Progress, CallError> {
        let track = Track::of_call(self.tag);
        let (mut has_moved, mut is_done) = (false, true);
        let mut left = PARTS_AT_ONCE;
        for to_one in self.outgoing.chunk_by_mut(|a, b| a.to == b.to) {
            for outgoing in to_one.iter_mut().skip_while(|it| it.is_done()) {
                has_moved |= outgoing.advance(track, input, router)?;
                if !outgoing.is_done() {
                    (is_done, left) = (false, left - 1);
                    break;
                }
            }
            if left == 0 {
                break;
            }
        }
        let mut left = PARTS_AT_ONCE;
        for from_one in self.incoming.chunk_by_mut(|a, b| a.from == b.from) {
            for incoming in from_one.iter_mut().skip_while(|it| it.is_done()) {
                has_moved |= incoming.advance(track, output, router)?;
                if !incoming.is_done() {
                    (is_done, left) = (false, left - 1);
                    break;
                }
            }
            if left == 0 {
                break;
            }
        }
        if has_moved {
            self.idle_since = None;
        }
        Ok(match (is_done, has_moved) {
            (true, _) => Progress::Done,
            (false, true) => Progress::Moved,
            (false, false) => Progress::Idle,
        })
    }
}

impl Work for Exchanging<'_> {
    fn lease(&mut self, router: &mut Router) {
        let Exchange { outgoing, incoming, .. } = &*self.exchange;
        outgoing.iter().for_each(|it| router.lease_input(&self.input[it.range.clone()]));
        incoming.iter().for_each(|it| router.lease_output(&mut self.output[it.range.clone()]));
    }

    fn advance(&mut self, router: &mut Router, _: &Watch, _: usize) -> Result<Progress, CallError> {
        self.exchange.advance((self.input, self.output), router)
    }

    fn check_peers(&mut self, router: &Router, watch: &Watch) -> Result<(), CallError> {
        let Exchange { tag, outgoing, incoming, idle_since, .. } = &mut *self.exchange;
        let track = Track::of_call(*tag);
        let awaited = incoming.iter().filter(|it| !it.is_done()).take(PARTS_AT_ONCE);
        awaited
            .clone()
            .try_for_each(|it| signals_foreign(router, track.header_tag, track.link(it.from)))?;
        if idle_since.get_or_insert_with(Instant::now).elapsed() < LEFT_GRACE {
            return Ok(());
        }
        let awaiting = outgoing.iter().filter(|it| !it.is_done()).take(PARTS_AT_ONCE);
        let mut peers = awaited.map(|it| it.from).chain(awaiting.map(|it| it.to));
        peers.find(|peer| has_left(watch, *peer)).map_or(Ok(()), |peer| Err(CallError::Left(peer)))
    }
}

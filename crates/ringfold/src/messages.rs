//! Point-to-point messages: any number of sends and receives that progress together.
//!
//! Messages have a lane of their own. A message is a header of 16 bytes with its tag, the type of
//! its elements and its length in bytes, and then its bytes. The bytes of a short message follow in
//! the same message of the transport. Those of a longer one are a message of their own, which a
//! transport may place directly in the receiver's memory.
//!
//! Uneven collectives consist of such messages too. Theirs take a lane of collectives, and carry
//! the tag of their call.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use ringfold_collectives::Progress;
use ringfold_collectives::pairs::distance;
use ringfold_reduce::data_type_of;
use ringfold_transport::{Link, LinkFault};
use ringfold_types::limits::{INLINE_BYTES, LINK_GRACE_MS, MESSAGE_LANE, PARTS_AT_ONCE};
use ringfold_types::{DataType, Lane, Rank};

use crate::error::{CallError, Message};
use crate::execute::{Work, signals_foreign};
use crate::router::Router;
use crate::watch::Watch;

/// How long nothing moves before a rank asks whether its peers have left. The bytes of a peer that
/// has left get as long again to arrive.
const LEFT_GRACE: Duration = Duration::from_millis(LINK_GRACE_MS / 2);

/// Bytes of a header.
const HEADER_BYTES: usize = 16;

/// Bytes of a message that needs little memory beside it.
const TINY_BYTES: usize = 48;

/// The way that messages take beside those of other operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Track {
    lane: Lane,
    /// The transport's tag of headers, and of short messages behind them.
    header_tag: u32,
    /// The transport's tag of the bytes of longer messages.
    body_tag: u32,
    /// The messages of each direction that progress at the same time.
    at_once: usize,
}

impl Track {
    /// The track of point-to-point messages, which has a lane of its own.
    pub(crate) const POINT_TO_POINT: Self =
        Self { lane: Lane(MESSAGE_LANE), header_tag: 1, body_tag: 2, at_once: usize::MAX };

    /// The track of a collective whose messages have this tag, on a lane of collectives.
    pub(crate) const fn of_call(tag: u32) -> Self {
        let body_tag = tag.wrapping_add(1);
        Self { lane: Lane(0), header_tag: tag, body_tag, at_once: PARTS_AT_ONCE }
    }

    /// The link of messages to and from a peer.
    const fn link(self, peer: Rank) -> Link {
        Link { peer, lane: self.lane }
    }

    const fn is_of_call(self) -> bool {
        self.lane.0 != MESSAGE_LANE
    }
}

/// The type of a message's elements. Bytes fit every type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elements(u8);

impl Elements {
    const BYTES: Self = Self(DataType::U8 as u8);

    /// The type of `T`. A type that is no element's stands for bytes.
    fn of<T: Pod>() -> Self {
        data_type_of::<T>().map_or(Self::BYTES, |data_type| Self(data_type as u8))
    }

    pub(crate) fn fits(self, other: Self) -> bool {
        self == other || self == Self::BYTES || other == Self::BYTES
    }
}

impl fmt::Display for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DataType::from_code(self.0).map_or("an unknown type", DataType::name))
    }
}

/// A message that this rank sends.
#[derive(Debug)]
pub(crate) struct Outgoing<'b> {
    pub(crate) to: Rank,
    pub(crate) tag: u32,
    pub(crate) elements: Elements,
    pub(crate) bytes: &'b [u8],
    /// Bytes that the transport has accepted, with the header.
    accepted: usize,
}

/// A message that this rank receives.
#[derive(Debug)]
pub(crate) struct Incoming<'b> {
    pub(crate) from: Rank,
    pub(crate) tag: u32,
    pub(crate) elements: Elements,
    pub(crate) bytes: &'b mut [u8],
    /// Bytes that have arrived, with the header.
    arrived: usize,
    /// The transport knows where the bytes are wanted.
    is_expected: bool,
}

/// The messages that a rank sends and receives in one call. A communicator keeps the lists between
/// calls, so repeated calls allocate nothing.
#[derive(Debug, Default)]
pub(crate) struct Lists<'b> {
    pub(crate) outgoing: Vec<Outgoing<'b>>,
    pub(crate) incoming: Vec<Incoming<'b>>,
    /// The bytes of the parts of an output.
    pub(crate) ranges: Vec<Range<usize>>,
}

impl Lists<'_> {
    /// Empty lists, in the memory of these.
    pub(crate) fn emptied<'n>(self) -> Lists<'n> {
        let Self { outgoing, incoming, ranges } = self;
        Lists { outgoing: emptied(outgoing), incoming: emptied(incoming), ranges }
    }
}

/// An empty vector in the memory of `used`.
fn emptied<T, U>(mut used: Vec<T>) -> Vec<U> {
    used.clear();
    // A vector of elements of the same size and alignment is collected in place.
    used.into_iter().map(|_| unreachable!("it is empty")).collect()
}

/// Messages that progress together. Those of one direction between two ranks keep their order, and
/// no message waits for others.
pub(crate) struct Messages<'m, 'b> {
    track: Track,
    /// In the order of the distance from this rank to their receivers.
    outgoing: &'m mut [Outgoing<'b>],
    /// In the order of the distance from their senders to this rank.
    incoming: &'m mut [Incoming<'b>],
    /// When this rank began to park, since when nothing has moved.
    idle_since: Option<Instant>,
}

impl<'b> Outgoing<'b> {
    /// A message of bytes.
    pub(crate) const fn new(bytes: &'b [u8], to: Rank, tag: u32) -> Self {
        Self { to, tag, elements: Elements::BYTES, bytes, accepted: 0 }
    }

    pub(crate) fn of<T: Pod>(data: &'b [T], to: Rank, tag: u32) -> Self {
        let elements = Elements::of::<T>();
        Self { elements, ..Self::new(cast_slice(data), to, tag) }
    }

    pub(crate) const fn message(&self) -> Message {
        Message { is_sent: true, peer: self.to, tag: self.tag, bytes: self.bytes.len() }
    }

    const fn is_done(&self) -> bool {
        self.accepted == HEADER_BYTES + self.bytes.len()
    }

    /// Writes the header and the bytes to `whole`. Returns what the transport has not accepted.
    #[inline]
    fn rest<'w>(&self, whole: &'w mut [u8]) -> &'w [u8] {
        let whole = &mut whole[..HEADER_BYTES + self.bytes.len()];
        let (header, body) = whole.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&encode(self.tag, self.elements, self.bytes.len()));
        body.copy_from_slice(self.bytes);
        &whole[self.accepted..]
    }

    /// Sends what the transport takes now. Returns whether it took anything.
    fn advance(&mut self, track: Track, router: &mut Router) -> Result<bool, CallError> {
        let before = self.accepted;
        let Track { header_tag, body_tag, .. } = track;
        let link = track.link(self.to);
        if self.bytes.len() <= INLINE_BYTES {
            let (mut tiny, mut short);
            let whole: &mut [u8] = if self.bytes.len() <= TINY_BYTES {
                tiny = [0; HEADER_BYTES + TINY_BYTES];
                &mut tiny
            } else {
                short = [0; HEADER_BYTES + INLINE_BYTES];
                &mut short
            };
            self.accepted += router.to(link).send(link, header_tag, self.rest(whole))?;
            return Ok(self.accepted > before);
        }
        if self.accepted < HEADER_BYTES {
            let header = encode(self.tag, self.elements, self.bytes.len());
            let rest = &header[self.accepted..];
            self.accepted += router.to(link).send_ahead(link, header_tag, rest)?;
        }
        while let Some(sent) = self.accepted.checked_sub(HEADER_BYTES)
            && sent < self.bytes.len()
        {
            match router.to(link).send(link, body_tag, &self.bytes[sent..])? {
                0 => break,
                accepted => self.accepted += accepted,
            }
        }
        Ok(self.accepted > before)
    }
}

impl<'b> Incoming<'b> {
    /// A message of bytes.
    pub(crate) const fn new(bytes: &'b mut [u8], from: Rank, tag: u32) -> Self {
        Self { from, tag, elements: Elements::BYTES, bytes, arrived: 0, is_expected: false }
    }

    pub(crate) fn of<T: Pod>(data: &'b mut [T], from: Rank, tag: u32) -> Self {
        let elements = Elements::of::<T>();
        Self { elements, ..Self::new(cast_slice_mut(data), from, tag) }
    }

    pub(crate) const fn message(&self) -> Message {
        Message { is_sent: false, peer: self.from, tag: self.tag, bytes: self.bytes.len() }
    }

    const fn is_done(&self) -> bool {
        self.arrived == HEADER_BYTES + self.bytes.len()
    }

    /// Receives what has arrived. Returns whether anything had.
    fn advance(&mut self, track: Track, router: &mut Router) -> Result<bool, CallError> {
        let before = self.arrived;
        let Track { header_tag, body_tag, .. } = track;
        let link = track.link(self.from);
        if self.bytes.len() > INLINE_BYTES && !self.is_expected && !self.is_done() {
            let skip = HEADER_BYTES.saturating_sub(self.arrived);
            let rest = &mut self.bytes[self.arrived.saturating_sub(HEADER_BYTES)..];
            self.is_expected = router.to(link).expect(link, body_tag, skip, rest);
        }
        if self.arrived == 0 && self.bytes.len() > INLINE_BYTES {
            // Only the header is read, so that the transport may place the bytes directly.
            let mut header = [0; HEADER_BYTES];
            let Some(received) = router.to(link).recv(link, header_tag, &mut header)? else {
                return Ok(false);
            };
            if (received.tag, received.bytes) != (header_tag, HEADER_BYTES) {
                return Err(self.garbled(track));
            }
            self.check(&header)?;
            self.arrived = HEADER_BYTES;
        } else if self.arrived == 0 {
            let Some(fragment) = router.readable(link)? else { return Ok(false) };
            let header = fragment.bytes.first_chunk().filter(|_| fragment.tag == header_tag);
            let Some(header) = header else { return Err(self.garbled(track)) };
            self.check(header)?;
            let whole = HEADER_BYTES + self.bytes.len();
            if let Some(body) = fragment.bytes.get(HEADER_BYTES..whole) {
                // A short message that is here as a whole.
                self.bytes.copy_from_slice(body);
                self.arrived = whole;
            } else {
                self.arrived = HEADER_BYTES;
            }
            router.to(link).consume(link, self.arrived);
        }
        let tag = if self.bytes.len() <= INLINE_BYTES { header_tag } else { body_tag };
        while !self.is_done() {
            let rest = &mut self.bytes[self.arrived - HEADER_BYTES..];
            match router.to(link).recv(link, tag, rest)? {
                None => break,
                Some(received) if received.tag != tag => return Err(self.garbled(track)),
                Some(received) => self.arrived += received.bytes,
            }
        }
        Ok(self.arrived > before)
    }

    /// Checks the header at the front against the message that this rank expects.
    #[inline]
    fn check(&self, header: &[u8; HEADER_BYTES]) -> Result<(), CallError> {
        let (tag, elements, bytes) = decode(header);
        let fits = elements.fits(self.elements);
        if fits && (tag, bytes) == (self.tag, self.bytes.len() as u64) {
            return Ok(());
        }
        Err(self.unexpected((tag, elements, bytes), fits))
    }

    /// The error for the header of another message.
    #[cold]
    fn unexpected(&self, (tag, elements, bytes): (u32, Elements, u64), fits: bool) -> CallError {
        let [own, theirs] = [self.elements, elements]
            .map(|it| if fits { String::new() } else { format!(" of {it}") });
        let message = self.message();
        let cause = format!("{message}{own} met a message of {bytes} bytes{theirs} with tag {tag}");
        CallError::Unexpected { peer: self.from, cause }
    }

    /// The error for bytes that no rank sends here.
    fn garbled(&self, track: Track) -> CallError {
        if track.is_of_call() {
            return CallError::Foreign(self.from);
        }
        let cause = format!("{} met bytes that are no message", self.message());
        CallError::Unexpected { peer: self.from, cause }
    }
}

impl<'m, 'b> Messages<'m, 'b> {
    /// Messages of rank `own`, in their order for each peer. Those to itself are done at once: the
    /// n-th one that it sends is the n-th one that it receives, and has the same length.
    ///
    /// A track may limit the messages that progress at the same time. Then every rank must have a
    /// message for every other rank that has one for it, as `pairs` proves for collectives.
    pub(crate) fn new(
        track: Track,
        outgoing: &'m mut [Outgoing<'b>],
        incoming: &'m mut [Incoming<'b>],
        (own, size): (Rank, usize),
    ) -> Self {
        let sent = outgoing.iter_mut().filter(|it| it.to == own);
        let received = incoming.iter_mut().filter(|it| it.from == own);
        for (sent, received) in sent.zip(received) {
            received.bytes.copy_from_slice(sent.bytes);
            (sent.accepted, received.arrived) =
                (HEADER_BYTES + sent.bytes.len(), HEADER_BYTES + received.bytes.len());
        }
        // The sorts are stable, and leave a single message where it is.
        outgoing.sort_by_key(|it| distance(own, it.to, size));
        incoming.sort_by_key(|it| distance(it.from, own, size));
        Self { track, outgoing, incoming, idle_since: None }
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
    fn lease(&mut self, router: &mut Router) {
        self.outgoing.iter().for_each(|it| router.lease_input(it.bytes));
        self.incoming.iter_mut().for_each(|it| router.lease_output(it.bytes));
    }

    fn advance(&mut self, router: &mut Router, _: &Watch, _: usize) -> Result<Progress, CallError> {
        let track = self.track;
        let (mut has_moved, mut is_done) = (false, true);
        let mut left = track.at_once;
        for to_one in self.outgoing.chunk_by_mut(|a, b| a.to == b.to) {
            for outgoing in to_one.iter_mut().skip_while(|it| it.is_done()) {
                has_moved |= outgoing.advance(track, router)?;
                if !outgoing.is_done() {
                    (is_done, left) = (false, left - 1);
                    break;
                }
            }
            if left == 0 {
                break;
            }
        }
        let mut left = track.at_once;
        for from_one in self.incoming.chunk_by_mut(|a, b| a.from == b.from) {
            for incoming in from_one.iter_mut().skip_while(|it| it.is_done()) {
                has_moved |= incoming.advance(track, router)?;
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

    fn check_peers(&mut self, router: &Router, watch: &Watch) -> Result<(), CallError> {
        let Track { header_tag, at_once, .. } = self.track;
        let awaited = self.incoming.iter().filter(|it| !it.is_done()).take(at_once);
        if self.track.is_of_call() {
            awaited
                .clone()
                .try_for_each(|it| signals_foreign(router, header_tag, self.track.link(it.from)))?;
        }
        if self.idle_since.get_or_insert_with(Instant::now).elapsed() < LEFT_GRACE {
            return Ok(());
        }
        let awaiting = self.outgoing.iter().filter(|it| !it.is_done()).take(at_once);
        let mut peers = awaited.map(|it| it.from).chain(awaiting.map(|it| it.to));
        peers.find(|peer| has_left(watch, *peer)).map_or(Ok(()), |peer| Err(CallError::Left(peer)))
    }
}

/// The search for a rank whose next message has a tag.
///
/// It leaves messages with other tags, and links that have ended, as they are.
pub(crate) struct Search {
    tag: u32,
    own: Rank,
    size: usize,
    /// The rank to look at first.
    first: usize,
    pub(crate) found: Option<Rank>,
    idle_since: Option<Instant>,
    /// Since when the link of a rank that has not left is unusable.
    broken_since: Option<Instant>,
}

impl Search {
    pub(crate) const fn new(tag: u32, (own, size): (Rank, usize), first: usize) -> Self {
        Self { tag, own, size, first, found: None, idle_since: None, broken_since: None }
    }

    /// The other ranks, in the order of the search.
    fn peers(&self) -> impl Iterator<Item = Rank> + use<> {
        let (own, size, first) = (self.own, self.size, self.first);
        (0..size).map(move |n| Rank::at((first + n) % size)).filter(move |peer| *peer != own)
    }
}

/// The next message of `peer`, if it has arrived.
///
/// # Errors
/// The link is unusable, or the bytes are no message.
pub(crate) fn next_of(router: &Router, peer: Rank) -> Result<Option<Message>, CallError> {
    let track = Track::POINT_TO_POINT;
    let Some(fragment) = router.readable(track.link(peer))? else { return Ok(None) };
    let header = fragment.bytes.first_chunk().filter(|_| fragment.tag == track.header_tag);
    let message = header.map(decode).and_then(|(tag, _, bytes)| {
        let bytes = usize::try_from(bytes).ok()?;
        Some(Message { is_sent: false, peer, tag, bytes })
    });
    let garbled = || CallError::Unexpected { peer, cause: "bytes that are no message".to_owned() };
    message.map(Some).ok_or_else(garbled)
}

/// The next message of `peer`, if it has arrived.
///
/// # Errors
/// Those of `next_of`, and that `peer` has left.
pub(crate) fn next_of_present(
    router: &Router,
    watch: &Watch,
    peer: Rank,
) -> Result<Option<Message>, CallError> {
    let next = next_of(router, peer)?;
    if next.is_none() && has_left(watch, peer) {
        return Err(CallError::Left(peer));
    }
    Ok(next)
}

/// Whether `peer` has left, and bytes that it sent have had the time to arrive.
fn has_left(watch: &Watch, peer: Rank) -> bool {
    watch.left_since(peer).is_some_and(|since| since >= LEFT_GRACE)
}

impl Work for Search {
    fn advance(&mut self, router: &mut Router, _: &Watch, _: usize) -> Result<Progress, CallError> {
        for peer in self.peers() {
            match next_of(router, peer) {
                Ok(Some(message)) if message.tag == self.tag => {
                    self.found = Some(peer);
                    return Ok(Progress::Done);
                }
                Err(CallError::Link(link)) if matches!(link.fault, LinkFault::Died) => {
                    return Err(link.into());
                }
                // The check before a park tells why a link has ended.
                Ok(_) | Err(CallError::Link(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Progress::Idle)
    }

    fn check_peers(&mut self, router: &Router, watch: &Watch) -> Result<(), CallError> {
        if self.idle_since.get_or_insert_with(Instant::now).elapsed() < LEFT_GRACE {
            return Ok(());
        }
        // Asks for the news of all ranks.
        let left = self.peers().filter(|peer| has_left(watch, *peer)).count();
        if left + 1 == self.size
            && let Some(last) = self.peers().last()
        {
            return Err(CallError::Left(last));
        }
        let mut present = self.peers().filter(|peer| watch.left_since(*peer).is_none());
        let Some(broken) = present.find_map(|peer| next_of(router, peer).err()) else {
            self.broken_since = None;
            return Ok(());
        };
        // The link of a rank that leaves may end before the news of that comes.
        let since = self.broken_since.get_or_insert_with(Instant::now);
        if since.elapsed() < 2 * LEFT_GRACE { Ok(()) } else { Err(broken) }
    }
}

fn encode(tag: u32, elements: Elements, bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&tag.to_le_bytes());
    header[4] = elements.0;
    header[8..].copy_from_slice(&(bytes as u64).to_le_bytes());
    header
}

/// The tag, the type and the length in a header, which may have any value.
fn decode(header: &[u8; HEADER_BYTES]) -> (u32, Elements, u64) {
    let [t0, t1, t2, t3, elements, _, _, _, bytes @ ..] = *header;
    (u32::from_le_bytes([t0, t1, t2, t3]), Elements(elements), u64::from_le_bytes(bytes))
}

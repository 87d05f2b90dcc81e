//! A member's end of a group: one connection, its handshake, and the results that arrive.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_types::limits::{
    HANDSHAKE_MS, OFFLOAD_BEAT_MS, OFFLOAD_REASON_BYTES_MAX, OFFLOAD_SILENCE_MS,
};
use ringfold_types::{Collective, Wire};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::incoming::{Incoming, Received};
use super::outgoing::Outgoing;
use super::way::{Way, ended};
use crate::offload::carrier::Carrier;
use crate::offload::contract::{Awaited, Chunk, Group, Outcome, Properties};
use crate::offload::error::OffloadError;
use crate::offload::handshake::{Connector, Place, payload_bytes, port};
use crate::offload::header::{BadHeader, HEADER_BYTES, Header, Kind};
use crate::offload::links::Links;
use crate::offload::slots::Slots;
use crate::tcp::socket::connecting;
use crate::tcp::ticker::Ticker;
use crate::tcp::{Liveness, Route};

const SILENCE: Duration = Duration::from_millis(OFFLOAD_SILENCE_MS);
const BEAT: Duration = Duration::from_millis(OFFLOAD_BEAT_MS);
const HANDSHAKE: Duration = Duration::from_millis(HANDSHAKE_MS);
/// Messages that one poll receives. An aggregator may send faster than this child reads.
const MESSAGES_MAX: usize = 64;
/// Bytes of a heartbeat's payload: two masks of children.
const BEAT_BYTES: usize = 16;

/// A child as its aggregator knows it.
#[derive(Clone)]
pub struct Child {
    /// The child's place, which no other child has.
    pub place: Place,
    /// The group's key.
    pub key: [u8; 32],
    /// The child itself, or the members below it.
    pub members: RangeInclusive<u16>,
}

impl fmt::Debug for Child {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, members, .. } = self;
        f.debug_struct("Child")
            .field("place", place)
            .field("members", members)
            .finish_non_exhaustive()
    }
}

/// A child's connection to its aggregator. The child is a member, or an aggregator with several
/// members below it.
#[derive(Debug)]
pub struct AggregatorGroup {
    at: SocketAddr,
    child: Child,
    properties: Properties,
    carrier: Option<Arc<dyn Carrier>>,
    way: Way,
    state: State,
    out: Outgoing,
    incoming: Incoming,
    /// The header of the message that arrives, and the bytes of it that have arrived.
    head: [u8; HEADER_BYTES],
    head_filled: usize,
    /// The message that arrives, once its header has.
    message: Option<Header>,
    /// The payload of a message that is no result.
    payload: Vec<u8>,
    payload_filled: usize,
    slots: Slots,
    awaited: Awaited,
    /// The last time at which bytes arrived, or at which the first outstanding chunk left.
    heard: Instant,
    /// The time at which a poll first found the silence suspicious. A process that was stopped for
    /// long polls at least twice before it gives the aggregator up.
    suspected: Option<Instant>,
    epoll: OwnedFd,
    ticker: Ticker,
}

#[derive(Debug)]
enum State {
    /// The kernel connects.
    Connecting(Box<Connector>),
    /// The aggregator has the hello.
    Greeting(Box<Connector>),
    /// The aggregator has the first message by the link.
    Linking,
    Open,
    Failed(OffloadError),
}

impl AggregatorGroup {
    /// Begins to connect a child to the aggregator at `at`. If both have a carrier, a link of it
    /// replaces the connection before the group is ready. Then one call of `poll` may block as
    /// `Carrier::make_transport` does.
    ///
    /// # Errors
    /// The system refuses a descriptor or random bytes, or has no route.
    pub fn connect(
        at: SocketAddr,
        child: Child,
        properties: Properties,
        carrier: Option<Arc<dyn Carrier>>,
    ) -> Result<Self, OffloadError> {
        let unreachable =
            |e: Errno| OffloadError::Unreachable { at: at.to_string(), source: e.into() };
        let route = Route { from: None, to: at };
        let socket = connecting(route, Liveness::default()).map_err(unreachable)?;
        let (epoll, ticker) = (epoll::create(epoll::CreateFlags::CLOEXEC), Ticker::new());
        let (epoll, ticker) = (epoll.map_err(system)?, ticker.map_err(system)?);
        let way = Way::new(socket, &epoll).map_err(system)?;
        epoll::add(&epoll, &ticker, EventData::new_u64(1), EventFlags::IN).map_err(system)?;
        Ok(Self {
            at,
            state: State::Connecting(Box::new(Connector::new(child.key, child.place)?)),
            child,
            properties,
            carrier,
            way,
            out: Outgoing::default(),
            incoming: Incoming::new(),
            head: [0; HEADER_BYTES],
            head_filled: 0,
            message: None,
            payload: Vec::new(),
            payload_filled: 0,
            slots: Slots::new(properties.window),
            awaited: Awaited::default(),
            heard: Instant::now(),
            suspected: None,
            epoll,
            ticker,
        })
    }

    /// Leaves the group as one that has failed. The aggregator ends the epoch, and tells the other
    /// children the reason if this connection can still take it.
    pub fn abandon(mut self, reason: &str) {
        if matches!(self.state, State::Open) && self.out.is_empty() {
            let end = reason.floor_char_boundary(OFFLOAD_REASON_BYTES_MAX);
            let message = self.child.place.message(Kind::Refused, &reason.as_bytes()[..end]);
            self.way.write(&message).ok();
        }
        self.state = State::Failed(OffloadError::Closed);
    }

    /// Keeps the reason for the end of the group, and returns it.
    fn fail(&mut self, error: OffloadError) -> OffloadError {
        let again = error.again();
        self.way.withdraw();
        self.state = State::Failed(error);
        again
    }

    /// Sends and receives what it can. Sets `moved` if anything did, also before an error.
    fn progress(&mut self, moved: &mut bool) -> Result<(), OffloadError> {
        *moved |= self.begin()?;
        *moved |= self.way.poll()?;
        *moved |= self.out.flush(&mut self.way)?;
        for _ in 0..MESSAGES_MAX {
            if !self.receive()? {
                break;
            }
            *moved = true;
        }
        if *moved {
            // Answers of the handshake leave at once.
            self.out.flush(&mut self.way)?;
        }
        self.check_silence(*moved)
    }

    /// Sends the hello once the kernel has connected.
    fn begin(&mut self) -> Result<bool, OffloadError> {
        let State::Connecting(connector) = &self.state else { return Ok(false) };
        let unreachable =
            |e: Errno| OffloadError::Unreachable { at: self.at.to_string(), source: e.into() };
        if !self.way.is_connected().map_err(unreachable)? {
            return Ok(false);
        }
        self.out.push(&connector.hello());
        let State::Connecting(connector) = std::mem::replace(&mut self.state, State::Open) else {
            unreachable!("the state was checked above");
        };
        self.state = State::Greeting(connector);
        Ok(true)
    }

    /// Receives up to the end of a message, and acts on it. Returns false if it is not whole.
    fn receive(&mut self) -> Result<bool, OffloadError> {
        if matches!(self.state, State::Connecting(_)) {
            return Ok(false);
        }
        if self.message.is_none() {
            let got = self.incoming.receive(&mut self.way, &mut self.head, &mut self.head_filled);
            if !whole(got?)? {
                return Ok(false);
            }
            let header = Header::decode(&self.head).map_err(|bad| match bad {
                BadHeader::Version { ours, theirs } => OffloadError::Version { ours, theirs },
                BadHeader::Unknown(_) => OffloadError::Protocol("a header of no known kind"),
            })?;
            self.check(&header)?;
            self.message = Some(header);
            self.payload_filled = 0;
            self.payload.resize(header.bytes as usize, 0);
        }
        let Some(header) = self.message else { return Ok(false) };
        let dst = match header.kind {
            Kind::Result => self.slots.arriving().1,
            _ => &mut self.payload[..],
        };
        let before = self.payload_filled;
        let got = self.incoming.receive(&mut self.way, dst, &mut self.payload_filled);
        let is_whole = whole(got?)?;
        // A handshake has one deadline, however its bytes arrive.
        if matches!(self.state, State::Open) && (is_whole || self.payload_filled > before) {
            self.hear();
        }
        if !is_whole {
            return Ok(false);
        }
        self.message = None;
        self.head_filled = 0;
        self.act(&header)?;
        Ok(true)
    }

    /// Checks a header before memory is used for its payload.
    fn check(&mut self, header: &Header) -> Result<(), OffloadError> {
        let told = (header.group, header.epoch, header.child);
        let bytes = header.bytes as usize;
        let Place { group, epoch, child } = self.child.place;
        let is_ours = told == (group, epoch, child);
        let fits = match (header.kind, &self.state) {
            // An aggregator may refuse a child before it knows the child's place.
            (Kind::Refused, _) => return check(bytes <= OFFLOAD_REASON_BYTES_MAX),
            (Kind::Challenge | Kind::Welcome, State::Greeting(_))
            | (Kind::Welcome, State::Linking) => Some(bytes) == payload_bytes(header.kind),
            (Kind::Beat, State::Open) => bytes == BEAT_BYTES,
            (Kind::Result, State::Open) if self.slots.is_waiting() => {
                let number = self.slots.arrived();
                let slot = self.slots.slot(number);
                let (tag, result) = self.slots.arriving();
                (header.chunk, header.slot, header.tag, bytes) == (number, slot, tag, result.len())
            }
            _ => false,
        };
        check(is_ours && fits)
    }

    fn act(&mut self, header: &Header) -> Result<(), OffloadError> {
        match (header.kind, &self.state) {
            (Kind::Challenge, State::Greeting(connector)) => {
                self.out.push(&connector.answer(&self.payload, self.carrier.is_some())?);
            }
            (Kind::Welcome, State::Greeting(_)) => match port(&self.payload) {
                Some(port) => self.link(port)?,
                None => self.state = State::Open,
            },
            (Kind::Welcome, State::Linking) => {
                self.way.settle();
                self.state = State::Open;
            }
            (Kind::Result, _) => {
                self.slots.arrive();
                self.awaited = Awaited::default();
            }
            (Kind::Beat, _) => {
                let (masks, _) = self.payload.as_chunks::<8>();
                let mask = |at: usize| masks.get(at).map_or(0, |mask| u64::from_le_bytes(*mask));
                self.awaited = Awaited { children: mask(0), above: mask(1) };
            }
            _ => {
                let reason = String::from_utf8_lossy(&self.payload).into_owned();
                return Err(OffloadError::Refused { reason });
            }
        }
        Ok(())
    }

    /// Has a link to the aggregator's port replace the connection.
    fn link(&mut self, port: u16) -> Result<(), OffloadError> {
        let unasked = OffloadError::Protocol("a link that this child did not ask for");
        let Some(carrier) = &self.carrier else { return Err(unasked) };
        let own = self.way.own_address().map_err(ended)?;
        let Child { place, key, .. } = self.child;
        let at = SocketAddr::new(self.at.ip(), port);
        let links = Links::dial(&**carrier, place.child, (own, at), key)?;
        self.way.change(links, &self.epoll).map_err(system)?;
        self.out.push(&place.welcome(0));
        self.state = State::Linking;
        self.hear();
        Ok(())
    }

    fn hear(&mut self) {
        self.heard = Instant::now();
        self.suspected = None;
    }

    /// The time after which silence counts; `None` while the aggregator owes nothing.
    fn patience(&self) -> Option<Duration> {
        match self.state {
            State::Open => self.slots.is_waiting().then_some(SILENCE),
            State::Connecting(_) | State::Greeting(_) | State::Linking => Some(HANDSHAKE),
            State::Failed(_) => None,
        }
    }

    fn check_silence(&mut self, moved: bool) -> Result<(), OffloadError> {
        let Some(patience) = self.patience().filter(|_| !moved) else { return Ok(()) };
        let now = Instant::now();
        let silence = now - self.heard;
        if silence + BEAT < patience {
            return Ok(());
        }
        let suspected = *self.suspected.get_or_insert(now);
        if silence < patience || now - suspected < BEAT {
            return Ok(());
        }
        let millis = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
        Err(OffloadError::Silent { millis })
    }
}

impl Group for AggregatorGroup {
    fn properties(&self) -> Properties {
        self.properties
    }

    fn is_ready(&self) -> bool {
        matches!(self.state, State::Open)
    }

    fn post(&mut self, chunk: &Chunk, bytes: &[u8]) -> Result<bool, OffloadError> {
        let reduction = &chunk.reduction;
        assert!(bytes.len() == reduction.input_bytes(chunk.count), "the chunk has other bytes");
        assert!(bytes.len() <= self.properties.chunk_bytes_max, "the chunk is too long");
        match &self.state {
            State::Failed(error) => return Err(error.again()),
            State::Open if self.slots.has_room() => {}
            _ => return Ok(false),
        }
        let no_tree = OffloadError::Protocol("a collective that no tree performs");
        let Some(kind) = Kind::of(reduction.collective) else { return Err(self.fail(no_tree)) };
        if !self.slots.is_waiting() {
            self.hear();
        }
        let Child { place, members, .. } = &self.child;
        let root = reduction.root.clamp(*members.start(), *members.end());
        self.slots.post(chunk, reduction.output_bytes(chunk.count, root));
        let length = u32::try_from(bytes.len()).expect("a chunk within its limit");
        let is_barrier = reduction.collective == Collective::Barrier;
        let header = Header {
            child: place.child,
            slot: self.slots.slot(chunk.number),
            chunk: chunk.number,
            tag: chunk.tag,
            data_type: reduction.data_type,
            form: if is_barrier { Wire::Element } else { reduction.form },
            op: reduction.op,
            root: reduction.root,
            ..Header::plain(kind, place.group, place.epoch, length)
        };
        match self.out.send(&mut self.way, &header.encode(), bytes) {
            Ok(()) => Ok(true),
            // What the aggregator said before it closed the connection tells more.
            Err(error) => {
                let told = self.progress(&mut false).err();
                Err(self.fail(told.unwrap_or(error)))
            }
        }
    }

    fn poll(&mut self) -> Result<bool, OffloadError> {
        if let State::Failed(error) = &self.state {
            return Err(error.again());
        }
        let mut moved = false;
        match self.progress(&mut moved).map_err(|error| self.fail(error)) {
            // The next call reports the error, after the caller has seen what arrived before it.
            Err(_) if moved => Ok(true),
            result => result.map(|()| moved),
        }
    }

    fn result(&self) -> Option<Outcome<'_>> {
        self.slots.oldest()
    }

    fn take(&mut self) {
        self.slots.take();
    }

    fn retained(&self, number: u64) -> Option<Outcome<'_>> {
        self.slots.retained(number)
    }

    fn posted(&self) -> u64 {
        self.slots.posted()
    }

    fn arrived(&self) -> u64 {
        self.slots.arrived()
    }

    fn awaited(&self) -> Awaited {
        self.awaited
    }

    fn give_up(&mut self) {
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::Failed(OffloadError::Closed);
        }
        self.way.close(&self.epoll);
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn arm(&mut self) {
        let is_sending = !self.out.is_empty() || matches!(self.state, State::Connecting(_));
        self.way.arm(&self.epoll, is_sending);
        let check = self.patience().map(|patience| match self.suspected {
            Some(at) => (self.heard + patience).max(at + BEAT),
            None => self.heard + patience - BEAT,
        });
        self.ticker.ring_at(check);
    }

    fn disarm(&mut self) {
        self.way.disarm(&self.epoll);
        self.ticker.stop();
    }
}

impl Drop for AggregatorGroup {
    /// Tells the aggregator that this is no failure, if everything before has left. A link blocks
    /// until that has arrived, as a drop of `Links` does.
    fn drop(&mut self) {
        if matches!(self.state, State::Open) && self.out.is_empty() {
            self.way.write(&self.child.place.message(Kind::Leave, &[])).ok();
        } else {
            self.way.withdraw();
        }
    }
}

fn check(is_sound: bool) -> Result<(), OffloadError> {
    if is_sound { Ok(()) } else { Err(OffloadError::Protocol("a message out of place")) }
}

fn whole(received: Received) -> Result<bool, OffloadError> {
    match received {
        Received::Whole => Ok(true),
        Received::Part => Ok(false),
        Received::End => Err(OffloadError::Closed),
    }
}

fn system(errno: Errno) -> OffloadError {
    OffloadError::Io(errno.into())
}

//! A member's end of a group: one link, and the results that arrive.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread::Builder;
use std::time::{Duration, Instant};

use ringfold_types::limits::{
    HANDSHAKE_MS, OFFLOAD_BEAT_MS, OFFLOAD_REASON_BYTES_MAX, OFFLOAD_SILENCE_MS,
};
use ringfold_types::{Collective, Wire};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use crate::contract::{Awaited, Chunk, Group, Properties};
use crate::error::OffloadError;
use crate::slots::Slots;
use crate::wire::devices::RdmaDevices;
use crate::wire::header::{BadHeader, Header, Kind};
use crate::wire::links::{AGGREGATOR, Endpoints, Links};
use crate::wire::messages::Messages;
use ringfold_transport::LinkFault;
use ringfold_transport::Ticker;

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
    /// The child's number, which no other child has.
    pub number: u8,
    /// The group's key.
    pub key: [u8; 32],
    /// The child itself, or the members below it.
    pub members: RangeInclusive<u16>,
}

impl fmt::Debug for Child {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, members, .. } = self;
        f.debug_struct("Child")
            .field("number", number)
            .field("members", members)
            .finish_non_exhaustive()
    }
}

/// A child's link to its aggregator. The child is a member, or an aggregator with several members
/// below it.
#[derive(Debug)]
pub struct AggregatorGroup {
    at: Endpoints,
    child: Child,
    properties: Properties,
    state: State,
    /// The link, until the group is given up.
    links: Option<Links>,
    messages: Messages,
    /// The payload of a message that is no result.
    payload: Vec<u8>,
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
    /// The aggregator has not answered the hello.
    Greeting,
    Open,
    Failed(OffloadError),
}

impl AggregatorGroup {
    /// Begins to connect a child to the aggregator at `at`. The link goes by RDMA if both have
    /// devices; the call may then block for some tenths of a second.
    ///
    /// # Errors
    /// The system refuses a descriptor, the devices cannot be used now, or there is no route.
    pub fn connect(
        at: Endpoints,
        child: Child,
        properties: Properties,
        devices: Option<&RdmaDevices>,
    ) -> Result<Self, OffloadError> {
        let devices = devices.filter(|_| at.rdma_port != 0);
        let mut to = at.tcp;
        if devices.is_some() {
            to.set_port(at.rdma_port);
        }
        let mut links = Links::dial(devices, child.number, to, child.key)?;
        let mut messages = Messages::new(AGGREGATOR);
        let hello = messages.post(&mut links, &Header::plain(Kind::Hello, 0), &[]);
        hello.map_err(|fault| broken(at, fault))?;
        let (epoll, ticker) = (epoll::create(epoll::CreateFlags::CLOEXEC), Ticker::new());
        let (epoll, ticker) = (epoll.map_err(system)?, ticker.map_err(system)?);
        epoll::add(&epoll, &ticker, EventData::new_u64(0), EventFlags::IN).map_err(system)?;
        let wake = links.wake_fd();
        epoll::add(&epoll, wake, EventData::new_u64(1), EventFlags::IN).map_err(system)?;
        Ok(Self {
            at,
            child,
            properties,
            state: State::Greeting,
            links: Some(links),
            messages,
            payload: Vec::new(),
            slots: Slots::new(properties.window),
            awaited: Awaited::default(),
            heard: Instant::now(),
            suspected: None,
            epoll,
            ticker,
        })
    }

    /// Leaves the group as one that has failed. The aggregator ends it, and tells the other
    /// children the reason if this link can still take it. Blocks as a drop of `Links` does.
    pub fn abandon(mut self, reason: &str) {
        let end = reason.floor_char_boundary(OFFLOAD_REASON_BYTES_MAX);
        self.leave(Kind::Refused, &reason.as_bytes()[..end]);
    }

    /// Sends a last message, if everything before has left, and closes the link.
    fn leave(&mut self, kind: Kind, payload: &[u8]) {
        let is_open = matches!(self.state, State::Open) && self.messages.is_idle();
        self.state = State::Failed(OffloadError::Closed);
        let Some(mut links) = self.links.take() else { return };
        let header = Header::plain(kind, u32::try_from(payload.len()).unwrap_or(0));
        if !is_open || !self.messages.send(&mut links, &header, payload).unwrap_or(false) {
            links.withdraw();
        }
    }

    /// Keeps the reason for the end of the group, and returns it.
    fn fail(&mut self, error: OffloadError) -> OffloadError {
        let again = error.again();
        self.links.iter_mut().for_each(Links::withdraw);
        self.state = State::Failed(error);
        again
    }

    /// Sends and receives what it can. Sets `moved` if anything did, also before an error.
    fn progress(&mut self, moved: &mut bool) -> Result<(), OffloadError> {
        let Some(links) = &mut self.links else { return Err(OffloadError::Closed) };
        *moved |= links.poll().map_err(|fault| broken(self.at, fault))?;
        for _ in 0..MESSAGES_MAX {
            if !self.receive()? {
                break;
            }
            *moved = true;
        }
        let Some(links) = &mut self.links else { return Err(OffloadError::Closed) };
        let was_idle = self.messages.is_idle();
        let is_idle = self.messages.flush(links).map_err(|fault| broken(self.at, fault))?;
        *moved |= is_idle && !was_idle;
        self.check_silence(*moved)
    }

    /// Receives up to the end of a message, and acts on it. Returns false if it is not whole.
    fn receive(&mut self) -> Result<bool, OffloadError> {
        let Some(links) = &mut self.links else { return Err(OffloadError::Closed) };
        let head = self.messages.header(links).map_err(|fault| broken(self.at, fault))?;
        let Some(head) = head else { return Ok(false) };
        let header = Header::decode(&head).map_err(|bad| match bad {
            BadHeader::Version { ours, theirs } => OffloadError::Version { ours, theirs },
            BadHeader::Unknown(_) => OffloadError::Protocol("a header of no known kind"),
        })?;
        check(&header, &self.state, &mut self.slots)?;
        let dst = match header.kind {
            Kind::Result => self.slots.arriving().1,
            _ => {
                self.payload.resize(header.bytes as usize, 0);
                &mut self.payload[..]
            }
        };
        let before = self.messages.arrived();
        let got = self.messages.payload(links, dst);
        let is_whole = got.map_err(|fault| broken(self.at, fault))?;
        // A greeting has one deadline, however its bytes arrive.
        if matches!(self.state, State::Open) && (is_whole || self.messages.arrived() > before) {
            self.hear();
        }
        if is_whole {
            self.act(&header)?;
        }
        Ok(is_whole)
    }

    fn act(&mut self, header: &Header) -> Result<(), OffloadError> {
        match header.kind {
            Kind::Welcome => {
                self.state = State::Open;
                self.hear();
            }
            Kind::Result => {
                self.slots.arrive();
                self.awaited = Awaited::default();
            }
            Kind::Beat => {
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

    fn hear(&mut self) {
        self.heard = Instant::now();
        self.suspected = None;
    }

    /// The time after which silence counts; `None` while the aggregator owes nothing.
    fn patience(&self) -> Option<Duration> {
        match self.state {
            State::Open => self.slots.is_waiting().then_some(SILENCE),
            State::Greeting => Some(HANDSHAKE),
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
        let Child { members, .. } = &self.child;
        let root = reduction.root.clamp(*members.start(), *members.end());
        self.slots.post(chunk.number, chunk.tag, reduction.output_bytes(chunk.count, root));
        let length = u32::try_from(bytes.len()).expect("a chunk within its limit");
        let is_barrier = reduction.collective == Collective::Barrier;
        let header = Header {
            chunk: chunk.number,
            tag: chunk.tag,
            data_type: reduction.data_type,
            form: if is_barrier { Wire::Element } else { reduction.form },
            op: reduction.op,
            root: reduction.root,
            ..Header::plain(kind, length)
        };
        let Some(links) = &mut self.links else { return Err(OffloadError::Closed) };
        match self.messages.post(links, &header, bytes) {
            Ok(()) => Ok(true),
            // The reason that the aggregator gave before it closed the link tells more.
            Err(fault) => {
                let told = self.progress(&mut false).err();
                Err(self.fail(told.unwrap_or_else(|| broken(self.at, fault))))
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

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn slots_mut(&mut self) -> &mut Slots {
        &mut self.slots
    }

    fn awaited(&self) -> Awaited {
        self.awaited
    }

    fn give_up(&mut self) {
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::Failed(OffloadError::Closed);
        }
        let Some(mut links) = self.links.take() else { return };
        links.withdraw();
        // A closed descriptor that a forked process holds too would stay in `epoll`.
        epoll::delete(&self.epoll, links.wake_fd()).ok();
        // The aggregator may be late. Without a thread this call closes the link.
        let thread = Builder::new().name("ringfold-net".into());
        thread.spawn(move || drop(links)).ok();
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn arm(&mut self) {
        self.links.iter_mut().for_each(Links::arm);
        let check = self.patience().map(|patience| match self.suspected {
            Some(at) => (self.heard + patience).max(at + BEAT),
            None => self.heard + patience - BEAT,
        });
        self.ticker.ring_at(check);
    }

    fn disarm(&mut self) {
        self.links.iter_mut().for_each(Links::disarm);
        self.ticker.stop();
    }
}

impl Drop for AggregatorGroup {
    /// Tells the aggregator that this is no failure, if everything before has left. Blocks until
    /// that has arrived, as a drop of `Links` does.
    fn drop(&mut self) {
        self.leave(Kind::Leave, &[]);
    }
}

/// Checks a header before memory is used for its payload.
fn check(header: &Header, state: &State, slots: &mut Slots) -> Result<(), OffloadError> {
    let bytes = header.bytes as usize;
    let is_sound = match (header.kind, state) {
        // An aggregator may refuse a child at any time.
        (Kind::Refused, _) => bytes <= OFFLOAD_REASON_BYTES_MAX,
        (Kind::Welcome, State::Greeting) => bytes == 0,
        (Kind::Beat, State::Open) => bytes == BEAT_BYTES,
        (Kind::Result, State::Open) if slots.is_waiting() => {
            let number = slots.arrived();
            let (tag, result) = slots.arriving();
            (header.chunk, header.tag, bytes) == (number, tag, result.len())
        }
        _ => false,
    };
    if is_sound { Ok(()) } else { Err(OffloadError::Protocol("a message out of place")) }
}

/// The error of a link that broke.
fn broken(at: Endpoints, fault: LinkFault) -> OffloadError {
    match fault {
        LinkFault::Closed | LinkFault::Died => OffloadError::Closed,
        LinkFault::Unproven => OffloadError::Unproven,
        LinkFault::Protocol(what) => OffloadError::Protocol(what),
        LinkFault::Unreachable(source) => {
            OffloadError::Unreachable { at: at.tcp.to_string(), source }
        }
        LinkFault::Io(error) => OffloadError::Io(error),
        other => OffloadError::Io(io::Error::other(other)),
    }
}

fn system(errno: Errno) -> OffloadError {
    OffloadError::Io(errno.into())
}

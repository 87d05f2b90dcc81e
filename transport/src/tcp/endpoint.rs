//! One rank's end of the mesh: links, strangers, and the events of both.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfold_types::limits::{HANDSHAKE_MS, LINK_BYTES_MIN};
use ringfold_types::{Lane, Rank};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;

use super::broken::Broken;
use super::greeting::{Greeting, Greetings, Outcome};
use super::incoming::Incoming;
use super::outgoing::{Dialer, Outgoing};
use super::proof::{Hello, JobKey, NONCE_BYTES};
use super::socket::accepted;
use super::ticker::Ticker;
use super::token::Token;
use super::{Liveness, strangers::Strangers};
use crate::contract::{Capabilities, Fragment, Link, LinkError, Transport};

/// Times that `poll` tries one link before it looks at all of them.
const HUNCHES_MAX: u32 = 16;

/// Events taken from the kernel at once.
const EVENTS: usize = 64;

/// A rank's connections to all others. See the module's head; made by `Listening::connect`.
#[derive(Debug)]
pub struct Tcp {
    me: Me,
    epoll: OwnedFd,
    listeners: Vec<OwnedFd>,
    greetings: Greetings,
    /// Connections may wait in the kernel because there was no place or no descriptor for them.
    backlog: bool,
    /// By peer: where it listens.
    addresses: Vec<Vec<SocketAddr>>,
    /// By `slot`.
    outgoing: Vec<Option<Box<Outgoing>>>,
    /// By `slot`.
    incoming: Vec<Option<Box<Incoming>>>,
    /// Incoming links for which the kernel may have bytes.
    fillable: Vec<usize>,
    /// Outgoing links that time moves.
    timed: Vec<usize>,
    /// Outgoing links that hold accepted bytes.
    unsent: usize,
    /// By peer: whether it closed a connection, and so will not open another.
    gone: Vec<bool>,
    /// What the caller found empty or full since the last `poll`.
    asked: Cell<Asked>,
    /// Times in a row that `poll` tried one link only.
    hunches: u32,
    ticker: Ticker,
    strangers: Strangers,
}

/// What the caller waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    Nothing,
    /// Bytes of the incoming link at this slot, and nothing else.
    One(usize),
    Several,
}

impl Asked {
    fn and(self, slot: usize) -> Self {
        match self {
            Self::Nothing => Self::One(slot),
            Self::One(same) if same == slot => self,
            _ => Self::Several,
        }
    }
}

/// What this rank is, and how it connects.
#[derive(Debug)]
pub(super) struct Me {
    pub(super) key: JobKey,
    pub(super) rank: Rank,
    pub(super) size: usize,
    pub(super) lanes: usize,
    pub(super) liveness: Liveness,
}

impl Tcp {
    pub(super) fn new(
        me: Me,
        listeners: Vec<OwnedFd>,
        addresses: Vec<Vec<SocketAddr>>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, listener) in listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(Token::Listener(index).encode());
            epoll::add(&epoll, listener, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        let ticker = Ticker::new()?;
        let data = epoll::EventData::new_u64(Token::Tick.encode());
        epoll::add(&epoll, &ticker, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        let links = me.size * me.lanes;
        Ok(Self {
            epoll,
            listeners,
            greetings: Greetings::default(),
            backlog: false,
            addresses,
            outgoing: (0..links).map(|_| None).collect(),
            incoming: (0..links).map(|_| None).collect(),
            fillable: Vec::new(),
            timed: Vec::new(),
            unsent: 0,
            gone: vec![false; me.size],
            asked: Cell::default(),
            hunches: 0,
            ticker,
            strangers: Strangers::default(),
            me,
        })
    }

    /// Where the link's ends are in the tables.
    fn slot(&self, link: Link) -> usize {
        assert!(link.lane.index() < self.me.lanes, "lane {} beyond the configured", link.lane);
        link.peer.index() * self.me.lanes + link.lane.index()
    }

    fn link(&self, slot: usize) -> Link {
        let lane = u8::try_from(slot % self.me.lanes).unwrap_or(0);
        Link { peer: Rank::at(slot / self.me.lanes), lane: Lane(lane) }
    }

    fn error(&self, link: Link, broken: Broken) -> LinkError {
        LinkError { link, transport: self.name(), fault: broken.fault() }
    }

    /// The outgoing link at `slot`, whose connection begins now if it is the first use.
    fn open(&mut self, slot: usize) -> &mut Outgoing {
        if self.outgoing[slot].is_none() {
            let Link { peer, lane } = self.link(slot);
            let hello = Hello { from: self.me.rank, to: peer, lane, nonce: [0; NONCE_BYTES] };
            let addresses = VecDeque::from(self.addresses[peer.index()].clone());
            self.outgoing[slot] = Some(Box::new(Outgoing::new(hello, addresses)));
            self.change(slot, |outgoing, dialer| outgoing.advance(dialer));
        }
        self.outgoing[slot].as_mut().expect("made above")
    }

    /// Lets the outgoing link at `slot` change, and keeps count of what follows from it.
    fn change<T>(
        &mut self,
        slot: usize,
        change: impl FnOnce(&mut Outgoing, Dialer<'_>) -> T,
    ) -> Option<T> {
        let outgoing = self.outgoing[slot].as_mut()?;
        let dialer = Dialer {
            key: &self.me.key,
            epoll: &self.epoll,
            token: Token::Outgoing(slot).encode(),
            liveness: self.me.liveness,
        };
        let was_unsent = outgoing.is_unsent();
        let was_sound = outgoing.broken().is_none();
        let result = change(outgoing, dialer);
        match (was_unsent, outgoing.is_unsent()) {
            (false, true) => self.unsent += 1,
            (true, false) => self.unsent -= 1,
            _ => {}
        }
        if outgoing.is_timed() && !self.timed.contains(&slot) {
            self.timed.push(slot);
            self.ticker.start();
        }
        if let Some(broken) = outgoing.broken().filter(|_| was_sound) {
            let Link { peer, lane } = self.link(slot);
            tracing::debug!(peer = peer.0, lane = lane.0, ?broken, "outgoing tcp link ended");
            self.gone[peer.index()] |= broken == Broken::Closed;
        }
        Some(result)
    }

    /// Where the caller waits for bytes of one link only, asking that socket costs least. Whether
    /// that was done, and if so whether anything came of it.
    fn try_hunch(&mut self) -> Option<bool> {
        let Asked::One(slot) = self.asked.take() else { return None };
        self.hunches += 1;
        if self.hunches >= HUNCHES_MAX {
            return None;
        }
        let incoming = self.incoming[slot].as_mut()?;
        incoming.notice(false);
        Some(incoming.fill())
    }

    /// Takes the events that have happened, and reads what the receiver wants to see.
    fn work(&mut self, patience: Option<&Timespec>) -> Result<bool, Errno> {
        self.asked.take();
        self.hunches = 0;
        let mut events = [MaybeUninit::uninit(); EVENTS];
        let events = match epoll::wait(&self.epoll, &mut events, patience) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => &mut [],
            Err(errno) => return Err(errno),
        };
        let mut moved = !events.is_empty();
        for event in events {
            self.heed(Token::decode(event.data.u64()), event.flags);
        }
        let mut index = 0;
        while let Some(slot) = self.fillable.get(index).copied() {
            let Some(incoming) = &mut self.incoming[slot] else { break };
            moved |= incoming.fill();
            if incoming.is_ready() {
                index += 1;
            } else {
                incoming.listed = false;
                self.fillable.swap_remove(index);
            }
        }
        Ok(moved)
    }

    /// Takes the events that have happened, without waiting for any.
    fn look(&mut self) -> Result<bool, LinkError> {
        let everyone = Link { peer: self.me.rank, lane: Lane(0) };
        self.work(Some(&Timespec::default())).map_err(|errno| self.error(everyone, errno.into()))
    }

    fn heed(&mut self, token: Token, flags: epoll::EventFlags) {
        use epoll::EventFlags as Flags;
        match token {
            Token::Incoming(slot) => {
                let ending = flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR);
                let Some(incoming) = &mut self.incoming[slot] else { return };
                incoming.notice(ending);
                if incoming.is_ready() && !incoming.listed {
                    incoming.listed = true;
                    self.fillable.push(slot);
                }
                let peer = slot / self.me.lanes;
                self.gone[peer] |= ending;
                if ending {
                    self.accept();
                }
            }
            Token::Outgoing(slot) => {
                self.change(slot, |outgoing, dialer| outgoing.notice(dialer, flags));
            }
            Token::Greeting(place) => self.greet(place),
            Token::Listener(_) => self.accept(),
            Token::Tick => self.tick(),
        }
    }

    /// Takes in the connections that wait, as far as there are places for them.
    fn accept(&mut self) {
        self.backlog = false;
        for index in 0..self.listeners.len() {
            loop {
                if self.greetings.is_full() {
                    self.backlog = true;
                    break;
                }
                match accepted(&self.listeners[index], self.me.liveness) {
                    Ok(socket) => self.receive(Greeting::new(socket)),
                    Err(Errno::AGAIN) => break,
                    // The connection ended while it waited; there may be others.
                    Err(Errno::CONNABORTED | Errno::CONNRESET | Errno::PROTO) => {}
                    Err(errno) => {
                        self.strangers.log(&format!("connections cannot be accepted: {errno}"));
                        self.backlog = true;
                        break;
                    }
                }
            }
        }
        if self.backlog || !self.greetings.is_empty() {
            self.ticker.start();
        }
    }

    fn receive(&mut self, greeting: Greeting) {
        let place = self.greetings.add(greeting);
        let Some(greeting) = self.greetings.at(place) else { return };
        let data = epoll::EventData::new_u64(Token::Greeting(place).encode());
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if epoll::add(&self.epoll, greeting.socket(), data, flags).is_err() {
            self.greetings.remove(place);
        }
    }

    /// Goes on with a connection that has not proven itself.
    fn greet(&mut self, place: usize) {
        let Some(greeting) = self.greetings.at(place) else { return };
        let (me, incoming) = (&self.me, &self.incoming);
        let expects = |hello: &Hello| {
            if hello.to != me.rank {
                return Err("it looks for another rank");
            }
            if hello.from.index() >= me.size || hello.lane.index() >= me.lanes {
                return Err("there is no such rank or lane");
            }
            match incoming[hello.from.index() * me.lanes + hello.lane.index()] {
                Some(_) => Err("that link is already connected"),
                None => Ok(()),
            }
        };
        match greeting.advance(&self.me.key, expects) {
            Outcome::Waiting => {}
            Outcome::Stranger(reason) => {
                self.greetings.remove(place);
                self.strangers.log(reason);
            }
            Outcome::Proven(hello) => {
                if let Some(greeting) = self.greetings.remove(place) {
                    self.admit(&hello, greeting.into_socket());
                }
            }
        }
    }

    /// Makes a proven connection the incoming side of its link.
    fn admit(&mut self, hello: &Hello, socket: OwnedFd) {
        let slot = self.slot(Link { peer: hello.from, lane: hello.lane });
        let data = epoll::EventData::new_u64(Token::Incoming(slot).encode());
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        // Two connections for one link may have been under way; the first to prove itself wins.
        if self.incoming[slot].is_some()
            || epoll::modify(&self.epoll, &socket, data, flags).is_err()
        {
            return;
        }
        let mut incoming = Box::new(Incoming::new(socket));
        incoming.listed = true;
        self.incoming[slot] = Some(incoming);
        self.fillable.push(slot);
    }

    /// Does what time demands.
    fn tick(&mut self) {
        let expired = self.greetings.expire();
        if expired > 0 {
            self.strangers.log("they did not prove themselves in time");
        }
        if self.backlog {
            self.accept();
        }
        for slot in std::mem::take(&mut self.timed) {
            self.change(slot, |outgoing, dialer| outgoing.advance(dialer));
        }
        if self.timed.is_empty() && self.greetings.is_empty() && !self.backlog {
            self.ticker.stop();
        } else {
            self.ticker.rearm();
        }
    }

    /// Whether `peer` may still open a connection that it has not.
    fn is_lost(&self, peer: Rank) -> bool {
        self.gone[peer.index()] && self.greetings.is_empty() && !self.backlog
    }
}

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            inline_bytes: LINK_BYTES_MIN,
            window_bytes: LINK_BYTES_MIN,
            shares_memory: false,
        }
    }

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let slot = self.slot(link);
        self.open(slot);
        match self.change(slot, |outgoing, _| outgoing.send(tag, bytes)) {
            Some(Err(broken)) => Err(self.error(link, broken)),
            Some(Ok(accepted)) => {
                if accepted < bytes.len() {
                    self.asked.set(Asked::Several);
                }
                Ok(accepted)
            }
            None => Ok(0),
        }
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        let slot = self.slot(link);
        let result = match &self.incoming[slot] {
            Some(incoming) => incoming.readable(),
            None if self.is_lost(link.peer) => Err(Broken::Closed),
            None => Ok(None),
        };
        if matches!(result, Ok(None)) {
            self.asked.set(self.asked.get().and(slot));
        }
        result.map_err(|broken| self.error(link, broken))
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        let slot = self.slot(link);
        match &mut self.incoming[slot] {
            Some(incoming) => incoming.consume(bytes),
            None => assert_eq!(bytes, 0, "consumed more than was readable"),
        }
    }

    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<(u32, usize)>, LinkError> {
        let slot = self.slot(link);
        let result = match self.incoming[slot].as_mut().map(|it| it.recv(tag, dst)) {
            Some(result) => result,
            None if self.is_lost(link.peer) => Err(Broken::Closed),
            None => Ok(None),
        };
        if matches!(result, Ok(None)) {
            self.asked.set(self.asked.get().and(slot));
        }
        result.map_err(|broken| self.error(link, broken))
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        match self.try_hunch() {
            Some(moved) => Ok(moved),
            None => self.look(),
        }
    }

    fn is_flushed(&self) -> bool {
        self.unsent == 0
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The kernel rings without being asked. What it has told so far is taken in here, so that the
    /// caller's last try sees it.
    fn arm(&mut self) {
        self.look().ok();
    }

    fn disarm(&mut self) {
        self.look().ok();
    }
}

impl Drop for Tcp {
    /// Brings what was accepted on its way, for at most `limits::HANDSHAKE_MS`: a link's first bytes
    /// leave only when the peer has answered.
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_millis(HANDSHAKE_MS);
        while !self.is_flushed() && !std::thread::panicking() {
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = Timespec::try_from(left).unwrap_or_default();
            if left.is_zero() || self.work(Some(&patience)).is_err() {
                tracing::warn!(links = self.unsent, "accepted bytes did not reach their peers");
                return;
            }
        }
    }
}

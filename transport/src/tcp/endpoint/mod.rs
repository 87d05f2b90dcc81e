//! One rank's TCP endpoint: its links, its handshakes, and the events of both.

mod arrivals;
mod slow;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfold_types::limits::HANDSHAKE_MS;
use ringfold_types::{Lane, Rank, Way};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::contract::{Fragment, Link, LinkError, Received, Transport};
use crate::proof::JobKey;
use crate::refusals::Refusals;
use crate::sys::sent;
use crate::tcp::broken::Broken;
use crate::tcp::connection::Connection;
use crate::tcp::dial::Dialer;
use crate::tcp::greeting::Greetings;
use crate::tcp::rates::Rates;
use crate::tcp::route::PeerRoutes;
use crate::tcp::socket::Liveness;
use crate::tcp::ticker::Ticker;
use crate::tcp::token::Token;
use crate::tcp::waker::Waker;

/// Times in a row that `poll` may check only one link.
const SINGLE_CHECKS_MAX: u32 = 16;

/// Pause between checks for undelivered bytes while the endpoint is dropped.
const PAUSE: Duration = Duration::from_micros(50);

/// Events fetched from the kernel at once.
const EVENTS: usize = 64;

/// A rank's connections to all other ranks. `Listening::connect` makes it.
///
/// Its methods panic if a link names this rank itself, which has no link, or a lane beyond
/// `Config::lanes`. Dropping it waits up to `limits::HANDSHAKE_MS` for accepted bytes to arrive.
#[derive(Debug)]
pub struct Tcp {
    me: Me,
    epoll: OwnedFd,
    listeners: Vec<OwnedFd>,
    greetings: Greetings,
    /// Whether connections may wait in the kernel for a free handshake or descriptor.
    backlog: bool,
    /// By peer: the routes to it.
    routes: Vec<PeerRoutes>,
    /// By link index (`slot`).
    links: Vec<Option<Box<Connection>>>,
    /// Links for which the kernel may have bytes.
    fillable: Vec<usize>,
    /// Links that time advances.
    timed: Vec<usize>,
    /// Links that hold accepted bytes.
    unsent: usize,
    /// By peer: whether it has closed a connection, and so will not open another.
    gone: Vec<bool>,
    /// The links on which the caller found nothing to read or no room since the last `poll`.
    asked: Cell<Asked>,
    /// Times in a row that `poll` has checked one link only.
    single_checks: u32,
    /// Keeps the descriptor readable if anything has moved since `arm`.
    waker: Waker,
    /// Whether the caller is between `arm` and `disarm`.
    parks: bool,
    /// Whether the caller has called `withdraw`, so unsent bytes no longer matter.
    has_given_up: bool,
    ticker: Ticker,
    refusals: Refusals,
    /// Peers on whose links something happened, once `watch` was called.
    stirred: Option<Vec<Rank>>,
    /// By peer: the rates of the connections to it.
    rates: Vec<Rates>,
    /// The rails with a connection that was named because it is slow.
    slow_rails: BTreeSet<Option<u8>>,
}

/// The links that the caller waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    Nothing,
    /// Bytes on the link at this index, and nothing else.
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

/// This rank, and the parameters of its connections.
#[derive(Debug)]
pub(in crate::tcp) struct Me {
    pub(in crate::tcp) key: JobKey,
    pub(in crate::tcp) rank: Rank,
    pub(in crate::tcp) size: usize,
    pub(in crate::tcp) lanes: usize,
    /// The network interface of all connections; any if `None`.
    pub(in crate::tcp) interface: Option<String>,
    pub(in crate::tcp) liveness: Liveness,
}

impl Tcp {
    pub(in crate::tcp) fn new(
        me: Me,
        listeners: Vec<OwnedFd>,
        routes: Vec<PeerRoutes>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, listener) in listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(Token::Listener(index).encode());
            epoll::add(&epoll, listener, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        let (ticker, waker) = (Ticker::new()?, Waker::new()?);
        let data = epoll::EventData::new_u64(Token::Tick.encode());
        epoll::add(&epoll, &ticker, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        let data = epoll::EventData::new_u64(Token::Waker.encode());
        epoll::add(&epoll, &waker, data, epoll::EventFlags::IN)?;
        let links = me.size * me.lanes;
        Ok(Self {
            epoll,
            listeners,
            greetings: Greetings::default(),
            backlog: false,
            routes,
            links: (0..links).map(|_| None).collect(),
            fillable: Vec::new(),
            timed: Vec::new(),
            unsent: 0,
            gone: vec![false; me.size],
            asked: Cell::default(),
            single_checks: 0,
            waker,
            parks: false,
            has_given_up: false,
            ticker,
            refusals: Refusals::default(),
            stirred: None,
            rates: (0..me.size).map(|_| Rates::default()).collect(),
            slow_rails: BTreeSet::new(),
            me,
        })
    }

    /// The index of the link in the tables.
    fn slot(&self, link: Link) -> usize {
        assert!(link.lane.index() < self.me.lanes, "lane {} is not configured", link.lane);
        assert!(link.peer != self.me.rank, "a rank has no link to itself");
        link.peer.index() * self.me.lanes + link.lane.index()
    }

    fn link(&self, slot: usize) -> Link {
        let lane = u8::try_from(slot % self.me.lanes).unwrap_or(0);
        Link { peer: Rank::at(slot / self.me.lanes), lane: Lane(lane) }
    }

    fn error(&self, link: Link, broken: Broken) -> LinkError {
        LinkError { link, transport: self.name(), fault: broken.fault() }
    }

    /// Begins to open the link at `slot`, if it does not exist.
    fn open(&mut self, slot: usize) {
        if self.links[slot].is_none() {
            let link = self.link(slot);
            let routes = self.routes[link.peer.index()].of(link.lane);
            let connection = Connection::dialing(self.me.rank, link, routes);
            self.links[slot] = Some(Box::new(connection));
            self.change(slot, Connection::advance);
        }
    }

    /// Applies `change` to the link at `slot`, and updates the counters and lists that depend on
    /// it.
    fn change<T>(
        &mut self,
        slot: usize,
        change: impl FnOnce(&mut Connection, Dialer<'_>) -> T,
    ) -> Option<T> {
        let connection = self.links[slot].as_mut()?;
        let dialer = Dialer {
            key: &self.me.key,
            epoll: &self.epoll,
            token: Token::Link(slot).encode(),
            interface: self.me.interface.as_deref(),
            liveness: self.me.liveness,
        };
        let was_unsent = connection.is_unsent();
        let was_intact = connection.broken().is_none();
        let result = change(connection, dialer);
        match (was_unsent, connection.is_unsent()) {
            (false, true) => self.unsent += 1,
            (true, false) => self.unsent -= 1,
            _ => {}
        }
        if connection.is_timed() && !self.timed.contains(&slot) {
            self.timed.push(slot);
            self.ticker.start();
        }
        if let Some((reader, _)) = connection.reader()
            && reader.is_ready()
            && !reader.listed
        {
            reader.listed = true;
            self.fillable.push(slot);
        }
        if let Some(broken) = connection.broken().filter(|_| was_intact) {
            let Link { peer, lane } = self.link(slot);
            tracing::debug!(peer = peer.0, lane = lane.0, ?broken, "tcp link ended");
            if broken == Broken::Closed {
                self.gone[peer.index()] = true;
                // Connections that the peer opened before it ended must be accepted before it
                // counts as lost.
                self.accept();
            }
        }
        Some(result)
    }

    /// Sends `bytes` by a function of their connection, which it opens if necessary.
    fn send_by(
        &mut self,
        link: Link,
        (tag, bytes): (u32, &[u8]),
        send: impl FnOnce(&mut Connection) -> Result<usize, Broken>,
    ) -> Result<usize, LinkError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let slot = self.slot(link);
        self.open(slot);
        self.note_rate(link, tag, bytes.len());
        match self.change(slot, |connection, _| send(connection)) {
            Some(Err(broken)) => Err(self.error(link, broken)),
            Some(Ok(accepted)) => {
                let rails = self.routes[link.peer.index()].rails.len();
                sent(Way::by_tcp(link.lane.index(), rails), accepted);
                if accepted < bytes.len() {
                    self.asked.set(Asked::Several);
                }
                Ok(accepted)
            }
            None => Ok(0),
        }
    }

    /// Notes that the caller found nothing at `slot`.
    fn miss(&self, slot: usize) {
        self.asked.set(self.asked.get().and(slot));
        if self.links[slot].as_ref().is_some_and(|it| it.is_ready()) {
            // The next `poll` reads more, so the caller must not park before it.
            self.waker.wake();
        }
    }

    /// Checks only the socket of one link, if the caller waits for that link alone. Returns `None`
    /// if it did not, and otherwise whether anything arrived.
    fn check_one(&mut self) -> Option<bool> {
        let Asked::One(slot) = self.asked.take() else { return None };
        if self.stirred.is_some() {
            return None;
        }
        self.single_checks += 1;
        if self.single_checks >= SINGLE_CHECKS_MAX {
            return None;
        }
        self.change(slot, |connection, _| {
            connection.reader()?.0.notice(false);
            Some(connection.fill(false))
        })?
    }

    /// Handles all pending events, and reads bytes that the receiver reads in place.
    fn work(&mut self, timeout: Option<&Timespec>) -> Result<bool, Errno> {
        self.asked.take();
        self.single_checks = 0;
        let mut moved = self.take_events(timeout)?;
        let mut index = 0;
        while let Some(slot) = self.fillable.get(index).copied() {
            // A caller that is about to park may read the bytes in another way than before.
            let all = self.parks;
            moved |= self.change(slot, |connection, _| connection.fill(all)) == Some(true);
            match self.links[slot].as_mut().and_then(|it| it.reader()) {
                Some((reader, _)) if reader.is_ready() => index += 1,
                reader => {
                    if let Some((reader, _)) = reader {
                        reader.listed = false;
                    }
                    self.fillable.swap_remove(index);
                }
            }
        }
        if moved {
            self.waker.wake();
        }
        Ok(moved)
    }

    fn take_events(&mut self, timeout: Option<&Timespec>) -> Result<bool, Errno> {
        let mut moved = false;
        let mut timeout = timeout.copied();
        loop {
            let mut events = [MaybeUninit::uninit(); EVENTS];
            let events = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
                Ok((events, _)) => events,
                Err(Errno::INTR) => &mut [],
                Err(errno) => return Err(errno),
            };
            for event in &*events {
                let token = Token::decode(event.data.u64());
                moved |= token != Token::Waker;
                self.dispatch(token, event.flags);
            }
            if events.len() < EVENTS {
                return Ok(moved);
            }
            timeout = Some(Timespec::default());
        }
    }

    /// Handles all pending events without blocking.
    fn handle_events(&mut self) -> Result<bool, LinkError> {
        let everyone = Link { peer: self.me.rank, lane: Lane(0) };
        self.work(Some(&Timespec::default())).map_err(|errno| self.error(everyone, errno.into()))
    }

    fn dispatch(&mut self, token: Token, flags: epoll::EventFlags) {
        match token {
            Token::Link(slot) => {
                self.change(slot, |connection, dialer| connection.notice(dialer, flags));
                self.stir(slot);
            }
            Token::Greeting(place) => self.greet(place),
            Token::Listener(_) => self.accept(),
            Token::Tick => self.tick(),
            Token::Waker => {}
        }
    }

    /// Starts the record of peers that `stirred` returns.
    pub(crate) fn watch(&mut self) {
        self.stirred = Some(Vec::new());
    }

    /// Returns the peers on whose links something happened since the last call. The caller should
    /// receive from them until nothing is left.
    pub(crate) fn stirred(&mut self) -> Vec<Rank> {
        self.stirred.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether this rank has routes to `peer`.
    pub(crate) fn knows(&self, peer: Rank) -> bool {
        !self.routes[peer.index()].is_empty()
    }

    /// Whether `withdraw` was called.
    pub(crate) const fn has_given_up(&self) -> bool {
        self.has_given_up
    }

    fn stir(&mut self, slot: usize) {
        let peer = self.link(slot).peer;
        if let Some(stirred) = self.stirred.as_mut().filter(|stirred| !stirred.contains(&peer)) {
            stirred.push(peer);
        }
    }

    /// Handles deadlines.
    fn tick(&mut self) {
        for greeting in self.greetings.expire() {
            self.log_refusal(&greeting, "it did not authenticate itself in time");
        }
        if self.backlog {
            self.accept();
        }
        for slot in std::mem::take(&mut self.timed) {
            self.change(slot, Connection::advance);
            self.stir(slot);
        }
        if self.timed.is_empty() && self.greetings.is_empty() && !self.backlog {
            self.ticker.stop();
        } else {
            self.ticker.rearm();
        }
    }

    /// Whether `peer` cannot open a connection any more.
    fn is_lost(&self, peer: Rank) -> bool {
        self.gone[peer.index()] && self.greetings.is_empty() && !self.backlog
    }
}

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send_by(link, (tag, bytes), |connection| connection.send(tag, bytes))
    }

    /// Holds the bytes until the next `send`, which passes both to the kernel at once.
    fn send_ahead(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send_by(link, (tag, bytes), |connection| connection.send_ahead(tag, bytes))
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        let slot = self.slot(link);
        let result = match &self.links[slot] {
            Some(connection) => connection.readable(),
            None if self.is_lost(link.peer) => Err(Broken::Closed),
            None => Ok(None),
        };
        if matches!(result, Ok(None)) {
            self.miss(slot);
        }
        result.map_err(|broken| self.error(link, broken))
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        let slot = self.slot(link);
        match &mut self.links[slot] {
            Some(connection) => connection.consume(bytes),
            None => assert_eq!(bytes, 0, "consumed more than was readable"),
        }
    }

    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, LinkError> {
        let slot = self.slot(link);
        let result = match self.change(slot, |connection, _| connection.recv(tag, dst)) {
            Some(result) => result,
            None if self.is_lost(link.peer) => Err(Broken::Closed),
            None => Ok(None),
        };
        if matches!(result, Ok(None)) {
            self.miss(slot);
        }
        result.map_err(|broken| self.error(link, broken))
    }

    fn withdraw(&mut self) {
        self.has_given_up = true;
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        match self.check_one() {
            Some(moved) if !self.parks => Ok(moved),
            _ => self.handle_events(),
        }
    }

    fn is_flushed(&self) -> bool {
        self.unsent == 0
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Handles pending events, which the caller's last try then sees. No other call is needed: the
    /// kernel makes the descriptor readable by itself.
    fn arm(&mut self) {
        self.parks = true;
        self.handle_events().ok();
        self.waker.arm();
    }

    fn disarm(&mut self) {
        self.parks = false;
        self.waker.disarm();
        self.handle_events().ok();
    }
}

impl Drop for Tcp {
    /// Delivers accepted bytes to the peers' kernels, for at most `limits::HANDSHAKE_MS`. The first
    /// bytes of a link leave only after the peer's answer, and others only when a slow peer has
    /// made room. Does not wait after `withdraw`.
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_millis(HANDSHAKE_MS);
        while !self.is_flushed() && !self.has_given_up && !std::thread::panicking() {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or_default();
            if left.is_zero() || self.work(Some(&timeout)).is_err() {
                tracing::warn!(links = self.unsent, "accepted bytes did not reach their peers");
                break;
            }
        }
        let mut leaving = std::mem::take(&mut self.links);
        loop {
            leaving.retain(|link| link.as_ref().is_some_and(|connection| !connection.hang_up()));
            let is_late = Instant::now() >= deadline || std::thread::panicking();
            if leaving.is_empty() || self.has_given_up || is_late {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        if !leaving.is_empty() && !self.has_given_up {
            tracing::warn!(links = leaving.len(), "sent bytes may not have reached their peers");
        }
    }
}

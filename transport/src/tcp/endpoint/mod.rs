//! One rank's end of the mesh: links, strangers, and the events of both.

mod arrivals;

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfold_types::limits::HANDSHAKE_MS;
use ringfold_types::{Lane, Rank};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::contract::{Fragment, Link, LinkError, Received, Transport};
use crate::proof::JobKey;
use crate::tcp::bell::Bell;
use crate::tcp::broken::Broken;
use crate::tcp::connection::Connection;
use crate::tcp::dial::Dialer;
use crate::tcp::greeting::Greetings;
use crate::tcp::route::Ways;
use crate::tcp::socket::Liveness;
use crate::tcp::strangers::Strangers;
use crate::tcp::ticker::Ticker;
use crate::tcp::token::Token;

/// Times that `poll` tries one link before it looks at all of them.
const HUNCHES_MAX: u32 = 16;

/// Pause between looks at what is on its way, while leaving.
const PAUSE: Duration = Duration::from_micros(50);

/// Events taken from the kernel at once.
const EVENTS: usize = 64;

/// A rank's connections to all others. See the module's head; made by `Listening::connect`.
///
/// Its methods panic if a link names this rank itself, which has no link, or a lane beyond
/// `Config::lanes`. Dropping it waits up to `limits::HANDSHAKE_MS` for accepted bytes to arrive.
#[derive(Debug)]
pub struct Tcp {
    me: Me,
    epoll: OwnedFd,
    listeners: Vec<OwnedFd>,
    greetings: Greetings,
    /// Connections may wait in the kernel because there was no place or no descriptor for them.
    backlog: bool,
    /// By peer: the ways to it.
    routes: Vec<Ways>,
    /// By `slot`.
    links: Vec<Option<Box<Connection>>>,
    /// Links for which the kernel may have bytes.
    fillable: Vec<usize>,
    /// Links that time moves.
    timed: Vec<usize>,
    /// Links that hold accepted bytes.
    unsent: usize,
    /// By peer: whether it closed a connection, and so will not open another.
    gone: Vec<bool>,
    /// What the caller found empty or full since the last `poll`.
    asked: Cell<Asked>,
    /// Times in a row that `poll` tried one link only.
    hunches: u32,
    /// Rings as long as something moved since `arm`, even if a `poll` took note of it.
    bell: Bell,
    /// Between `arm` and `disarm`.
    parks: bool,
    /// Nobody needs what is on its way.
    has_given_up: bool,
    ticker: Ticker,
    strangers: Strangers,
    /// Peers on whose links something happened, for whoever takes them.
    stirred: Option<Vec<Rank>>,
}

/// What the caller waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    Nothing,
    /// Bytes of the link at this slot, and nothing else.
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
pub(in crate::tcp) struct Me {
    pub(in crate::tcp) key: JobKey,
    pub(in crate::tcp) rank: Rank,
    pub(in crate::tcp) size: usize,
    pub(in crate::tcp) lanes: usize,
    pub(in crate::tcp) liveness: Liveness,
}

impl Tcp {
    pub(in crate::tcp) fn new(
        me: Me,
        listeners: Vec<OwnedFd>,
        routes: Vec<Ways>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, listener) in listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(Token::Listener(index).encode());
            epoll::add(&epoll, listener, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        let (ticker, bell) = (Ticker::new()?, Bell::new()?);
        let data = epoll::EventData::new_u64(Token::Tick.encode());
        epoll::add(&epoll, &ticker, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        let data = epoll::EventData::new_u64(Token::Bell.encode());
        epoll::add(&epoll, &bell, data, epoll::EventFlags::IN)?;
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
            hunches: 0,
            bell,
            parks: false,
            has_given_up: false,
            ticker,
            strangers: Strangers::default(),
            stirred: None,
            me,
        })
    }

    /// Where the link is in the tables.
    fn slot(&self, link: Link) -> usize {
        assert!(link.lane.index() < self.me.lanes, "lane {} beyond the configured", link.lane);
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

    /// Begins to open the link at `slot`, if there is none yet.
    fn open(&mut self, slot: usize) {
        if self.links[slot].is_none() {
            let link = self.link(slot);
            let routes = self.routes[link.peer.index()].of(link.lane);
            let connection = Connection::dialing(self.me.rank, link, routes);
            self.links[slot] = Some(Box::new(connection));
            self.change(slot, Connection::advance);
        }
    }

    /// Lets the link at `slot` change, and keeps count of what follows from it.
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
            liveness: self.me.liveness,
        };
        let was_unsent = connection.is_unsent();
        let was_sound = connection.broken().is_none();
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
        if let Some(broken) = connection.broken().filter(|_| was_sound) {
            let Link { peer, lane } = self.link(slot);
            tracing::debug!(peer = peer.0, lane = lane.0, ?broken, "tcp link ended");
            if broken == Broken::Closed {
                self.gone[peer.index()] = true;
                // What the peer had opened before it ended must be seen before it counts as lost.
                self.accept();
            }
        }
        Some(result)
    }

    /// Notes that the caller found nothing at `slot`.
    fn miss(&self, slot: usize) {
        self.asked.set(self.asked.get().and(slot));
        if self.links[slot].as_ref().is_some_and(|it| it.is_ready()) {
            // The next `poll` will read more; nobody should sleep until then.
            self.bell.ring();
        }
    }

    /// Where the caller waits for bytes of one link only, asking that socket costs least. Whether
    /// that was done, and if so whether anything came of it.
    fn try_hunch(&mut self) -> Option<bool> {
        let Asked::One(slot) = self.asked.take() else { return None };
        if self.stirred.is_some() {
            return None;
        }
        self.hunches += 1;
        if self.hunches >= HUNCHES_MAX {
            return None;
        }
        self.change(slot, |connection, _| {
            connection.reader()?.0.notice(false);
            Some(connection.fill(false))
        })?
    }

    /// Takes the events that have happened, and reads what the receiver wants to see.
    fn work(&mut self, patience: Option<&Timespec>) -> Result<bool, Errno> {
        self.asked.take();
        self.hunches = 0;
        let mut moved = self.take_events(patience)?;
        let mut index = 0;
        while let Some(slot) = self.fillable.get(index).copied() {
            // A caller about to park may ask for the bytes in another way than it did before.
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
            self.bell.ring();
        }
        Ok(moved)
    }

    fn take_events(&mut self, patience: Option<&Timespec>) -> Result<bool, Errno> {
        let mut moved = false;
        let mut patience = patience.copied();
        loop {
            let mut events = [MaybeUninit::uninit(); EVENTS];
            let events = match epoll::wait(&self.epoll, &mut events, patience.as_ref()) {
                Ok((events, _)) => events,
                Err(Errno::INTR) => &mut [],
                Err(errno) => return Err(errno),
            };
            for event in &*events {
                let token = Token::decode(event.data.u64());
                moved |= token != Token::Bell;
                self.heed(token, event.flags);
            }
            if events.len() < EVENTS {
                return Ok(moved);
            }
            patience = Some(Timespec::default());
        }
    }

    /// Takes the events that have happened, without waiting for any.
    fn look(&mut self) -> Result<bool, LinkError> {
        let everyone = Link { peer: self.me.rank, lane: Lane(0) };
        self.work(Some(&Timespec::default())).map_err(|errno| self.error(everyone, errno.into()))
    }

    fn heed(&mut self, token: Token, flags: epoll::EventFlags) {
        match token {
            Token::Link(slot) => {
                self.change(slot, |connection, dialer| connection.notice(dialer, flags));
                self.stir(slot);
            }
            Token::Greeting(place) => self.greet(place),
            Token::Listener(_) => self.accept(),
            Token::Tick => self.tick(),
            Token::Bell => {}
        }
    }

    /// From now on `stirred` says which peers to look after.
    pub(crate) fn watch(&mut self) {
        self.stirred = Some(Vec::new());
    }

    /// The peers on whose links something happened since the last call: what they say should be
    /// received until there is no more.
    pub(crate) fn stirred(&mut self) -> Vec<Rank> {
        self.stirred.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether `peer` is one that this rank has links with.
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
            self.change(slot, Connection::advance);
            self.stir(slot);
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

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let slot = self.slot(link);
        self.open(slot);
        match self.change(slot, |connection, _| connection.send(tag, bytes)) {
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
        match self.try_hunch() {
            Some(moved) if !self.parks => Ok(moved),
            _ => self.look(),
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
        self.parks = true;
        self.look().ok();
        self.bell.arm();
    }

    fn disarm(&mut self) {
        self.parks = false;
        self.bell.silence();
        self.look().ok();
    }
}

impl Drop for Tcp {
    /// Brings what was accepted to the peers' kernels, for at most `limits::HANDSHAKE_MS`: a link's
    /// first bytes leave only when the peer has answered, and others when a slow peer has made room
    /// for them. Nobody waits who has given up.
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_millis(HANDSHAKE_MS);
        while !self.is_flushed() && !self.has_given_up && !std::thread::panicking() {
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = Timespec::try_from(left).unwrap_or_default();
            if left.is_zero() || self.work(Some(&patience)).is_err() {
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

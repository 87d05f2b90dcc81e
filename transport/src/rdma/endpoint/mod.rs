//! All peers of a rank, and waiting for any of them.

mod connections;
mod contact;
mod doorbells;
mod events;
mod leaving;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use ringfold_types::limits::{LANES_MAX, RDMA_IDLE_BYTES};
use ringfold_types::{Lane, Rank};
use rustix::event::epoll::{self, EventData, EventFlags};

use self::contact::Contact;
use super::Settings;
use super::budget::Budget;
use super::outages::{Outages, log};
use super::peer::{Fault, Own, Peer};
use super::rail::{Rail, Rails};
use super::registry::Registry;
use super::sys::{Completion, Pages, Placement};
use super::talk::Between;
use crate::contract::{Fragment, Link, LinkError, Received, RegisteredMemory, Transport};
use crate::proof::JobKey;
use crate::sys::Bell;
use crate::tcp::Tcp;
use crate::tcp::ticker::Ticker;

const NAME: &str = "rdma";
/// Every so many polls the connections are looked at, which is a system call,
const POLLS_PER_LOOK: u32 = 64;
/// and every so many looks the devices' own events.
const LOOKS_PER_EVENTS: u32 = 64;
/// More completions than come together as a rule: calls that repeat allocate nothing.
const COMPLETIONS: usize = 1024;

/// What an endpoint must know.
#[derive(Debug)]
pub struct Config {
    /// The secret that the ranks of the job share.
    pub key: [u8; 32],
    /// This rank.
    pub rank: Rank,
    /// Parallel streams to each peer, 1 to `limits::LANES_MAX`; all ranks say the same, and
    /// the TCP endpoint was made with as many.
    pub lanes: usize,
    /// Timeouts, traffic classes and such.
    pub settings: Settings,
    /// By rank: whether it may have a rail in common with this one. The same for both of a pair.
    pub reaches: Vec<bool>,
    /// Whether data may go by TCP where no path is left, which must be the same for both too.
    pub may_use_tcp: bool,
    /// Lets peers write long messages straight into `Pages`; without it `recv` copies.
    pub placement: Option<Placement>,
}

/// A rank's links over RDMA, and over TCP to those that have no rail in common with it, or none
/// that works any more.
///
/// Its methods panic if a link names this rank itself, or a lane beyond `Config::lanes`. Dropping
/// it waits up to `limits::HANDSHAKE_MS` for accepted bytes to arrive, as then does TCP.
#[derive(Debug)]
pub struct Rdma {
    // First: peers hear at once that this rank is gone, be it that devices take their time.
    tcp: Tcp,
    // Before the rails, whose queues they use.
    contacts: Vec<Option<Box<Contact>>>,
    rails: Rails,
    key: JobKey,
    budget: Budget,
    registry: Registry,
    outages: Outages,
    config: Config,
    /// Ranks with a contact.
    known: Vec<usize>,
    /// How many of them have not said all, or expect an answer.
    unsettled: usize,
    /// Some contact holds bytes back, or owes credit.
    is_busy: bool,
    /// How many peers send data by TCP, those with a contact included.
    pub(super) by_tcp: usize,
    /// Something may have happened on a connection.
    is_stirred: bool,
    /// Some rail is iWARP: connections are made there, and peers watched for silence.
    has_iwarp: bool,
    /// A peer that is alive, but to which bytes were lost that may have been accepted: nobody may
    /// ever use the link again, and yet all must hear of it.
    lost: Option<Rank>,
    /// Peers for whom work was gathered that devices do not have yet.
    unrung: Vec<usize>,
    polls: u32,
    looks: u32,
    completions: Vec<Completion>,
    /// Rings if something moved since `arm` of which a `poll` took note, unless a device rings
    /// for it anyway.
    bell: Bell,
    is_rung: bool,
    is_armed: bool,
    /// Something has moved since then.
    has_moved: bool,
    has_armed_tcp: bool,
    /// When some peer must be looked after though nothing happens, and what wakes who is parked.
    alarm: Option<Instant>,
    ticker: Ticker,
    wake: OwnedFd,
}

impl Rdma {
    /// Uses `rails`, and `tcp` to set up what needs to be.
    ///
    /// # Errors
    /// The system has no descriptors left.
    ///
    /// # Panics
    /// If the lanes are beyond their limit.
    pub fn new(rails: Rails, mut tcp: Tcp, config: Config) -> io::Result<Self> {
        assert!((1..=LANES_MAX).contains(&config.lanes), "{} lanes", config.lanes);
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Bell::new()?;
        let data = EventData::new_u64(0);
        epoll::add(&wake, &bell, data, EventFlags::IN)?;
        epoll::add(&wake, tcp.wake_fd(), data, EventFlags::IN)?;
        for rail in &rails.0 {
            epoll::add(&wake, rail.channel.fd(), data, EventFlags::IN)?;
            epoll::add(&wake, rail.context.events(), data, EventFlags::IN)?;
            if let Some(connector) = &rail.connector {
                epoll::add(&wake, connector.fd(), data, EventFlags::IN)?;
            }
        }
        let ticker = Ticker::new()?;
        epoll::add(&wake, &ticker, data, EventFlags::IN)?;
        tcp.watch();
        // Those that this rank reaches in memory, and itself, are none of ours.
        let peers = (0..config.reaches.len()).map(Rank::at).filter(|peer| *peer != config.rank);
        let by_tcp = peers.filter(|peer| tcp.knows(*peer) && !config.reaches[peer.index()]).count();
        Ok(Self {
            contacts: config.reaches.iter().map(|_| None).collect(),
            has_iwarp: rails.0.iter().any(Rail::is_iwarp),
            rails,
            tcp,
            key: JobKey::new(config.key),
            budget: Budget::new(&config.settings),
            registry: Registry::new(config.placement),
            outages: Outages::default(),
            by_tcp,
            config,
            known: Vec::new(),
            unsettled: 0,
            is_busy: false,
            is_stirred: false,
            lost: None,
            unrung: Vec::new(),
            polls: 0,
            looks: 0,
            completions: Vec::with_capacity(COMPLETIONS),
            bell,
            is_rung: false,
            is_armed: false,
            has_moved: false,
            has_armed_tcp: false,
            alarm: None,
            ticker,
            wake,
        })
    }

    fn error(link: Link, fault: &Fault) -> LinkError {
        LinkError { link, transport: NAME, fault: fault.told() }
    }

    /// Whether the peer has no rail in common with us, so that all goes by TCP.
    fn is_by_tcp(&self, peer: Rank) -> bool {
        !self.config.reaches[peer.index()]
    }

    /// Lets a contact change, and what it has to say be said.
    fn change<T>(&mut self, rank: Rank, change: impl FnOnce(&mut Peer, &mut Own<'_>) -> T) -> T {
        let index = rank.index();
        let Config { rank: own_rank, lanes, settings, may_use_tcp, .. } = &self.config;
        let known = &mut self.known;
        let contact = self.contacts[index].get_or_insert_with(|| {
            known.push(index);
            Box::new(Contact::new(rank, *lanes, *may_use_tcp))
        });
        let Contact { peer, talk, .. } = contact.as_mut();
        let (rails, budget, registry) = (&mut self.rails, &mut self.budget, &mut self.registry);
        let mut own = Own { rank: *own_rank, lanes: *lanes, settings, rails, budget, registry };
        let result = change(peer, &mut own);
        peer.leave_down(own.rails);
        peer.tell(&own);
        for news in peer.take_news() {
            let name = |rail: usize| self.rails.0[rail].name();
            log(self.outages.line(rank, news, name, Instant::now()));
        }
        let between = Between { key: &self.key, own: *own_rank, peer: rank };
        talk.speak(&mut self.tcp, peer, between);
        let is_settled = contact.is_settled();
        match (std::mem::replace(&mut contact.was_settled, is_settled), is_settled) {
            (true, false) => self.unsettled += 1,
            (false, true) => self.unsettled -= 1,
            _ => {}
        }
        let is_by_tcp = contact.peer.is_by_tcp();
        match (std::mem::replace(&mut contact.was_by_tcp, is_by_tcp), is_by_tcp) {
            (false, true) => self.by_tcp += 1,
            (true, false) => self.by_tcp -= 1,
            _ => {}
        }
        let is_lost = contact.peer.fault().is_some_and(|fault| *fault != Fault::Closed);
        if is_lost && !std::mem::replace(&mut contact.was_lost, is_lost) {
            self.lost = Some(rank);
        }
        self.is_busy |= contact.is_busy();
        self.alarm = [self.alarm, contact.peer.deadline()].into_iter().flatten().min();
        result
    }

    /// Lets all contacts change.
    fn change_all(&mut self, mut change: impl FnMut(&mut Peer, &mut Own<'_>)) {
        for at in 0..self.known.len() {
            self.change(Rank::at(self.known[at]), &mut change);
        }
    }

    /// Hears all that a peer has said; whether it said anything.
    fn listen(&mut self, rank: Rank) -> bool {
        let mut heard = false;
        while self.config.reaches[rank.index()] && !self.is_by_tcp(rank) {
            // Whoever speaks to us first becomes a contact.
            self.change(rank, |_, _| ());
            let Some(contact) = self.contacts[rank.index()].as_deref_mut() else { break };
            let between = Between { key: &self.key, own: self.config.rank, peer: rank };
            let told = contact.talk.listen(&mut self.tcp, &mut contact.peer, between);
            let outcome = match told {
                Ok(None) => break,
                Ok(Some(message)) => self.change(rank, |peer, own| peer.hear(message, own)),
                Err(fault) => Err(fault),
            };
            heard = true;
            if let Err(fault) = outcome {
                self.change(rank, |peer, _| match fault {
                    Fault::Closed => peer.leave(),
                    fault => peer.end(fault),
                });
                break;
            }
        }
        heard
    }

    /// Looks after the connections; whether anything happened.
    fn look(&mut self) -> Result<bool, LinkError> {
        self.is_stirred = false;
        let mut moved = self.tcp.poll()?;
        let mut has_left = false;
        for rank in self.tcp.stirred() {
            moved |= self.listen(rank);
            has_left |= self.contacts[rank.index()]
                .as_ref()
                .is_some_and(|contact| contact.peer.fault() == Some(&Fault::Closed));
        }
        if self.has_iwarp && self.is_connecting() {
            self.heed_connections();
        }
        if self.unsettled > 0 || self.has_iwarp {
            self.change_all(|_, _| ());
        }
        if let Some(alarm) = self.alarm {
            let now = Instant::now();
            if alarm <= now {
                self.alarm = None;
                self.change_all(|peer, own| peer.expire(now, own));
                moved = true;
            }
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_EVENTS) {
            self.heed_devices();
            self.registry.trim(RDMA_IDLE_BYTES, &mut self.budget);
        }
        // What a peer wrote before it left has arrived.
        Ok(has_left && self.drain() || moved)
    }

    /// Sends what is held back or owed; whether anything moved.
    #[cold]
    fn flush(&mut self) -> bool {
        let mut moved = false;
        self.is_busy = false;
        self.change_all(|peer, _| moved |= peer.flush());
        moved
    }

    /// Does what is to be done; with a look at the connections if that may be worth it.
    fn work(&mut self) -> Result<bool, LinkError> {
        self.ring_all();
        let mut moved = self.drain();
        if self.is_busy {
            moved |= self.flush();
        }
        self.polls = self.polls.wrapping_add(1);
        if self.is_stirred || self.must_look() || self.polls.is_multiple_of(POLLS_PER_LOOK) {
            let looked = self.look()?;
            if looked && self.is_armed {
                self.ring();
            }
            moved |= looked;
        }
        Ok(moved)
    }

    /// Whether something is expected on the connections, so that they are worth a look.
    fn must_look(&self) -> bool {
        self.unsettled > 0 || self.by_tcp > 0 || !self.tcp.is_flushed()
    }

    /// Keeps the caller from sleeping.
    fn ring(&mut self) {
        if !std::mem::replace(&mut self.is_rung, true) {
            self.bell.ring();
        }
    }

    /// Says once that bytes to a living peer were lost, be it that nobody uses the link again.
    fn say_what_is_lost(&mut self) -> Result<(), LinkError> {
        let Some(peer) = self.lost.take() else { return Ok(()) };
        match self.contacts[peer.index()].as_ref().and_then(|contact| contact.peer.fault()) {
            Some(fault) => Err(Self::error(Link { peer, lane: Lane(0) }, fault)),
            None => Ok(()),
        }
    }
}

impl Transport for Rdma {
    fn name(&self) -> &'static str {
        NAME
    }

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let (index, lane) = (link.peer.index(), link.lane.index());
        if !self.config.reaches[index] {
            return self.tcp.send(link, tag, bytes);
        }
        if !self.contacts[index].as_ref().is_some_and(|contact| contact.peer.is_open(lane)) {
            self.change(link.peer, |peer, own| {
                peer.greet(own);
                peer.want(lane);
            });
        }
        let (contact, is_patient) = (self.contacts[index].as_deref(), !self.is_armed);
        let is_asking = contact.is_some_and(|contact| contact.peer.is_asking(lane, bytes.len()));
        if is_asking && is_patient {
            self.drain();
        }
        let Some(Contact { peer, .. }) = self.contacts[index].as_deref_mut() else { return Ok(0) };
        let Self { rails, budget, registry, .. } = self;
        let Config { rank, lanes, settings, .. } = &self.config;
        let mut own = Own { rank: *rank, lanes: *lanes, settings, rails, budget, registry };
        let sent = peer.send(lane, tag, bytes, is_patient, &mut own);
        self.is_busy |= !peer.is_flushed();
        self.ring_later(index);
        sent.map_err(|fault| Self::error(link, &fault))
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        if self.is_by_tcp(link.peer) {
            return self.tcp.readable(link);
        }
        let Some(contact) = &self.contacts[link.peer.index()] else { return Ok(None) };
        let front = contact.peer.readable(link.lane.index());
        front.map_err(|fault| Self::error(link, &fault))
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        if self.is_by_tcp(link.peer) {
            return self.tcp.consume(link, bytes);
        }
        match &mut self.contacts[link.peer.index()] {
            Some(contact) => {
                contact.peer.consume(link.lane.index(), bytes);
                self.is_busy |= contact.peer.owes();
            }
            None => assert_eq!(bytes, 0, "consumed more than was readable"),
        }
    }

    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, LinkError> {
        if self.is_by_tcp(link.peer) {
            return self.tcp.recv(link, tag, dst);
        }
        let (index, lane) = (link.peer.index(), link.lane.index());
        let Some(Contact { peer, .. }) = self.contacts[index].as_deref_mut() else {
            return Ok(None);
        };
        let Self { rails, budget, registry, .. } = self;
        let Config { rank, lanes, settings, .. } = &self.config;
        let mut own = Own { rank: *rank, lanes: *lanes, settings, rails, budget, registry };
        let received = peer.recv(lane, tag, dst, &mut own);
        self.is_busy |= peer.owes() || peer.has_messages();
        self.ring_later(index);
        received.map_err(|fault| Self::error(link, &fault))
    }

    fn withdraw(&mut self) {
        self.change_all(Peer::withdraw);
        self.tcp.withdraw();
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        let is_possible = self.rails.0.iter().any(|rail| !rail.is_gone && !rail.is_iwarp());
        is_possible.then_some(self as &mut dyn RegisteredMemory)
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        let moved = self.work()?;
        self.has_moved |= moved && self.is_armed;
        self.say_what_is_lost()?;
        Ok(moved)
    }

    fn is_flushed(&self) -> bool {
        !self.is_busy && self.tcp.is_flushed()
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// A completion that came before its queue was asked to notify rings nothing, but the caller's
    /// last `poll` finds it. What happens on connections wakes by itself; what TCP has not told of
    /// yet matters only where it brings data, or peers have not settled everything.
    fn arm(&mut self) {
        self.is_armed = true;
        self.ring_all();
        let mut rails = self.rails.0.iter_mut().filter(|rail| !rail.is_gone);
        // Nobody should sleep until something that will not be told.
        if rails.try_for_each(Rail::notify).is_err() || self.lost.is_some() {
            self.ring();
        }
        if self.must_look() {
            self.tcp.arm();
            self.has_armed_tcp = true;
            self.is_stirred = true;
        }
        if self.has_iwarp {
            // What was sent since the last look is to be watched too.
            self.change_all(|_, _| ());
        }
        self.ticker.ring_at(self.alarm);
    }

    /// A device alone woke the caller, or there is more to look after. Where a `poll` found
    /// something after all, nobody slept, and whatever else may have happened still rings.
    fn disarm(&mut self) {
        self.is_armed = false;
        let mut rang = false;
        let has_slept = !std::mem::take(&mut self.has_moved);
        for rail in self.rails.0.iter_mut().filter(|rail| !rail.is_gone) {
            rang |= rail.silence();
        }
        if has_slept && !rang || self.has_armed_tcp || self.is_rung {
            self.has_armed_tcp = false;
            self.tcp.disarm();
            self.heed_devices();
            self.is_stirred = true;
        } else if self.has_iwarp {
            self.heed_connections();
        }
        if std::mem::take(&mut self.is_rung) {
            self.bell.silence();
        }
    }
}

impl RegisteredMemory for Rdma {
    fn pages(&mut self, bytes: usize) -> io::Result<Pages> {
        let may_reuse = !self.is_inviting();
        self.registry.make(bytes, may_reuse, &mut self.budget)
    }
}

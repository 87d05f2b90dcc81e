//! The links of a rank to all its peers, and the wait for any of them.
//!
//! * `control`: the TCP connections; `devices`: rails, memory and shares;
//! * `contacts`: the peers; `marks`: those that need a visit, so idle ones cost nothing;
//! * `waker`: the descriptor to park on; `cadence`: how often to poll more than completions;
//! * `events`: the devices' events; `connections`: the events of iWARP connections;
//! * `leaving`: the end of all links.

mod cadence;
mod config;
mod connections;
mod contacts;
mod control;
mod devices;
mod events;
mod leaving;
mod marks;
mod waker;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use ringfold_types::limits::LANES_MAX;
use ringfold_types::{Lane, Rank};

use self::cadence::Cadence;
use self::contacts::{Contact, Contacts};
use self::control::Control;
use self::devices::Devices;
use self::marks::Marks;
use self::waker::Waker;
use super::diagnostics::{RailLog, log};
use super::peer::{Fault, Own, Peer};
use super::rail::Rails;
use super::sys::{Pages, UserBuffer};
use crate::contract::{
    Fragment, Link, LinkError, Received, RegisteredMemory, Registration, Transport,
};
use crate::tcp::Tcp;

pub use self::config::Config;

const NAME: &str = "rdma";

/// A rank's links over RDMA. Peers without a usable rail in common with this rank go by TCP.
///
/// The methods panic if a link names this rank itself, or a lane beyond `Config::lanes`. Dropping
/// an endpoint blocks for up to `limits::HANDSHAKE_MS` until accepted bytes have arrived. Dropping
/// its TCP endpoint then does the same.
#[derive(Debug)]
pub struct Rdma {
    // Dropped first: peers learn at once that this rank is gone, even if devices take their time.
    control: Control,
    // Dropped before the devices, whose queues the contacts use.
    contacts: Contacts,
    devices: Devices,
    rail_log: RailLog,
    config: Config,
    cadence: Cadence,
    waker: Waker,
    /// Visits of contacts since the beginning.
    #[cfg(test)]
    visits: u64,
}

impl Rdma {
    /// Makes an endpoint that uses `rails` for data and `tcp` for setup and for peers without a
    /// rail.
    ///
    /// # Errors
    /// The system has no descriptors left.
    ///
    /// # Panics
    /// `config.lanes` is 0 or more than `LANES_MAX`.
    pub fn new(rails: Rails, tcp: Tcp, config: Config) -> io::Result<Self> {
        assert!((1..=LANES_MAX).contains(&config.lanes), "{} lanes", config.lanes);
        let waker = Waker::new()?;
        waker.watch(tcp.wake_fd())?;
        for rail in &rails.0 {
            waker.watch(rail.channel.fd())?;
            waker.watch(rail.device.context.events())?;
            waker.watch(rail.listener.bell())?;
            if let Some(connector) = &rail.connector {
                waker.watch(connector.fd())?;
            }
        }
        // This rank itself, and the peers in shared memory, do not use this transport.
        let peers = (0..config.reaches.len()).map(Rank::at).filter(|peer| *peer != config.rank);
        let by_tcp = peers.filter(|peer| tcp.knows(*peer) && !config.reaches[peer.index()]).count();
        Ok(Self {
            control: Control::new(tcp, config.key, config.rank),
            contacts: Contacts::new(config.reaches.len(), by_tcp),
            devices: Devices::new(rails, &config),
            rail_log: RailLog::default(),
            config,
            cadence: Cadence::default(),
            waker,
            #[cfg(test)]
            visits: 0,
        })
    }

    fn error(link: Link, fault: &Fault) -> LinkError {
        LinkError { link, transport: NAME, fault: fault.to_link_fault() }
    }

    /// Returns whether the peer has no rail in common with this rank, which sends all data by TCP.
    fn is_by_tcp(&self, peer: Rank) -> bool {
        !self.config.reaches[peer.index()]
    }

    /// Changes a contact, and sends the messages that the change has queued.
    fn change<T>(&mut self, rank: Rank, change: impl FnOnce(&mut Peer, &mut Own<'_>) -> T) -> T {
        #[cfg(test)]
        (self.visits += 1);
        let contact = self.contacts.meet(rank, self.config.lanes, self.config.may_use_tcp);
        let mut own = self.devices.own(&self.config);
        let result = change(&mut contact.peer, &mut own);
        contact.peer.leave_down(own.rails);
        contact.peer.report_arrivals(&own);
        for event in contact.peer.take_events() {
            let name = |rail| self.devices.rail(rail).name();
            log(self.rail_log.line(rank, event, name, Instant::now()));
        }
        self.control.send(rank, contact);
        self.contacts.count(rank);
        result
    }

    /// Changes all contacts.
    fn change_all(&mut self, mut change: impl FnMut(&mut Peer, &mut Own<'_>)) {
        let mut at = 0;
        while let Some(rank) = self.contacts.nth(at) {
            self.change(rank, &mut change);
            at += 1;
        }
    }

    /// Changes the contacts that are marked. They are marked again where that is still due.
    fn change_marked(
        &mut self,
        marks: impl Fn(&mut Contacts) -> &mut Marks,
        mut change: impl FnMut(&mut Peer, &mut Own<'_>),
    ) {
        let marked = marks(&mut self.contacts).take();
        for rank in &marked {
            self.change(*rank, &mut change);
        }
        marks(&mut self.contacts).put_back(marked);
    }

    /// Handles all messages of a peer that have arrived. Returns whether there were any.
    fn receive_messages(&mut self, rank: Rank) -> bool {
        let mut any = false;
        while !self.is_by_tcp(rank) {
            // A peer that sends the first message becomes a contact.
            self.change(rank, |_, _| ());
            let Some(contact) = self.contacts.contact_mut(rank) else { break };
            let outcome = match self.control.receive(rank, contact) {
                Ok(None) => break,
                Ok(Some(message)) => self.change(rank, |peer, own| peer.handle(message, own)),
                Err(fault) => Err(fault),
            };
            any = true;
            if let Err(fault) = outcome {
                self.change(rank, |peer, _| match fault {
                    Fault::Closed => peer.leave(),
                    fault => peer.end(fault),
                });
                break;
            }
        }
        any
    }

    /// Polls the connections and the clock. Returns whether anything happened.
    fn poll_connections(&mut self) -> Result<bool, LinkError> {
        let mut moved = self.control.poll()?;
        let mut has_left = false;
        for rank in self.control.tcp_mut().stirred() {
            moved |= self.receive_messages(rank);
            let contact = self.contacts.get(rank);
            has_left |= contact.is_some_and(|contact| contact.peer.fault() == Some(&Fault::Closed));
        }
        let has_iwarp = self.devices.has_iwarp();
        if has_iwarp && self.contacts.is_connecting() {
            self.handle_connections();
        }
        if has_iwarp {
            self.change_all(|_, _| ());
        } else {
            self.change_marked(Contacts::open, |_, _| ());
        }
        if self.contacts.take_alarm() {
            let now = Instant::now();
            self.change_all(|peer, own| peer.expire(now, own));
            moved = true;
        }
        if self.cadence.poll_connections() {
            self.handle_device_events();
            self.devices.trim();
        }
        // A peer's writes arrive before its connection closes, so their completions are there.
        Ok(has_left && self.drain() || moved)
    }

    /// Sends bytes that are held back and credit that is due. Returns whether anything moved.
    #[cold]
    fn flush(&mut self) -> bool {
        let mut moved = false;
        self.change_marked(Contacts::busy, |peer, _| moved |= peer.flush());
        moved
    }

    /// Handles completions, and polls the connections if that may be worth it. Returns whether
    /// anything moved.
    fn work(&mut self) -> Result<bool, LinkError> {
        let mut moved = self.drain();
        if self.contacts.is_busy() {
            moved |= self.flush();
        }
        let is_due = self.cadence.poll(self.must_poll_connections());
        if is_due || self.control.is_pending() || self.control.is_wanted() {
            let moved_any = self.poll_connections()?;
            if moved_any && self.waker.is_armed() {
                self.waker.ring();
            }
            moved |= moved_any;
        }
        Ok(moved)
    }

    /// Notes the state of a peer after a call: it may have become busy, or have messages queued. An
    /// armed caller must not sleep while messages are queued.
    fn note_use(&mut self, rank: Rank, is_busy: bool, has_messages: bool) {
        if is_busy {
            self.contacts.busy().mark(rank);
        }
        if has_messages && self.waker.is_armed() {
            self.waker.ring();
        }
    }

    /// Notes that the caller waits for a peer, of which TCP may bring news.
    fn want(&self, rank: Rank) {
        if self.contacts.is_open(rank) {
            self.control.want();
        }
    }

    /// Returns whether some connection is expected to bring something, and so is worth more polls.
    fn must_poll_connections(&self) -> bool {
        let contacts = &self.contacts;
        contacts.is_unsettled() || contacts.by_tcp() > 0 || !self.control.tcp().is_flushed()
    }

    /// Reports once that bytes to a living peer were lost, even if nobody uses the link again.
    fn report_lost(&mut self) -> Result<(), LinkError> {
        match self.contacts.take_lost() {
            Some((peer, fault)) => Err(Self::error(Link { peer, lane: Lane(0) }, fault)),
            None => Ok(()),
        }
    }

    /// The rail of the next fragment to some peer.
    #[cfg(test)]
    pub(in crate::rdma) fn rail(&self) -> Option<usize> {
        self.contacts.iter().find_map(|contact| contact.peer.rail())
    }

    /// The weight of the paths on a rail among all.
    #[cfg(test)]
    pub(in crate::rdma) fn weight(&self, rail: usize) -> u64 {
        self.contacts.iter().map(|contact| contact.peer.weight(rail)).sum()
    }

    /// Returns whether some path on that rail carries data.
    #[cfg(test)]
    pub(in crate::rdma) fn carries(&self, rail: usize) -> bool {
        self.contacts.iter().any(|contact| contact.peer.carries(rail))
    }

    /// Lets the next poll find a contact busy.
    #[cfg(test)]
    pub(in crate::rdma) fn make_busy(&mut self, rank: Rank) {
        self.note_use(rank, true, false);
    }

    /// The visits of contacts and the polls of connections since the beginning.
    #[cfg(test)]
    pub(in crate::rdma) const fn work_done(&self) -> (u64, u32) {
        (self.visits, self.cadence.connection_polls())
    }

    /// The number of peers that send data by TCP.
    #[cfg(test)]
    pub(in crate::rdma) const fn by_tcp(&self) -> usize {
        self.contacts.by_tcp()
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
        let (rank, lane) = (link.peer, link.lane.index());
        if self.is_by_tcp(rank) {
            self.control.want();
            return self.control.tcp_mut().send(link, tag, bytes);
        }
        if !self.contacts.get(rank).is_some_and(|contact| contact.peer.is_open(lane)) {
            self.change(rank, |peer, own| {
                peer.greet(own);
                peer.want(lane);
            });
        }
        let (contact, is_patient) = (self.contacts.get(rank), !self.waker.is_armed());
        let is_asking = contact.is_some_and(|contact| contact.peer.is_asking(lane, bytes.len()));
        if is_asking && is_patient {
            self.drain();
        }
        let Some(Contact { peer, .. }) = self.contacts.contact_mut(rank) else { return Ok(0) };
        let mut own = self.devices.own(&self.config);
        let sent = peer.send(lane, tag, bytes, is_patient, &mut own);
        let (is_busy, has_messages) = (!peer.is_flushed(), peer.has_messages());
        self.note_use(rank, is_busy, has_messages);
        self.want(rank);
        sent.map_err(|fault| Self::error(link, &fault))
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        if self.is_by_tcp(link.peer) {
            let front = self.control.tcp().readable(link);
            if !matches!(front, Ok(Some(_))) {
                self.control.want();
            }
            return front;
        }
        let Some(contact) = self.contacts.get(link.peer) else { return Ok(None) };
        let front = contact.peer.readable(link.lane.index());
        if !matches!(front, Ok(Some(_))) {
            self.want(link.peer);
        }
        front.map_err(|fault| Self::error(link, &fault))
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        if self.is_by_tcp(link.peer) {
            return self.control.tcp_mut().consume(link, bytes);
        }
        match self.contacts.contact_mut(link.peer) {
            Some(contact) => {
                contact.peer.consume(link.lane.index(), bytes);
                let owes = contact.peer.owes();
                self.note_use(link.peer, owes, false);
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
            let received = self.control.tcp_mut().recv(link, tag, dst);
            if !matches!(received, Ok(Some(_))) {
                self.control.want();
            }
            return received;
        }
        let Some(Contact { peer, .. }) = self.contacts.contact_mut(link.peer) else {
            return Ok(None);
        };
        let mut own = self.devices.own(&self.config);
        let received = peer.recv(link.lane.index(), tag, dst, &mut own);
        let (owes, has_messages) = (peer.owes(), peer.has_messages());
        self.note_use(link.peer, owes || has_messages, has_messages);
        if !matches!(received, Ok(Some(_))) {
            self.want(link.peer);
        }
        received.map_err(|fault| Self::error(link, &fault))
    }

    fn expect(&mut self, link: Link, tag: u32, skip: usize, dst: &mut [u8]) -> bool {
        if self.is_by_tcp(link.peer) {
            return true;
        }
        let Some(Contact { peer, .. }) = self.contacts.contact_mut(link.peer) else {
            return false;
        };
        let mut own = self.devices.own(&self.config);
        let is_done = peer.expect(link.lane.index(), tag, (skip, dst), &mut own);
        let has_messages = peer.has_messages();
        self.note_use(link.peer, has_messages, has_messages);
        is_done
    }

    fn withdraw(&mut self) {
        // All devices end their queue pairs at once, and then each is waited for.
        self.change_all(|peer, _| peer.withdraw());
        self.change_all(Peer::await_withdrawal);
        self.control.tcp_mut().withdraw();
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        let is_used = self.devices.can_share() || self.devices.is_leasing();
        is_used.then_some(self as &mut dyn RegisteredMemory)
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        let moved = self.work()?;
        self.waker.moved(moved);
        self.report_lost()?;
        Ok(moved)
    }

    fn is_flushed(&self) -> bool {
        !self.contacts.is_busy() && self.control.tcp().is_flushed()
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.waker.fd()
    }

    /// A completion that came before its queue was asked to notify wakes nobody, but the caller's
    /// last `poll` finds it. Connections wake the caller by themselves. Events that TCP has not
    /// reported yet matter only where TCP brings data, or where peers have not settled everything.
    fn arm(&mut self) {
        self.waker.arm();
        // The caller must not sleep if no device would wake it.
        if self.devices.notify().is_err() || self.contacts.has_lost() {
            self.waker.ring();
        }
        if self.must_poll_connections() {
            self.control.arm();
        }
        if self.devices.has_iwarp() {
            // Sends since the last poll need the watch for silence too.
            self.change_all(|_, _| ());
        }
        self.waker.ring_at(self.contacts.alarm());
    }

    /// If a device alone woke the caller, its completions are all there is to handle. If a `poll`
    /// since `arm` found something, the caller has not slept, and every other event still wakes it.
    fn disarm(&mut self) {
        let may_have_slept = self.waker.disarm();
        let rang = self.devices.silence();
        let was_rung = self.waker.silence();
        if may_have_slept && !rang || self.control.is_armed() || was_rung {
            self.control.disarm();
            self.handle_device_events();
            self.control.mark_pending();
        } else if self.devices.has_iwarp() {
            self.handle_connections();
        }
    }
}

impl RegisteredMemory for Rdma {
    fn pages(&mut self, bytes: usize) -> io::Result<Pages> {
        let may_reuse = !self.contacts.has_open_rtr();
        self.devices.pages(bytes, may_reuse)
    }

    fn lease(&mut self, buffer: UserBuffer) {
        self.devices.lease(buffer, self.config.settings.relaxed_ordering);
    }

    fn release(&mut self) {
        self.devices.release();
    }

    fn register(&mut self, buffer: UserBuffer) -> Option<Registration> {
        self.devices.register(buffer, self.config.settings.relaxed_ordering)
    }
}

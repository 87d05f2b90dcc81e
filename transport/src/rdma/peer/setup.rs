//! The setup of paths and rings: this rank's messages, and the answers to the peer's.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_types::limits::{PATHS_MAX, RDMA_PROOF_MS, RDMA_RING_BYTES};

use super::Peer;
use super::cable::Cable;
use super::fault::Fault;
use super::lanes::no_memory;
use super::own::Own;
use crate::rdma::address::Address;
use crate::rdma::budget;
use crate::rdma::card::RailCard;
use crate::rdma::diagnostics::{self, RailEvent};
use crate::rdma::message::{Grant, Message, TcpFragment};
use crate::rdma::pairing::choose;
use crate::rdma::path::{Making, Path, Used};
use crate::rdma::path_label::PathLabel;
use crate::rdma::ring::inbound::Inbound;
use crate::rdma::ring::layout::Immediate;
use crate::rdma::ring::outbound::Outbound;
use crate::rdma::ring::rtr::MAILBOX_BYTES;
use crate::rdma::sys::{Inbox, Mr, Outbox, Pd, Target};

/// The least time in milliseconds after which a queue pair that has carried no packet is given up,
/// if TCP may not replace RDMA.
const RDMA_LAST_PROOF_MS: u64 = 10_000;

/// The reason for no path to a peer that offers no rail.
const NO_OFFER: &str = "the peer has no rail for us; its log says whether RINGFOLD_IB_QPS_MAX or \
                        RINGFOLD_IB_BYTES_MAX is too small there";

/// A path's other end, as the peer offers it.
struct Offer {
    path: usize,
    target: Target,
    gigabits: u32,
    rail: RailCard,
    path_label: PathLabel,
}

impl Peer {
    /// Begins to find out how to reach the peer.
    pub(in crate::rdma) fn greet(&mut self, own: &mut Own<'_>) {
        if let Some(message) = self.greeting.greet(self.rank, own) {
            self.control.push(message);
        }
    }

    /// Asks for a ring, if there is none for the lane.
    pub(in crate::rdma) fn want(&mut self, lane: usize) {
        if self.greeting.has_met() && self.lanes.ask(lane) {
            self.control.push(Message::WantRing { lane, mailbox: self.lanes.mailbox() });
        }
    }

    /// Returns whether the lane has a ring.
    pub(in crate::rdma) fn is_open(&self, lane: usize) -> bool {
        self.lanes.outbound(lane).is_some()
    }

    /// Handles a message of the peer, unless the peer has said goodbye.
    pub(in crate::rdma) fn handle(
        &mut self,
        message: Message,
        own: &mut Own<'_>,
    ) -> Result<(), Fault> {
        if self.ending.has_goodbye() {
            return Ok(());
        }
        match message {
            Message::Rails { rails, queue_pairs } => {
                self.greet(own);
                self.pair(&rails, queue_pairs, own)
            }
            Message::Offer { path, target, gigabits, rail, path_label } => {
                self.take_up(Offer { path, target, gigabits, rail, path_label }, own)
            }
            Message::Ready { path } => {
                if let Err(error) = self.path(path)?.ready() {
                    self.lose(path, &diagnostics::connection(&error));
                }
                Ok(())
            }
            Message::PathDown { path, returns } => {
                self.path(path)?;
                if returns {
                    self.fallback.expect_return(Instant::now());
                }
                self.lose(path, "the peer cannot use it; its log says why");
                Ok(())
            }
            Message::Arrivals { path, lanes } => {
                if !self.path(path)?.peer_reports() {
                    return Err("arrivals were reported twice, or by a path in use".into());
                }
                self.lanes.lose(path, lanes)?;
                self.settle(path, own);
                Ok(())
            }
            Message::WantRing { lane, mailbox } => self.grant(lane, mailbox, own),
            Message::GrantRing { lane, grant } => self.open(lane, grant, own),
            Message::TcpFragment(TcpFragment { lane, sequence, lines, .. }) => {
                match self.lanes.take(Immediate::Fragment { lane, sequence, lines })? {
                    true => Ok(()),
                    false => Err("a fragment out of order".into()),
                }
            }
            Message::Credit { lane, total } => self.lanes.credit_to(lane, total),
            Message::Bye { fragments } => {
                self.lanes.check(&fragments)?;
                self.dismiss(fragments);
                Ok(())
            }
        }
    }

    fn path(&mut self, path: usize) -> Result<&mut Path, Fault> {
        self.routes
            .paths_mut()
            .get_mut(path)
            .ok_or(Fault::Protocol("a message about an unknown path"))
    }

    /// Makes the paths of every two rails that reach each other.
    fn pair(
        &mut self,
        theirs: &[RailCard],
        queue_pairs: u8,
        own: &mut Own<'_>,
    ) -> Result<(), Fault> {
        let announced = self.greeting.meet().ok_or("the peer announced its rails twice")?;
        let share = self.greeting.share();
        let mine: Vec<_> = announced.iter().map(|(_, card)| *card).collect();
        let is_lower = own.rank < self.rank;
        let choice = if is_lower { choose(&mine, theirs) } else { choose(theirs, &mine) };
        let main = choice.main.into_iter().map(|pair| (pair, false));
        let pairs = main.chain(choice.spare.map(|pair| (pair, true)));
        let each = usize::from(queue_pairs.min(share.each)).max(1);
        for ((low, high), is_spare) in pairs.take(PATHS_MAX / each) {
            let (mine, theirs) = if is_lower { (low, theirs[high]) } else { (high, theirs[low]) };
            let rail = announced[mine].0;
            let it = &own.rails.0[rail];
            let (name, cable) = (it.name(), self.routes.cables().len());
            let opened = self.lanes.open_mailbox(cable, &it.pd);
            if let Err(error) = &opened {
                let why = diagnostics::registration(error, MAILBOX_BYTES);
                let what = format!("{name} cannot be used: {why}");
                self.events.push(RailEvent::Lost { rail, what });
            }
            let cable = Cable::new(rail, name, opened.is_ok(), theirs, is_spare);
            let cable = self.routes.add_cable(cable);
            for _ in 0..each {
                let path = self.routes.paths().len();
                self.routes.add_path(Path::new(self.rank, path, cable));
                if let Err(why) = self.make(path, own) {
                    self.refuse(path, &why);
                }
            }
        }
        let cables = self.routes.cables();
        own.budget.settle(share, cables.len(), self.routes.paths().len());
        let why = match self.greeting.why_none() {
            Some(why) => why.to_owned(),
            None if theirs.is_empty() => NO_OFFER.to_owned(),
            None => format!("rails here and there {}", diagnostics::unpaired(&mine, theirs)),
        };
        self.fall_back(&why);
        for lane in 0..own.lanes {
            if self.lanes.holds(lane) {
                self.want(lane);
            }
        }
        Ok(())
    }

    /// Begins a path's life, or returns the reason why it cannot.
    pub(super) fn make(&mut self, path: usize, own: &mut Own<'_>) -> Result<(), String> {
        let (used, initiates) = (self.lanes.used(), own.rank > self.rank);
        let (it, cable) = self.routes.path_mut(path);
        it.begin();
        if !cable.is_usable() {
            return Err("its device cannot reach our memory".to_owned());
        }
        let rail = &mut own.rails.0[cable.rail()];
        let may_use_tcp = self.fallback.may_use_tcp();
        let proof = if may_use_tcp { RDMA_PROOF_MS } else { RDMA_LAST_PROOF_MS };
        let mut proof = Duration::from_millis(proof);
        if !rail.is_iwarp() {
            // The first packet may be lost, and must then be sent again.
            let again = diagnostics::retransmission(own.settings.timeout);
            proof = proof.max(Duration::from_millis(RDMA_PROOF_MS) + again);
        }
        let (settings, lanes) = (own.settings, own.lanes);
        it.make(Making { rail, settings, lanes, used, initiates, proof })
            .map_err(|error| format!("no queue pair: {}", diagnostics::connection(&error)))?;
        let Some(target) = it.target(rail) else { return Ok(()) };
        let path_label = PathLabel { host: own.settings.host.clone(), port: rail.name() };
        let (rail, gigabits) = (rail.card(), rail.port.gigabits);
        self.control.push(Message::Offer { path, target, gigabits, rail, path_label });
        Ok(())
    }

    /// Refuses a path that the peer knows of, because it could not be made.
    fn refuse(&mut self, path: usize, why: &str) {
        let (it, cable) = self.routes.path_mut(path);
        let what = format!("no path {path} to rank {} by {}: {why}", self.rank, cable.name());
        // Later lives are tried again and again.
        if it.is_first() {
            self.events.push(RailEvent::Lost { rail: cable.rail(), what });
        } else {
            tracing::debug!("rdma: {what}");
        }
        it.end();
        self.control.push(Message::PathDown { path, returns: self.fallback.expects_return() });
    }

    /// Handles the offer of a path's other end, which may begin a new life.
    fn take_up(&mut self, offer: Offer, own: &mut Own<'_>) -> Result<(), Fault> {
        let Offer { path, target, gigabits, rail: theirs, path_label } = offer;
        let it = self.path(path)?;
        let is_settled = it.is_settled();
        if it.has_offer() && !it.has_ended() {
            return Err("a path was offered twice".into());
        }
        if it.has_ended() && !is_settled {
            // The path ended while the offer was under way.
            return Ok(());
        }
        if !self.routes.cable_of_mut(path).renew(theirs, path_label) {
            return Err("a rail has changed its kind".into());
        }
        if is_settled && let Err(why) = self.make(path, own) {
            self.refuse(path, &why);
            return Ok(());
        }
        let rail = &mut own.rails.0[self.routes.cable_of(path).rail()];
        let (is_up, name) = (rail.query_state(), rail.name());
        self.routes.set_rates(path, [rail.port.gigabits, gigabits]);
        if !is_up && self.has_way(own.rails) {
            // The kernel would spend a while looking for the peer's address.
            self.lose(path, &format!("{name} is down"));
            return Ok(());
        }
        if let Err(why) = self.connect(path, &theirs, target, own) {
            self.lose(path, &why);
        }
        Ok(())
    }

    /// Connects a path to the peer's end, or returns the reason why it cannot.
    fn connect(
        &mut self,
        path: usize,
        theirs: &RailCard,
        target: Target,
        own: &Own<'_>,
    ) -> Result<(), String> {
        let (it, cable) = self.routes.path_mut(path);
        let rail = &own.rails.0[cable.rail()];
        let (name, whose) = (rail.name(), cable.their_name(self.rank));
        if it.is_first()
            && !it.is_iwarp()
            && let Some(what) = diagnostics::different_mtus(rail.port.mtu, theirs.mtu)
        {
            tracing::info!("rdma: path {path} to {whose} by {name}: {what}");
        }
        let address =
            Address::new(&rail.card(), theirs).map_err(|why| why.explain(&name, &whose))?;
        let is_ready = it
            .connect(rail, (theirs, address), own.settings, target)
            .map_err(|error| diagnostics::connection(&error))?;
        let to = target.number;
        let what = match (is_ready, it.initiates()) {
            (true, _) => format!("queue pair to {to} of {}", cable.their_port()),
            (false, true) => format!("connects to port {to}"),
            (false, false) => "waits to be connected".to_owned(),
        };
        tracing::info!("rdma: path {path} to rank {}: {name}, {what}", self.rank);
        if is_ready {
            self.control.push(Message::Ready { path });
        }
        Ok(())
    }

    /// Gives up a cable whose device cannot access the memory.
    fn give_up(&mut self, cable: usize, why: &str) {
        self.routes.cables_mut()[cable].give_up();
        for path in 0..self.routes.paths().len() {
            if self.routes.paths()[path].cable() == cable {
                self.lose(path, why);
            }
        }
    }

    /// Registers a ring for the devices of all cables, as far as they can.
    fn rights(
        &mut self,
        own: &Own<'_>,
        right: impl Fn(&Arc<Pd>) -> io::Result<Mr>,
    ) -> Vec<Option<Mr>> {
        let mut rights = Vec::with_capacity(self.routes.cables().len());
        for cable in 0..self.routes.cables().len() {
            let it = &self.routes.cables()[cable];
            let pd = it.is_usable().then(|| &**own.rails.0[it.rail()].pd);
            rights.push(pd.map(&right).transpose().unwrap_or_else(|error| {
                self.give_up(cable, &diagnostics::registration(&error, RDMA_RING_BYTES));
                None
            }));
        }
        rights
    }

    /// Takes the bytes of one more ring from the budget, if the peer's share is used up. If none
    /// are left, the cables are given up.
    fn pay_for_ring(&mut self, have: usize, own: &mut Own<'_>) {
        let cables = self.routes.cables().len();
        if have >= budget::LANES
            && let Err(why) = own.budget.register(cables * RDMA_RING_BYTES)
        {
            (0..cables).for_each(|cable| self.give_up(cable, &why));
        }
    }

    /// Lets all paths take what comes once these lanes are in use.
    fn make_room(&mut self, used: Used, own: &mut Own<'_>) {
        let was = self.lanes.used();
        for path in 0..self.routes.paths().len() {
            let (it, cable) = self.routes.path_mut(path);
            if it.has_ended() {
                continue;
            }
            let rail = &mut own.rails.0[cable.rail()];
            if let Err(error) = it.make_room(rail, was, used) {
                self.lose(path, &diagnostics::connection(&error));
            }
        }
    }

    /// Makes a ring for a lane on which the peer wants to send.
    fn grant(&mut self, lane: usize, mailbox: Grant, own: &mut Own<'_>) -> Result<(), Fault> {
        if !self.greeting.has_met() || !self.lanes.may_grant(lane) {
            return Err("the peer asked for a ring that it cannot have".into());
        }
        self.pay_for_ring(self.lanes.used().rings, own);
        let ring = Inbox::new(RDMA_RING_BYTES).map_err(no_memory)?;
        let in_any_order = own.settings.relaxed_ordering;
        let rights = self.rights(own, |pd| ring.expose(pd, in_any_order));
        let used = self.lanes.used();
        self.make_room(Used { rings: used.rings + 1, ..used }, own);
        let inbound = Inbound::new(ring, rights, mailbox);
        let grant = inbound.grant();
        self.lanes.grant(lane, inbound);
        self.control.push(Message::GrantRing { lane, grant });
        Ok(())
    }

    /// Takes the ring that the peer made for this rank.
    fn open(&mut self, lane: usize, grant: Grant, own: &mut Own<'_>) -> Result<(), Fault> {
        if !self.lanes.is_asked(lane) {
            return Err("the peer made a ring that this rank did not ask for".into());
        }
        self.pay_for_ring(self.lanes.used().images, own);
        let image = Outbox::new(RDMA_RING_BYTES).map_err(no_memory)?;
        let rights = self.rights(own, |pd| image.register(pd));
        let used = self.lanes.used();
        self.make_room(Used { images: used.images + 1, ..used }, own);
        self.lanes.open(lane, Outbound::new(lane, grant, image, rights));
        Ok(())
    }
}

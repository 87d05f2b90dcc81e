//! How two ranks come to have paths and rings: what either says, and what the other makes of it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::limits::{PATHS_MAX, RDMA_LAST_PROOF_MS, RDMA_PROOF_MS, RDMA_RING_BYTES};

use super::{Cable, Fault, Own, Peer, Stage, Way};
use crate::rdma::address::Address;
use crate::rdma::budget;
use crate::rdma::geometry::Number;
use crate::rdma::inbound::Inbound;
use crate::rdma::invitation::Mailbox;
use crate::rdma::message::{Grant, Load, Message, RailCard};
use crate::rdma::nameplate::Nameplate;
use crate::rdma::outages::News;
use crate::rdma::outbound::Outbound;
use crate::rdma::pairing::choose;
use crate::rdma::path::{Making, Path};
use crate::rdma::sys::{Inbox, Mr, Outbox, Pd, Target};
use crate::rdma::words;

/// Why there is no path to a peer that offers no rail.
const NO_OFFER: &str = "the peer has no rail for us; its log says whether RINGFOLD_IB_QPS_MAX or \
                        RINGFOLD_IB_BYTES_MAX is too small there";

impl Peer {
    /// Heeds what the peer says, up to its goodbye.
    pub(in crate::rdma) fn hear(
        &mut self,
        message: Message,
        own: &mut Own<'_>,
    ) -> Result<(), Fault> {
        if self.promised.is_some() {
            return Ok(());
        }
        match message {
            Message::Rails { rails, queue_pairs } => {
                self.greet(own);
                if self.stage != Stage::Greeting {
                    return Err("rails were told twice".into());
                }
                self.pair(&rails, queue_pairs, own)
            }
            Message::Offer { path, target, rail, plate } => {
                self.take_up(path, (rail, plate), target, own)
            }
            Message::Ready { path } => {
                if let Err(error) = self.path(path)?.ready() {
                    self.lose(path, &words::connection(&error));
                }
                Ok(())
            }
            Message::Without { path, returns } => {
                self.path(path)?;
                if returns {
                    self.expect_return();
                }
                self.lose(path, "the peer cannot use it; its log says why");
                Ok(())
            }
            Message::Heard { path, lanes } => {
                if !self.path(path)?.heard() {
                    return Err("a path's end was told twice, or of one that is in use".into());
                }
                for (lane, heard) in self.outbound.iter_mut().zip(lanes) {
                    if let Way::Open(outbound) = &mut lane.way {
                        outbound.lose(path, heard)?;
                    }
                }
                self.settle(path, own);
                Ok(())
            }
            Message::Want { lane, mailbox } => self.grant(lane, mailbox, own),
            Message::Grant { lane, grant } => self.open(lane, grant, own),
            Message::Load(Load { lane, sequence, lines, .. }) => {
                self.take(Number::Fragment { lane, sequence, lines })
            }
            Message::Credit { lane, total } => {
                match self.outbound.get_mut(lane).map(|it| &mut it.way) {
                    Some(Way::Open(outbound)) => Ok(outbound.credit_to(total)?),
                    _ => Err("credit for a lane that has no ring".into()),
                }
            }
            Message::Bye { fragments } => {
                for (inbound, fragments) in self.inbound.iter().zip(fragments) {
                    match inbound {
                        Some(inbound) => drop(inbound.lacks(fragments)?),
                        None if fragments == 0 => {}
                        None => return Err("fragments were promised without a ring".into()),
                    }
                }
                self.dismiss(fragments);
                Ok(())
            }
        }
    }

    fn path(&mut self, path: usize) -> Result<&mut Path, Fault> {
        self.paths.get_mut(path).ok_or(Fault::Protocol("a path that is none"))
    }

    /// Makes a path or more of every two rails that reach each other.
    fn pair(
        &mut self,
        theirs: &[RailCard],
        queue_pairs: u8,
        own: &mut Own<'_>,
    ) -> Result<(), Fault> {
        let share = self.share();
        let told = std::mem::take(&mut self.told);
        let mine: Vec<_> = told.iter().map(|(_, card)| *card).collect();
        let is_lower = own.rank < self.rank;
        let choice = if is_lower { choose(&mine, theirs) } else { choose(theirs, &mine) };
        let main = choice.main.into_iter().map(|pair| (pair, false));
        let pairs = main.chain(choice.spare.map(|pair| (pair, true)));
        self.stage = Stage::Met;
        let each = usize::from(queue_pairs.min(share.each)).max(1);
        for ((low, high), is_spare) in pairs.take(PATHS_MAX / each) {
            let (mine, theirs) = if is_lower { (low, theirs[high]) } else { (high, theirs[low]) };
            let rail = told[mine].0;
            let it = &own.rails.0[rail];
            let (pd, name) = (Pd::new(&it.context), it.name());
            if let Err(error) = &pd {
                let what = format!("{name} cannot be used: {}", words::connection(error));
                self.news.push(News::Lost { rail, what });
            }
            let (pd, plate) = (pd.ok(), Nameplate::default());
            self.cables.push(Cable { rail, pd, is_spare, is_stuck: false, theirs, name, plate });
            for _ in 0..each {
                let path = self.paths.len();
                self.paths.push(Path::new(self.rank, path, self.cables.len() - 1));
                if let Err(why) = self.make(path, own) {
                    self.refuse(path, &why);
                }
            }
        }
        own.budget.settle(share, self.cables.len(), self.paths.len());
        if !self.cables.is_empty() {
            let domains = self.cables.iter().map(|cable| cable.pd.as_ref());
            self.mailbox = Some(Mailbox::new(domains).map_err(no_memory)?);
        }
        let why = match &self.share {
            Err(why) => why.clone(),
            Ok(_) if theirs.is_empty() => NO_OFFER.to_owned(),
            Ok(_) => {
                let [ours, theirs] =
                    [&mine, theirs].map(|rails| Vec::from_iter(rails.iter().map(|it| it.kind)));
                format!("rails here and there {}", words::apart(&ours, &theirs))
            }
        };
        self.fall_back(&why);
        for lane in 0..own.lanes {
            if !self.outbound[lane].held.is_empty() {
                self.want(lane);
            }
        }
        Ok(())
    }

    /// Begins a path's life, or says why it cannot.
    pub(super) fn make(&mut self, path: usize, own: &mut Own<'_>) -> Result<(), String> {
        let (rings, calls) = (self.rings(), own.rank > self.rank);
        let it = &mut self.paths[path];
        let Cable { rail, pd, .. } = &self.cables[it.cable()];
        it.begin();
        let Some(pd) = pd else { return Err("its device cannot reach our memory".to_owned()) };
        let rail = &mut own.rails.0[*rail];
        let proof = if self.may_use_tcp { RDMA_PROOF_MS } else { RDMA_LAST_PROOF_MS };
        let mut proof = Duration::from_millis(proof);
        if !rail.is_iwarp() {
            // The first packet may be lost and have to be sent again.
            let again = words::retransmission(own.settings.timeout);
            proof = proof.max(Duration::from_millis(RDMA_PROOF_MS) + again);
        }
        let (settings, lanes) = (own.settings, own.lanes);
        it.make(Making { rail, pd, settings, lanes, rings, calls, proof })
            .map_err(|error| format!("no queue pair: {}", words::connection(&error)))?;
        let Some(target) = it.target(rail) else { return Ok(()) };
        let plate = Nameplate { host: own.settings.host.clone(), port: rail.name() };
        self.to_say.push_back(Message::Offer { path, target, rail: rail.card(), plate });
        Ok(())
    }

    /// A path that the peer knows of could not be made.
    fn refuse(&mut self, path: usize, why: &str) {
        let Cable { rail, name, .. } = &self.cables[self.paths[path].cable()];
        let what = format!("no path {path} to rank {} by {name}: {why}", self.rank);
        // Later ones are tried again and again.
        if self.paths[path].is_first() {
            self.news.push(News::Lost { rail: *rail, what });
        } else {
            tracing::debug!("rdma: {what}");
        }
        self.paths[path].end();
        self.to_say.push_back(Message::Without { path, returns: self.returns.is_some() });
    }

    /// Heeds the offer of a path's other end, be it of a new life.
    fn take_up(
        &mut self,
        path: usize,
        (theirs, plate): (RailCard, Nameplate),
        target: Target,
        own: &mut Own<'_>,
    ) -> Result<(), Fault> {
        let it = self.path(path)?;
        let (is_settled, cable) = (it.is_settled(), it.cable());
        if it.has_offer() && !it.has_ended() {
            return Err("a path was offered twice".into());
        }
        if it.has_ended() && !is_settled {
            // It ended while the offer was on its way.
            return Ok(());
        }
        if theirs.kind != self.cables[cable].theirs.kind {
            return Err("a rail has become another".into());
        }
        (self.cables[cable].theirs, self.cables[cable].plate) = (theirs, plate);
        if is_settled && let Err(why) = self.make(path, own) {
            self.refuse(path, &why);
            return Ok(());
        }
        let is_up = own.rails.0[self.cables[cable].rail].look();
        let rail = &own.rails.0[self.cables[cable].rail];
        if !is_up && self.has_way(own.rails) {
            // To look for the peer's address would take the kernel a while.
            self.lose(path, &format!("{} is down", rail.name()));
            return Ok(());
        }
        let (rank, whose, it) = (self.rank, self.name(cable), &mut self.paths[path]);
        if it.is_first()
            && !it.is_iwarp()
            && let Some(what) = words::different_mtus(rail.port.mtu, theirs.mtu)
        {
            tracing::info!("rdma: path {path} to {whose} by {}: {what}", rail.name());
        }
        let address = match Address::new(&rail.card(), &theirs) {
            Ok(address) => address,
            Err(why) => {
                let why = why.tell(&rail.name(), &whose);
                self.lose(path, &why);
                return Ok(());
            }
        };
        match it.connect(rail, (&theirs, address), own.settings, target) {
            Ok(is_ready) => {
                let (name, to) = (rail.name(), target.number);
                let what = match (is_ready, it.calls()) {
                    (true, _) => format!("queue pair to {to} of {}", self.cables[cable].plate.port),
                    (false, true) => format!("connects to port {to}"),
                    (false, false) => "waits to be connected".to_owned(),
                };
                tracing::info!("rdma: path {path} to rank {rank}: {name}, {what}");
                if is_ready {
                    self.to_say.push_back(Message::Ready { path });
                }
            }
            Err(error) => self.lose(path, &words::connection(&error)),
        }
        Ok(())
    }

    /// A cable of which a device cannot reach the memory is none.
    fn give_up(&mut self, cable: usize, why: &str, own: &mut Own<'_>) {
        self.cables[cable].disown(own);
        for path in 0..self.paths.len() {
            if self.paths[path].cable() == cable {
                self.lose(path, why);
            }
        }
    }

    /// What lets the devices of all cables reach a ring, as far as they can.
    fn rights(
        &mut self,
        own: &mut Own<'_>,
        right: impl Fn(&Arc<Pd>) -> io::Result<Mr>,
    ) -> Vec<Option<Mr>> {
        let mut rights = Vec::with_capacity(self.cables.len());
        for cable in 0..self.cables.len() {
            let found = self.cables[cable].pd.as_ref().map(&right).transpose();
            rights.push(found.unwrap_or_else(|error| {
                self.give_up(cable, &words::registration(&error, RDMA_RING_BYTES), own);
                None
            }));
        }
        rights
    }

    /// Sees to it that there are bytes left to register for one more ring, where there are as many
    /// of its kind already; else does without devices.
    fn pay_for_ring(&mut self, have: usize, own: &mut Own<'_>) {
        if have >= budget::LANES
            && let Err(why) = own.budget.register(self.cables.len() * RDMA_RING_BYTES)
        {
            (0..self.cables.len()).for_each(|cable| self.give_up(cable, &why, own));
        }
    }

    /// Makes a ring for a lane that the peer wants to send on.
    fn grant(&mut self, lane: usize, mailbox: Grant, own: &mut Own<'_>) -> Result<(), Fault> {
        if lane >= own.lanes || self.stage != Stage::Met || self.inbound[lane].is_some() {
            return Err("a ring that it cannot have was asked for".into());
        }
        self.pay_for_ring(self.rings(), own);
        let ring = Inbox::new(RDMA_RING_BYTES).map_err(no_memory)?;
        let in_any_order = own.settings.relaxed_ordering;
        let rights = self.rights(own, |pd| ring.expose(pd, in_any_order));
        for path in 0..self.paths.len() {
            if !self.paths[path].has_ended()
                && let Err(error) = self.paths[path].expect_lane()
            {
                self.lose(path, &words::connection(&error));
            }
        }
        let inbound = Inbound::new(ring, rights, mailbox);
        let grant = inbound.grant();
        self.inbound[lane] = Some(inbound);
        self.to_say.push_back(Message::Grant { lane, grant });
        Ok(())
    }

    /// Takes the ring that the peer made for us.
    fn open(&mut self, lane: usize, grant: Grant, own: &mut Own<'_>) -> Result<(), Fault> {
        if lane >= own.lanes || !matches!(self.outbound[lane].way, Way::Asked) {
            return Err("a ring that nobody asked for".into());
        }
        self.pay_for_ring(self.images(), own);
        let image = Outbox::new(RDMA_RING_BYTES).map_err(no_memory)?;
        let rights = self.rights(own, |pd| image.register(pd));
        let outbound = Outbound::new(lane, grant, image, rights);
        self.outbound[lane].way = Way::Open(Box::new(outbound));
        Ok(())
    }
}

fn no_memory(error: io::Error) -> Fault {
    Fault::Lost(format!("no memory for a ring of {RDMA_RING_BYTES} bytes: {error}"))
}

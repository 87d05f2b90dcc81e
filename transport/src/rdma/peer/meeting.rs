//! How two ranks come to have paths and rings: what either says, and what the other makes of it.

use std::io;

use ringfold_types::limits::{PATHS_MAX, RAILS_MAX, RDMA_RING_BYTES};

use super::{Cable, Fault, Own, Peer, Stage, Way};
use crate::rdma::inbound::Inbound;
use crate::rdma::message::{Grant, Message, RailCard};
use crate::rdma::outbound::Outbound;
use crate::rdma::pairing::pairs;
use crate::rdma::path::{Id, Path};
use crate::rdma::sys::{Inbox, Outbox, Pd, Target};
use crate::rdma::words;

impl Peer {
    /// Heeds what the peer says.
    pub(in crate::rdma) fn hear(
        &mut self,
        message: Message,
        own: &mut Own<'_>,
    ) -> Result<(), Fault> {
        match message {
            Message::Rails { rails, queue_pairs } => {
                self.greet(own);
                if self.stage != Stage::Greeting || !self.paths.is_empty() {
                    return Err("rails were told twice".into());
                }
                self.pair(&rails, queue_pairs, own)
            }
            Message::Offer { path, number, sequence } => {
                let target = Target { number, sequence };
                self.connect(path, target, own)
            }
            Message::Ready { path } => {
                self.path(path)?.is_ready = true;
                Ok(())
            }
            Message::Without { path } => {
                let it = self.path(path)?;
                if it.is_usable() {
                    self.lose(path, "the peer cannot use it any more");
                    return Ok(());
                }
                it.fail();
                self.give_up_without_paths(own)
            }
            Message::Heard { path, lanes } => {
                let it = self.path(path)?;
                if !it.is_dead || it.has_heard {
                    return Err("a path's end was told twice, or of one that is in use".into());
                }
                it.has_heard = true;
                for (lane, heard) in self.outbound.iter_mut().zip(lanes) {
                    if let Way::Open(outbound) = &mut lane.way {
                        outbound.lose(path, heard);
                    }
                }
                Ok(())
            }
            Message::Over => match &mut self.stage {
                Stage::Tcp { agreed } if !*agreed => {
                    *agreed = true;
                    Ok(())
                }
                _ => Err("RDMA was given up, though there are paths".into()),
            },
            Message::Want { lane } => self.grant(lane, own),
            Message::Grant { lane, grant } => self.open(lane, grant, own),
            Message::Bye { writes } => {
                self.promised = Some(writes);
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
        let mine = own.rails.cards();
        let is_lower = own.rank < self.rank;
        let pairs = if is_lower { pairs(&mine, theirs) } else { pairs(theirs, &mine) };
        self.stage = Stage::Rdma;
        let each = usize::from(queue_pairs.min(own.settings.queue_pairs)).max(1);
        for (low, high) in pairs.into_iter().take(PATHS_MAX / each) {
            let (rail, theirs) = if is_lower { (low, theirs[high]) } else { (high, theirs[low]) };
            let pd = Pd::new(&own.rails.0[rail].context)
                .map_err(|error| Fault::Lost(words::connection(&error)))?;
            self.cables.push(Cable { rail, pd, theirs });
            for _ in 0..each {
                self.make_path(own)?;
            }
        }
        self.give_up_without_paths(own)?;
        for lane in 0..own.lanes {
            if !self.outbound[lane].held.is_empty() {
                self.want(lane);
            }
        }
        Ok(())
    }

    /// Makes a path on the last cable.
    fn make_path(&mut self, own: &mut Own<'_>) -> Result<(), Fault> {
        let cable = self.cables.len() - 1;
        let Cable { rail, pd, .. } = &self.cables[cable];
        let id = Id { peer: self.rank, path: self.paths.len() };
        let path = Path::new(id, cable, &mut own.rails.0[*rail], pd, own.lanes);
        let path = path.map_err(|error| {
            Fault::Lost(format!("no queue pair: {}", words::connection(&error)))
        })?;
        let (number, sequence) = (path.number(), path.sequence);
        self.to_say.push_back(Message::Offer { path: id.path, number, sequence });
        self.paths.push(path);
        Ok(())
    }

    fn connect(&mut self, path: usize, target: Target, own: &Own<'_>) -> Result<(), Fault> {
        let rank = self.rank;
        let Some(it) = self.paths.get_mut(path) else { return Err("a path that is none".into()) };
        if it.is_connected {
            return Err("a path was offered twice".into());
        }
        if it.is_dead {
            return Ok(());
        }
        let cable = &self.cables[it.cable];
        let rail = &own.rails.0[cable.rail];
        match it.connect(rail, &cable.theirs, own.settings, target) {
            Ok(()) => {
                let (name, number) = (rail.context.name(), it.number());
                tracing::info!(
                    "rdma: path {path} to rank {rank}: {name}, queue pair {number} to {}",
                    target.number
                );
                self.to_say.push_back(Message::Ready { path });
                Ok(())
            }
            Err(error) => {
                let (name, why) = (rail.context.name(), words::connection(&error));
                tracing::warn!("rdma: no path {path} to rank {rank} by {name}: {why}");
                it.fail();
                self.to_say.push_back(Message::Without { path });
                self.give_up_without_paths(own)
            }
        }
    }

    /// Where no path is left, before any was used, TCP remains.
    pub(super) fn give_up_without_paths(&mut self, own: &Own<'_>) -> Result<(), Fault> {
        if self.stage != Stage::Rdma || self.paths.iter().any(|path| !path.is_dead) {
            return Ok(());
        }
        if self.sent > 0 || self.received > 0 {
            return Err(Fault::Lost("the last path is lost".to_owned()));
        }
        if !own.may_use_tcp {
            let why = "no rail of this host reaches one of the peer's, and RINGFOLD_TRANSPORT \
                       leaves no other way";
            return Err(Fault::Unreachable(why.to_owned()));
        }
        tracing::warn!("rdma: rank {}: no rails in common; using tcp", self.rank);
        self.stage = Stage::Tcp { agreed: false };
        self.to_say.push_back(Message::Over);
        Ok(())
    }

    /// Makes a ring for a lane that the peer wants to send on.
    fn grant(&mut self, lane: usize, own: &Own<'_>) -> Result<(), Fault> {
        if matches!(self.stage, Stage::Tcp { .. }) {
            // The peer will hear that there is no path.
            return Ok(());
        }
        if lane >= own.lanes || self.stage != Stage::Rdma || self.inbound[lane].is_some() {
            return Err("a ring that it cannot have was asked for".into());
        }
        let lost = |error: io::Error| Fault::Lost(words::registration(&error, RDMA_RING_BYTES));
        let ring = Inbox::new(RDMA_RING_BYTES).map_err(lost)?;
        let rights: io::Result<Vec<_>> =
            self.cables.iter().map(|cable| ring.expose(&cable.pd)).collect();
        let inbound = Inbound::new(ring, rights.map_err(lost)?);
        let mut keys = [0; RAILS_MAX];
        keys.iter_mut().zip(inbound.keys()).for_each(|(to, key)| *to = key);
        for path in self.paths.iter_mut().filter(|path| !path.is_dead) {
            path.expect_lane().map_err(|error| Fault::Lost(words::connection(&error)))?;
        }
        let grant = Grant { address: inbound.address(), keys };
        self.inbound[lane] = Some(inbound);
        self.to_say.push_back(Message::Grant { lane, grant });
        Ok(())
    }

    /// Takes the ring that the peer made for us.
    fn open(&mut self, lane: usize, grant: Grant, own: &Own<'_>) -> Result<(), Fault> {
        if matches!(self.stage, Stage::Tcp { .. }) {
            return Ok(());
        }
        if lane >= own.lanes || !matches!(self.outbound[lane].way, Way::Asked) {
            return Err("a ring that nobody asked for".into());
        }
        let lost = |error: io::Error| Fault::Lost(words::registration(&error, RDMA_RING_BYTES));
        let image = Outbox::new(RDMA_RING_BYTES).map_err(lost)?;
        let rights: io::Result<Vec<_>> =
            self.cables.iter().map(|cable| image.register(&cable.pd)).collect();
        let outbound = Outbound::new(lane, grant, image, rights.map_err(lost)?);
        self.outbound[lane].way = Way::Open(Box::new(outbound));
        Ok(())
    }
}

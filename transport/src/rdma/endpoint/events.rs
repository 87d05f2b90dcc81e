//! What devices report: completions, and what happens to their ports.

use ringfold_types::{Lane, Rank};

use super::{NAME, Rdma};
use crate::contract::{Link, LinkError, LinkFault, Transport as _};
use crate::rdma::path::Id;
use crate::rdma::sys::{Completion, Outcome};
use crate::rdma::words::FLUSHED;

impl Rdma {
    /// Heeds what happened to the devices: a port that is down takes its paths away.
    pub(super) fn heed_devices(&mut self) {
        for rail in 0..self.rails.0.len() {
            let it = &self.rails.0[rail];
            let mut has_news = false;
            while let Some(event) = it.context.event() {
                has_news = true;
                tracing::warn!("rdma: {}:{}: {event}", it.context.name(), it.port.number);
            }
            if !has_news || it.context.port(it.port.number).is_ok_and(|port| port.is_active) {
                continue;
            }
            let why = format!("{}:{} went down", it.context.name(), it.port.number);
            for rank in self.known.iter().copied().map(Rank::at).collect::<Vec<_>>() {
                self.change(rank, |peer, _| {
                    peer.paths_by(rail).into_iter().for_each(|path| peer.lose(path, &why));
                });
                self.recount(rank);
            }
        }
    }

    /// Takes all completions; whether there were any.
    pub(super) fn drain(&mut self) -> Result<bool, LinkError> {
        let mut completions = std::mem::take(&mut self.completions);
        for rail in &self.rails.0 {
            rail.poll(&mut completions).map_err(|error| LinkError {
                link: Link { peer: self.config.rank, lane: Lane(0) },
                transport: NAME,
                fault: LinkFault::Io(error),
            })?;
        }
        let moved = !completions.is_empty();
        for completion in completions.drain(..) {
            self.heed(completion);
        }
        self.completions = completions;
        Ok(moved)
    }

    fn heed(&mut self, Completion { id, outcome }: Completion) {
        let (Id { peer: rank, path }, posted) = Id::decode(id);
        let Some(Some(contact)) = self.contacts.get_mut(rank.index()) else { return };
        let peer = &mut contact.peer;
        match outcome {
            Outcome::Done => match (peer.paths.get_mut(path), posted) {
                (Some(path), Some(posted)) => path.done(posted),
                (Some(_), None) => {
                    peer.end("a message that is no write".into());
                    self.recount(rank);
                }
                (None, _) => {}
            },
            Outcome::Arrived(number) => {
                if let Err(fault) = peer.arrive(path, number) {
                    peer.end(fault);
                    self.recount(rank);
                }
            }
            Outcome::Failed { status, vendor } => {
                if let (Some(path), None) = (peer.paths.get_mut(path), posted) {
                    path.flushed();
                }
                let is_news = peer.paths.get(path).is_some_and(|path| !path.is_dead);
                if is_news && (status != FLUSHED || peer.fault().is_none()) {
                    // A peer that is gone explains it.
                    self.tcp.poll().ok();
                    self.listen(rank);
                }
                self.change(rank, |peer, own| peer.fail(path, status, vendor, own.settings));
                self.recount(rank);
            }
        }
    }
}

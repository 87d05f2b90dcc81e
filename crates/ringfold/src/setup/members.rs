//! The members of a group: the information of each, and the exchange of bytes among them.

use std::time::{Duration, Instant};

use ringfold_bootstrap::Control;
use ringfold_topology::statement::UnreadableEvidence;
use ringfold_types::Rank;
use ringfold_types::limits::OFFLOAD_OFFER_BYTES_MAX;

use super::error::InitError;
use super::peer_info::PeerInfo;
use super::settings::{Settings, compare_builds};

/// The ranks of a group that have met.
#[derive(Debug)]
pub(super) struct Members<'a> {
    /// The control plane of the group.
    pub(super) control: &'a Control,
    /// The information of each rank, in rank order.
    pub(super) infos: Vec<PeerInfo>,
    /// The time by which all ranks must have connected.
    pub(super) deadline: Instant,
}

impl<'a> Members<'a> {
    /// Compares the builds of all ranks of this `control` plane, reads their `infos`, and compares
    /// their settings.
    ///
    /// # Errors
    /// The information of a rank cannot be read, or builds or settings differ.
    pub(super) fn new(
        control: &'a Control,
        infos: &[Vec<u8>],
        deadline: Instant,
    ) -> Result<Self, InitError> {
        compare_builds(infos.iter().map(|info| PeerInfo::build_of(info)))?;
        let decode = |(rank, info): (usize, &Vec<u8>)| {
            let rank = Rank::at(rank);
            PeerInfo::decode(info).map_err(|source| InitError::PeerInfo { rank, source })
        };
        let infos: Vec<PeerInfo> =
            infos.iter().enumerate().map(decode).collect::<Result<_, _>>()?;
        Settings::compare(infos.iter().map(|info| &info.settings))?;
        Ok(Self { control, infos, deadline })
    }

    /// This rank.
    pub(super) const fn rank(&self) -> Rank {
        self.control.rank()
    }

    /// The information of this rank.
    pub(super) fn own(&self) -> &PeerInfo {
        &self.infos[self.rank().index()]
    }

    /// Sends `bytes` to every rank and returns the bytes of all, in rank order. No rank has more
    /// than `longest` bytes. Ranks send several pieces if a message has no room for all. Blocks.
    ///
    /// # Errors
    /// The exchange fails, or a rank sends more than `limits::OFFLOAD_OFFER_BYTES_MAX` bytes.
    pub(super) fn exchange(&self, bytes: &[u8], longest: usize) -> Result<Vec<Vec<u8>>, InitError> {
        let (rank, size) = (self.rank(), self.control.size());
        let share = Control::exchange_bytes_max(size).max(1);
        let mut all = vec![Vec::new(); size];
        for turn in 0..longest.div_ceil(share).max(1) {
            let piece = bytes.iter().skip(turn * share).take(share).copied().collect();
            let left = self.deadline.saturating_duration_since(Instant::now());
            let pieces = self.control.exchange(piece, left.max(Duration::from_millis(1)));
            let pieces = pieces.map_err(|source| InitError::Exchange { rank, source })?;
            for (from, (all, piece)) in all.iter_mut().zip(pieces).enumerate() {
                if all.len() + piece.len() > OFFLOAD_OFFER_BYTES_MAX {
                    return Err(unreadable(Rank::at(from)));
                }
                all.extend(piece);
            }
        }
        Ok(all)
    }
}

/// The error of evidence that cannot be read.
pub(super) const fn unreadable(rank: Rank) -> InitError {
    InitError::Evidence { rank, source: UnreadableEvidence }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use ringfold_bootstrap::{Identity, Launcher, Options, Rendezvous, SecretSource};

    use super::super::settings::build;
    use super::*;
    use crate::communicator::Communicator;
    use crate::config::Config;
    use crate::unique_id::UniqueId;

    /// The information of the other build has other lines.
    #[test]
    fn ranks_of_other_sources_are_refused_with_both_before_their_information_is_read() {
        let (config, size) = (Config::default(), 2);
        let id = UniqueId::new(&config).unwrap();
        let rendezvous = Rendezvous::Ports {
            hosts: vec![id.address().ip().to_string()],
            named_by: "the test",
            ports: vec![id.address().port()],
        };
        let identity = Identity {
            rank: Rank(1),
            size,
            job: "unique id".to_owned(),
            rendezvous,
            launcher: Launcher::Alone,
            secret_source: SecretSource::None,
        };
        let (theirs, secret) = ("9.9.9+0123456789ab", id.secret().clone());
        let other = thread::spawn(move || {
            let info = format!("{theirs}\nanother line").into_bytes();
            let (control, infos) =
                Control::join(identity, secret, info, Options::default()).unwrap();
            let error = Members::new(&control, &infos, Instant::now()).unwrap_err();
            control.leave().unwrap();
            error.to_string()
        });
        let error = Communicator::init_with_id(&config, &id, Rank(0), size).unwrap_err();
        let text = format!(
            "ranks differ in the version and sources of ringfold: rank 0 has {}, rank 1 has \
             {theirs}; give all of them the same",
            build()
        );
        assert_eq!((error.to_string(), other.join().unwrap()), (text.clone(), text));
    }
}

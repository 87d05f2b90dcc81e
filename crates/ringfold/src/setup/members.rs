//! The members of a group: the information of each, and the exchange of bytes among them.

use std::time::{Duration, Instant};

use ringfold_bootstrap::Control;
use ringfold_types::Rank;
use ringfold_types::limits::OFFLOAD_OFFER_BYTES_MAX;

use super::error::{InitError, UnreadableEvidence};
use super::peer_info::PeerInfo;
use super::settings::Settings;

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
    /// Reads the `infos` of all ranks of this `control` plane, and compares their settings.
    ///
    /// # Errors
    /// The information of a rank cannot be read, or settings differ that must be the same.
    pub(super) fn new(
        control: &'a Control,
        infos: &[Vec<u8>],
        deadline: Instant,
    ) -> Result<Self, InitError> {
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

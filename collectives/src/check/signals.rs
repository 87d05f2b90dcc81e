//! The signals that ranks have sent to all others, and how many of them each has seen.
//!
//! A signal overwrites the one `SIGNALS_MAX` before it, so no rank may get that far ahead of the
//! slowest receiver. The clock of this run cannot tell how far a rank is ahead, because it shows
//! one timing only. The ranks' knowledge of each other can: a signal also says how many signals its
//! sender has seen so far. For all a rank knows, half of `SIGNALS_MAX` are still unseen when a call
//! begins. It leaves no more than that to the next call. A sequence of calls begins with none.

use alloc::vec::Vec;

use ringfold_types::Rank;
use ringfold_types::limits::SIGNALS_MAX;

use super::flaw::Flaw;
use super::races::Clock;

/// Signals that others may not have seen yet when a call ends.
const UNSEEN_AT_END: usize = SIGNALS_MAX / 2;

pub(super) struct Signals {
    /// By rank.
    peers: Vec<Peer>,
    /// Signals from before the first call that others may not have seen yet.
    before: usize,
}

struct Peer {
    sent: Vec<Signal>,
    /// How many signals of each other rank it has seen.
    seen: Vec<usize>,
    /// How many of its own signals each other rank had seen, according to that rank's last signal.
    known: Vec<Option<usize>>,
}

/// One signal.
struct Signal {
    /// The clock of its sender.
    clock: Clock,
    /// Length of the chain of messages to it.
    depth: usize,
    /// The number of its call.
    call: usize,
    /// How many signals of each rank its sender had seen.
    seen: Vec<usize>,
}

impl Signals {
    /// The signals of `size` ranks. With `follows`, the ranks may be in an earlier call.
    pub(super) fn new(size: usize, follows: bool) -> Self {
        let peer = |_| Peer {
            sent: Vec::new(),
            seen: alloc::vec![0; size],
            known: alloc::vec![None; size],
        };
        let before = if follows { UNSEEN_AT_END } else { 0 };
        Self { peers: (0..size).map(peer).collect(), before }
    }

    /// Number of signals of `rank` that some other rank may not have seen.
    fn unseen(&self, rank: usize) -> usize {
        let Peer { sent, known, .. } = &self.peers[rank];
        let by = |(other, known): (usize, &Option<usize>)| match known {
            _ if other == rank => 0,
            Some(seen) => sent.len() - seen,
            None => sent.len() + self.before,
        };
        known.iter().enumerate().map(by).max().unwrap_or(0)
    }

    /// Checks, when the calls have ended, that all ranks have seen all signals, and that each
    /// sender knows of enough of that.
    pub(super) fn end(&self) -> Result<(), Flaw> {
        for (at, rank) in (0..self.peers.len()).map(|at| (at, Rank::at(at))) {
            let seen = |(_, other): &(usize, &Peer)| other.seen[at] == self.peers[at].sent.len();
            let mut others = self.peers.iter().enumerate().filter(|(other, _)| *other != at);
            if let Some((late, _)) = others.find(|other| !seen(other)) {
                return Err(Flaw::Unreceived { rank: Rank::at(late), from: rank });
            }
            if self.unseen(at) > UNSEEN_AT_END {
                return Err(Flaw::Signal { rank });
            }
        }
        Ok(())
    }

    /// A rank signals in a call. `clock` is that of its lane, and `depth` the length of the chain
    /// to this signal.
    pub(super) fn signal(
        &mut self,
        (index, call): (usize, usize),
        clock: Clock,
        depth: usize,
    ) -> Result<(), Flaw> {
        let peer = &mut self.peers[index];
        peer.sent.push(Signal { clock, depth, call, seen: peer.seen.clone() });
        if self.unseen(index) > SIGNALS_MAX {
            return Err(Flaw::Signal { rank: Rank::at(index) });
        }
        Ok(())
    }

    /// The next signal of rank `at` that rank `index` has not seen, if there is one: its clock and
    /// the length of the chain to it.
    ///
    /// # Errors
    /// The signal is of another call.
    pub(super) fn wait(
        &mut self,
        (index, call): (usize, usize),
        at: usize,
    ) -> Result<Option<(Clock, usize)>, Flaw> {
        let next = self.peers[index].seen[at];
        let Some(signal) = self.peers[at].sent.get(next) else { return Ok(None) };
        if signal.call != call {
            return Err(Flaw::Foreign { rank: Rank::at(index), from: Rank::at(at) });
        }
        let (clock, depth, known) = (Clock::clone(&signal.clock), signal.depth, signal.seen[index]);
        let peer = &mut self.peers[index];
        peer.seen[at] += 1;
        peer.known[at] = Some(known);
        Ok(Some((clock, depth)))
    }
}

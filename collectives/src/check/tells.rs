//! What ranks have told all others at once, and how much of it each has heard.
//!
//! A tell takes the place of the one `TELLS_MAX` before it, so nobody may come that far ahead of
//! who hears it. How far that is, no clock of this run may say, but what ranks know of each other:
//! who tells, tells also how much it had heard by then. Ranks begin a call with half of all places
//! still unheard, for all they know, and leave no more than that to the next.

use alloc::vec::Vec;

use ringfold_types::Rank;
use ringfold_types::limits::TELLS_MAX;

use super::flaw::Flaw;
use super::races::Clock;

/// Tells that others may not have heard yet when a call ends.
const LEFT: usize = TELLS_MAX / 2;

pub(super) struct Tells {
    /// By rank.
    tellers: Vec<Teller>,
}

struct Teller {
    told: Vec<Told>,
    /// How many tells of each other it has heard.
    heard: Vec<usize>,
    /// And how many of its own each other had heard, as it has since learnt.
    known: Vec<Option<usize>>,
}

/// One tell.
struct Told {
    /// What the teller knew,
    clock: Clock,
    /// how long the chain to it is,
    depth: usize,
    /// and how many tells of each rank it had heard.
    heard: Vec<usize>,
}

impl Tells {
    pub(super) fn new(size: usize) -> Self {
        let teller = |_| Teller {
            told: Vec::new(),
            heard: alloc::vec![0; size],
            known: alloc::vec![None; size],
        };
        Self { tellers: (0..size).map(teller).collect() }
    }

    /// Tells of `rank` that some other may not have heard.
    fn unheard(&self, rank: usize) -> usize {
        let Teller { told, known, .. } = &self.tellers[rank];
        let by = |(other, known): (usize, &Option<usize>)| match known {
            _ if other == rank => 0,
            Some(heard) => told.len() - heard,
            None => told.len() + LEFT,
        };
        known.iter().enumerate().map(by).max().unwrap_or(0)
    }

    /// The calls have ended: the first rank of which another has not heard all, and that other; or
    /// the first of which too much may be unheard.
    pub(super) fn end(&self) -> Result<(), Flaw> {
        for (at, rank) in (0..self.tellers.len()).map(|at| (at, Rank::at(at))) {
            let heard =
                |(_, other): &(usize, &Teller)| other.heard[at] == self.tellers[at].told.len();
            let mut others = self.tellers.iter().enumerate().filter(|(other, _)| *other != at);
            if let Some((deaf, _)) = others.find(|other| !heard(other)) {
                return Err(Flaw::Unreceived { rank: Rank::at(deaf), from: rank });
            }
            if self.unheard(at) > LEFT {
                return Err(Flaw::Tell { rank });
            }
        }
        Ok(())
    }

    /// A rank signals. `clock` is what its lane knows, and `depth` the length of the chain to this
    /// signal.
    pub(super) fn tell(&mut self, index: usize, clock: Clock, depth: usize) -> Result<(), Flaw> {
        let teller = &mut self.tellers[index];
        teller.told.push(Told { clock, depth, heard: teller.heard.clone() });
        if self.unheard(index) > TELLS_MAX {
            return Err(Flaw::Tell { rank: Rank::at(index) });
        }
        Ok(())
    }

    /// The next signal of rank `at` that rank `index` has not heard, if there is one: its clock,
    /// and the length of the chain to it.
    pub(super) fn hear(&mut self, index: usize, at: usize) -> Option<(Clock, usize)> {
        let next = self.tellers[index].heard[at];
        let told = self.tellers[at].told.get(next)?;
        let (clock, depth, known) = (Clock::clone(&told.clock), told.depth, told.heard[index]);
        let hearer = &mut self.tellers[index];
        hearer.heard[at] += 1;
        hearer.known[at] = Some(known);
        Some((clock, depth))
    }
}

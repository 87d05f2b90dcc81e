//! What ranks have told all others at once, and how much of it each has heard.
//!
//! A tell takes the place of the one `TELLS_MAX` before it, so nobody may come that far ahead of
//! who hears it. How far that is, no clock of this run may say, but what ranks know of each other:
//! who tells, tells also how much it had heard by then. Ranks begin a call with half of all places
//! still unheard, for all they know, and leave no more than that to the next.

use alloc::vec::Vec;

use ringfold_types::limits::TELLS_MAX;
use ringfold_types::{Buffer, Rank, Slice};

use super::Flaw;
use super::races::Clock;
use super::world::World;

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
}

impl World<'_> {
    pub(super) fn tell(&mut self, index: usize, lane: usize) -> Result<usize, Flaw> {
        let flaw = Flaw::Tell { rank: Rank::at(index) };
        let (Some(races), Some(tells)) = (&mut self.races, &mut self.tells) else {
            return Err(flaw);
        };
        if self.schedules[index].lanes().len() > 1 {
            return Err(flaw);
        }
        let teller = &mut tells.tellers[index];
        let (clock, depth) = (races.tell((index, lane)), self.nodes[index].depth[lane] + 1);
        teller.told.push(Told { clock, depth, heard: teller.heard.clone() });
        if tells.unheard(index) > TELLS_MAX {
            return Err(flaw);
        }
        self.nodes[index].sent += 1;
        self.nodes.iter_mut().for_each(|node| node.is_awake = true);
        Ok(1)
    }

    pub(super) fn hear(&mut self, index: usize, lane: usize, from: Rank) -> Result<usize, Flaw> {
        let (rank, at) = (Rank::at(index), from.index());
        if at >= self.nodes.len() || from == rank {
            return Err(Flaw::Bounds { rank, slice: Slice::new(Buffer::Stage, 0, 0) });
        }
        let (Some(races), Some(tells)) = (&mut self.races, &mut self.tells) else {
            return Err(Flaw::Tell { rank });
        };
        let next = tells.tellers[index].heard[at];
        let Some(told) = tells.tellers[at].told.get(next) else { return Ok(0) };
        races.hear((index, lane), &told.clock);
        let (depth, known) = (told.depth, told.heard[index]);
        let node = &mut self.nodes[index];
        node.depth[lane] = node.depth[lane].max(depth);
        let hearer = &mut tells.tellers[index];
        hearer.heard[at] += 1;
        hearer.known[at] = Some(known);
        Ok(1)
    }
}

//! Assigns coordinators to ranks. Does no I/O.
//!
//! Every rank goes to each coordinator once, in the order in which rank 0 opened them. A
//! coordinator that closes before a rank has come has given up on that rank, which then goes to the
//! next one. So ranks that try again after a failure find each other. Memory is bounded by
//! `limits::COORDINATORS_MAX` coordinators and a number per rank, no matter how often the job
//! meets.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use ringfold_types::{Rank, limits};
use serde::{Deserialize, Serialize};

/// Votes of the launcher in a job: one for each failure that halves a group.
const VOTES_MAX: usize = 4096;

/// A rank whose program has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The number of the rank.
    pub rank: u32,
    /// How it ended, as in `exit status 0`.
    pub how: String,
}

/// The open coordinators of one job, and the next coordinator of each rank.
#[derive(Debug)]
pub(super) struct Registry {
    opened: u64,
    /// The open coordinators, by growing number.
    open: VecDeque<(u64, SocketAddr)>,
    /// By rank, the lowest number of a coordinator that the rank has not visited.
    next: Vec<u64>,
    /// By rank, whether its program has ended.
    has_ended: Vec<bool>,
    /// The ranks whose programs have ended, in this order.
    ended: Vec<Ended>,
    /// The doors of groups that take newcomers, by growing number.
    doors: Vec<(u64, String)>,
    /// By rank, whether it is a newcomer that asks for a door.
    seeks: Vec<bool>,
    /// By group, the members that have the launcher's vote.
    votes: BTreeMap<[u8; 32], [u8; 32]>,
}

impl Registry {
    pub(super) fn new(size: usize) -> Self {
        let next = vec![0; size.min(limits::RANKS_MAX)];
        let (open, has_ended) = (VecDeque::new(), vec![false; next.len()]);
        let seeks = has_ended.clone();
        let (ended, doors) = (Vec::new(), Vec::new());
        let votes = BTreeMap::new();
        Self { opened: 0, open, next, has_ended, ended, doors, seeks, votes }
    }

    /// Whether `rank` may ask. Rank 0 knows its own coordinators.
    pub(super) fn knows(&self, rank: u32) -> bool {
        rank != 0 && Rank(rank).index() < self.next.len()
    }

    /// Adds a coordinator and returns its number, unless there are too many.
    pub(super) fn open(&mut self, coordinator: SocketAddr) -> Option<u64> {
        if self.open.len() >= limits::COORDINATORS_MAX {
            return None;
        }
        let number = self.opened;
        self.opened += 1;
        self.open.push_back((number, coordinator));
        Some(number)
    }

    /// Whether there is such a rank.
    pub(super) fn is_rank(&self, rank: u32) -> bool {
        Rank(rank).index() < self.next.len()
    }

    /// Adds a door and returns its number. The oldest gives way to one too many.
    pub(super) fn show(&mut self, door: String) -> u64 {
        if self.doors.len() >= limits::COORDINATORS_MAX {
            self.doors.remove(0);
        }
        self.opened += 1;
        self.doors.push((self.opened, door));
        self.opened
    }

    /// Removes a door that is closed.
    pub(super) fn take_down(&mut self, number: u64) {
        self.doors.retain(|(open, _)| *open != number);
    }

    /// The newest door.
    pub(super) fn door(&self) -> Option<String> {
        self.doors.last().map(|(_, door)| door.clone())
    }

    /// A newcomer asks for a door.
    pub(super) fn seek(&mut self, rank: u32) {
        if let Some(seeks) = self.seeks.get_mut(Rank(rank).index()) {
            *seeks = true;
        }
    }

    /// A newcomer asks no more. It lives if it has an answer.
    pub(super) fn found(&mut self, rank: u32, has_answer: bool) {
        let at = Rank(rank).index();
        if let (Some(seeks), Some(ended)) = (self.seeks.get_mut(at), self.has_ended.get_mut(at)) {
            *seeks = false;
            *ended &= !has_answer;
        }
    }

    /// Whether all ranks have ended, or are newcomers that ask for a door.
    pub(super) fn is_abandoned(&self) -> bool {
        self.seeks.iter().zip(&self.has_ended).all(|(seeks, ended)| *seeks || *ended)
    }

    /// Gives the vote in a group to the first members that ask, for ever. Returns whether these
    /// have it.
    pub(super) fn vote(&mut self, group: [u8; 32], members: [u8; 32]) -> bool {
        if self.votes.len() >= VOTES_MAX && !self.votes.contains_key(&group) {
            return false;
        }
        *self.votes.entry(group).or_insert(members) == members
    }

    /// Removes a coordinator that has ended.
    pub(super) fn close(&mut self, number: u64) {
        self.open.retain(|(open, _)| *open != number);
    }

    /// Notes the end of a rank's program, once.
    pub(super) fn end(&mut self, ended: Ended) {
        let has_ended = self.has_ended.get_mut(Rank(ended.rank).index());
        if has_ended.is_some_and(|has_ended| !std::mem::replace(has_ended, true)) {
            self.ended.push(ended);
        }
    }

    /// The end of this rank's program, if it has ended.
    pub(super) fn ended(&self, rank: u32) -> Option<Ended> {
        let has_ended = self.has_ended.get(Rank(rank).index()) == Some(&true);
        self.ended.iter().filter(|_| has_ended).find(|ended| ended.rank == rank).cloned()
    }

    /// The ends of all programs that have ended, in their order.
    pub(super) fn all_ended(&self) -> &[Ended] {
        &self.ended
    }

    /// Whether there is a coordinator that `rank` has not visited, or rank 0 has ended.
    pub(super) fn has_news(&self, rank: u32) -> bool {
        self.find(rank).is_some() || self.ended(0).is_some()
    }

    /// The first coordinator that `rank` has not visited, which counts as visited from now on.
    pub(super) fn take_next(&mut self, rank: u32) -> Option<SocketAddr> {
        let (number, coordinator) = self.find(rank)?;
        *self.next.get_mut(Rank(rank).index())? = number + 1;
        Some(coordinator)
    }

    fn find(&self, rank: u32) -> Option<(u64, SocketAddr)> {
        let next = *self.next.get(Rank(rank).index())?;
        self.open.iter().find(|(number, _)| *number >= next).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coordinator(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn every_rank_goes_to_every_coordinator_once_and_in_order() {
        let mut registry = Registry::new(3);
        assert!(!registry.has_news(1));
        assert_eq!(
            (registry.open(coordinator(10)), registry.open(coordinator(11))),
            (Some(0), Some(1))
        );
        let mut went = |rank| std::iter::from_fn(|| registry.take_next(rank)).collect::<Vec<_>>();
        assert_eq!(
            (went(1), went(2)),
            (vec![coordinator(10), coordinator(11)], vec![coordinator(10), coordinator(11)])
        );
        assert!(!registry.has_news(1) && !registry.has_news(2));
        assert_eq!(registry.open(coordinator(10)), Some(2));
        assert_eq!(registry.take_next(2), Some(coordinator(10)));
    }

    #[test]
    fn a_coordinator_that_gave_up_is_passed_over() {
        let mut registry = Registry::new(2);
        let first = registry.open(coordinator(10)).unwrap();
        registry.close(first);
        assert!(!registry.has_news(1));
        registry.open(coordinator(11)).unwrap();
        assert_eq!(registry.take_next(1), Some(coordinator(11)));
    }

    #[test]
    fn the_end_of_a_rank_is_noted_once() {
        let mut registry = Registry::new(2);
        let ended = |rank, how: &str| Ended { rank, how: how.to_owned() };
        for news in [ended(1, "exit status 0"), ended(1, "again"), ended(2, "no rank")] {
            registry.end(news);
        }
        assert_eq!(registry.all_ended(), [ended(1, "exit status 0")]);
        assert_eq!(registry.ended(1), Some(ended(1, "exit status 0")));
        assert_eq!((registry.ended(0), registry.ended(u32::MAX)), (None, None));
    }

    #[test]
    fn newcomers_get_the_newest_door_or_learn_that_nobody_is_left() {
        let mut registry = Registry::new(3);
        assert!(registry.is_rank(2) && !registry.is_rank(3) && !registry.is_rank(u32::MAX));
        let ended = |rank| Ended { rank, how: "killed".to_owned() };
        registry.end(ended(2));
        registry.seek(2);
        assert!(registry.door().is_none() && !registry.is_abandoned());
        let [first, second] = ["first", "second"].map(|door| registry.show(door.to_owned()));
        assert_eq!(registry.door().unwrap(), "second");
        registry.take_down(second);
        assert_eq!(registry.door().unwrap(), "first");
        registry.take_down(first);
        registry.found(2, true);
        // It lives now, and the others have ended.
        registry.end(ended(0));
        registry.end(ended(1));
        assert!(registry.door().is_none() && !registry.is_abandoned());
        registry.seek(1);
        registry.seek(2);
        assert!(registry.is_abandoned());
        for number in 0..=limits::COORDINATORS_MAX {
            registry.show(number.to_string());
        }
        assert_eq!(registry.doors.len(), limits::COORDINATORS_MAX);
        registry.seek(u32::MAX);
        registry.found(u32::MAX, true);
    }

    #[test]
    fn the_first_members_of_a_group_have_the_vote_for_ever() {
        let mut registry = Registry::new(4);
        let vote = |registry: &mut Registry, group: usize, members| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&group.to_le_bytes());
            registry.vote(key, [members; 32])
        };
        assert!(vote(&mut registry, 1, 5) && !vote(&mut registry, 1, 6));
        assert!(vote(&mut registry, 1, 5) && vote(&mut registry, 2, 6));
        assert!((3..=VOTES_MAX).all(|group| vote(&mut registry, group, 7)));
        assert!(!vote(&mut registry, 0, 7), "there are too many");
        assert!(vote(&mut registry, 2, 6));
    }

    #[test]
    fn unknown_ranks_and_many_coordinators_take_no_memory() {
        let mut registry = Registry::new(2);
        assert!(
            !registry.knows(0)
                && registry.knows(1)
                && !registry.knows(2)
                && !registry.knows(u32::MAX)
        );
        assert_eq!(registry.take_next(u32::MAX), None);
        let numbers: Vec<_> =
            (0..limits::COORDINATORS_MAX).filter_map(|_| registry.open(coordinator(1))).collect();
        assert_eq!(
            (numbers.len(), registry.open(coordinator(1))),
            (limits::COORDINATORS_MAX, None)
        );
        registry.close(numbers[0]);
        assert!(registry.open(coordinator(1)).is_some());
    }
}

//! Which hub is whose next: pure, so that it can be tested without sockets.
//!
//! Every rank goes to each hub once, in the order in which rank 0 opened them. A hub that closes
//! before a rank has come to it has given up waiting for that rank, which is then meant for the
//! next one; so ranks that try again after a failure meet again. Bounded by `limits::HUBS_MAX` hubs
//! and a number per rank, however often the job meets.

use std::collections::VecDeque;
use std::net::SocketAddr;

use ringfold_types::{Rank, limits};

/// The hubs of one job that are open, and who has been to which.
#[derive(Debug)]
pub(super) struct Board {
    opened: u64,
    /// By growing number.
    open: VecDeque<(u64, SocketAddr)>,
    /// By rank, the lowest number that it has not been to.
    next: Vec<u64>,
}

impl Board {
    pub(super) fn new(size: usize) -> Self {
        Self { opened: 0, open: VecDeque::new(), next: vec![0; size.min(limits::RANKS_MAX)] }
    }

    /// Whether that is a rank that asks; rank 0 knows where its hubs are.
    pub(super) fn knows(&self, rank: u32) -> bool {
        rank != 0 && Rank(rank).index() < self.next.len()
    }

    /// A hub listens there; its number, unless there are too many.
    pub(super) fn open(&mut self, hub: SocketAddr) -> Option<u64> {
        if self.open.len() >= limits::HUBS_MAX {
            return None;
        }
        let number = self.opened;
        self.opened += 1;
        self.open.push_back((number, hub));
        Some(number)
    }

    /// That hub has ended.
    pub(super) fn close(&mut self, number: u64) {
        self.open.retain(|(open, _)| *open != number);
    }

    /// Whether there is a hub that `rank` has not been to.
    pub(super) fn has_next(&self, rank: u32) -> bool {
        self.find(rank).is_some()
    }

    /// Sends `rank` to the first hub that it has not been to.
    pub(super) fn take_next(&mut self, rank: u32) -> Option<SocketAddr> {
        let (number, hub) = self.find(rank)?;
        *self.next.get_mut(Rank(rank).index())? = number + 1;
        Some(hub)
    }

    fn find(&self, rank: u32) -> Option<(u64, SocketAddr)> {
        let next = *self.next.get(Rank(rank).index())?;
        self.open.iter().find(|(number, _)| *number >= next).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn every_rank_goes_to_every_hub_once_and_in_order() {
        let mut board = Board::new(3);
        assert!(!board.has_next(1));
        assert_eq!((board.open(hub(10)), board.open(hub(11))), (Some(0), Some(1)));
        let mut went = |rank| std::iter::from_fn(|| board.take_next(rank)).collect::<Vec<_>>();
        assert_eq!((went(1), went(2)), (vec![hub(10), hub(11)], vec![hub(10), hub(11)]));
        assert!(!board.has_next(1) && !board.has_next(2));
        assert_eq!(board.open(hub(10)), Some(2));
        assert_eq!(board.take_next(2), Some(hub(10)));
    }

    #[test]
    fn a_hub_that_gave_up_is_passed_over() {
        let mut board = Board::new(2);
        let first = board.open(hub(10)).unwrap();
        board.close(first);
        assert!(!board.has_next(1));
        board.open(hub(11)).unwrap();
        assert_eq!(board.take_next(1), Some(hub(11)));
    }

    #[test]
    fn strangers_and_crowds_take_no_memory() {
        let mut board = Board::new(2);
        assert!(!board.knows(0) && board.knows(1) && !board.knows(2) && !board.knows(u32::MAX));
        assert_eq!(board.take_next(u32::MAX), None);
        let numbers: Vec<_> = (0..limits::HUBS_MAX).filter_map(|_| board.open(hub(1))).collect();
        assert_eq!((numbers.len(), board.open(hub(1))), (limits::HUBS_MAX, None));
        board.close(numbers[0]);
        assert!(board.open(hub(1)).is_some());
    }
}

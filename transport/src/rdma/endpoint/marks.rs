//! The contacts that need a visit.

use ringfold_types::Rank;

/// A set of ranks, in the order in which they were marked. Once it has been full, marks allocate
/// nothing.
#[derive(Debug)]
pub(super) struct Marks {
    is_marked: Vec<bool>,
    marked: Vec<Rank>,
    /// Room for the marks that come during a visit.
    spare: Vec<Rank>,
}

impl Marks {
    pub(super) fn new(ranks: usize) -> Self {
        Self { is_marked: vec![false; ranks], marked: Vec::new(), spare: Vec::new() }
    }

    pub(super) fn mark(&mut self, rank: Rank) {
        if !std::mem::replace(&mut self.is_marked[rank.index()], true) {
            self.marked.push(rank);
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.marked.is_empty()
    }

    /// Takes all marks for a visit, which may mark ranks again. `put_back` takes the room.
    pub(super) fn take(&mut self) -> Vec<Rank> {
        for rank in &self.marked {
            self.is_marked[rank.index()] = false;
        }
        std::mem::replace(&mut self.marked, std::mem::take(&mut self.spare))
    }

    pub(super) fn put_back(&mut self, mut room: Vec<Rank>) {
        room.clear();
        self.spare = room;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_visited_once_for_many_marks() {
        let mut marks = Marks::new(3);
        [2, 0, 2].into_iter().for_each(|rank| marks.mark(Rank(rank)));
        let visited = marks.take();
        assert_eq!(visited, [Rank(2), Rank(0)]);
        marks.mark(Rank(0));
        marks.put_back(visited);
        assert_eq!(marks.take(), [Rank(0)]);
        assert!(marks.is_empty());
    }
}

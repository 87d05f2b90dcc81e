//! Whether the messages of a call stay on their rails. Each algorithm states it, because selection
//! has no time for the schedules of all ranks.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ringfold_topology::{Layout, Level, Order, Reach};
use ringfold_types::{Call, Rank};

use crate::pattern::halves::halvings;
use crate::pattern::host_tree::RootedTree;

/// Whether messages between the ranks of each of these pairs stay.
pub(crate) fn stay(layout: &Layout, pairs: impl IntoIterator<Item = [Rank; 2]>) -> bool {
    pairs.into_iter().all(|[a, b]| !layout.leaves_rail(a, b))
}

/// For algorithms whose messages, if any, are between ranks of one host.
pub(crate) const fn always(_: &Call, _: &Layout) -> bool {
    true
}

/// For algorithms by which every rank sends to every other.
pub(crate) fn among_all(_: &Call, layout: &Layout) -> bool {
    among(layout, ranks(layout))
}

/// Whether messages between any two of these ranks stay. Two ranks on different machines stand for
/// all that reach the same rails.
pub(crate) fn among(layout: &Layout, ranks: impl IntoIterator<Item = Rank>) -> bool {
    let mut kinds: BTreeMap<Reach, Vec<Rank>> = BTreeMap::new();
    for rank in ranks {
        let kind = kinds.entry(layout.reach(rank).reaches).or_default();
        if kind.len() < 2 && kind.iter().all(|it| layout.level(*it, rank) != Level::Host) {
            kind.push(rank);
        }
    }
    let known: Vec<Rank> = kinds.into_values().flatten().collect();
    known.iter().all(|a| stay(layout, known.iter().map(|b| [*a, *b])))
}

/// Whether messages over these distances stay, around a circle of all ranks in an order.
pub(crate) fn around(
    layout: &Layout,
    order: &Order,
    distances: impl IntoIterator<Item = usize>,
) -> bool {
    let size = layout.size();
    let of = |distance| (0..size).map(move |at| [at, (at + distance) % size]);
    let pairs = distances.into_iter().flat_map(of);
    stay(layout, pairs.map(|pair| pair.map(|place| order.at(place))))
}

/// The same from the first rank of the order to the last.
pub(crate) fn onward(
    layout: &Layout,
    order: &Order,
    distances: impl IntoIterator<Item = usize>,
) -> bool {
    let of = |distance| (distance..layout.size()).map(move |at| [at - distance, at]);
    let pairs = distances.into_iter().flat_map(of);
    stay(layout, pairs.map(|pair| pair.map(|place| order.at(place))))
}

/// For rings.
pub(crate) fn in_ring(_: &Call, layout: &Layout) -> bool {
    around(layout, layout.ring(), [1])
}

/// For chains that begin or end at the root.
pub(crate) fn in_chain(call: &Call, layout: &Layout) -> bool {
    onward(layout, &layout.chain_from(call.root), [1])
}

/// For chains in the order of the ranks' numbers.
pub(crate) fn in_rank_order(_: &Call, layout: &Layout) -> bool {
    onward(layout, &Order::default(), [1])
}

/// For the halves of `pattern::halves`.
pub(crate) fn in_halves(_: &Call, layout: &Layout) -> bool {
    let of = |rank| halvings(rank, layout.size()).map(move |it| [rank, it.taker]);
    stay(layout, ranks(layout).flat_map(of))
}

/// For trees below the root.
pub(crate) fn in_tree(call: &Call, layout: &Layout) -> bool {
    let tree = RootedTree::new(layout, call.root);
    let above = |rank| tree.place(rank).parent.map(|parent| [rank, parent]);
    stay(layout, ranks(layout).filter_map(above))
}

/// For algorithms by which the root exchanges messages with every other rank.
pub(crate) fn at_root(call: &Call, layout: &Layout) -> bool {
    stay(layout, ranks(layout).map(|rank| [call.root, rank]))
}

/// All ranks, or all places.
pub(crate) fn ranks(layout: &Layout) -> impl Iterator<Item = Rank> + use<> {
    (0..layout.size()).map(Rank::at)
}

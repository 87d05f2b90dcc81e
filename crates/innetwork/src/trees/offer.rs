//! The trees of aggregators that rank 0 has found, as it tells the other ranks.

use std::sync::Arc;

use ringfold_bootstrap::Secret;
use ringfold_topology::{Aggregation, AggregationTree};
use ringfold_types::limits::{
    AGGREGATOR_CHILDREN_MAX, AGGREGATOR_LEVELS_MAX, CHANNELS_MAX, OFFLOAD_CHUNK_BYTES,
    OFFLOAD_LEAVES_MAX, OFFLOAD_WINDOW,
};
use serde::{Deserialize, Serialize};

use super::grant::{LeafGrant, key};
use crate::RdmaDevices;
use crate::contract::Provider as _;
use crate::provider::{Aggregators, Leaf, Tree};
use crate::wire::links::Endpoints;

/// Bytes of a name, and of all reasons together.
const NAME_BYTES_MAX: usize = 300;
const REASONS_BYTES_MAX: usize = 4096;

/// Set for an aggregator whose children are members.
const OF_MEMBERS: u16 = 1 << 15;

/// Levels of a shape: those of aggregators, and those of groups at one aggregator.
const LEVELS_MAX: usize = 2 * AGGREGATOR_LEVELS_MAX;

/// The trees that a communicator can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The shape of all trees: for each aggregator, parents first, the number of its children, with
    /// `OF_MEMBERS` if they are members.
    shape: Vec<u16>,
    /// `Aggregation::byte_ps`.
    pub(super) byte_ps: u64,
    /// The name and the leaves of each tree.
    pub(super) groups: Vec<(String, Vec<LeafGrant>)>,
    /// The reasons why the other aggregators are of no use.
    pub refused: String,
}

/// The offer of rank 0, or the reason why the setting names no aggregators.
pub type Answer = Result<Offer, String>;

impl Offer {
    /// An offer without groups.
    #[must_use]
    pub const fn none(refused: String) -> Self {
        Self { shape: Vec::new(), byte_ps: 0, groups: Vec::new(), refused }
    }

    /// Sets the shape of all trees, whose members are in order.
    pub(super) fn set_tree(&mut self, tree: &AggregationTree) {
        shape(tree, &mut self.shape);
    }

    /// The shape of all trees, for a communicator with this many members.
    fn tree(&self, members: usize) -> Option<AggregationTree> {
        let (mut counts, mut next) = (self.shape.iter().copied(), 0);
        let tree = tree(&mut counts, &mut next, (members, LEVELS_MAX))?;
        (counts.next().is_none() && next == members).then_some(tree)
    }

    /// Whether there are no groups.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the provider of the groups, and the layout's view of them, for a communicator of
    /// `hosts` members whose secret is `keys`. `devices` are this rank's own. `None` means that the
    /// shape does not fit the members.
    #[must_use]
    pub fn provider(
        self,
        keys: &Secret,
        hosts: usize,
        devices: Option<Arc<RdmaDevices>>,
    ) -> Option<(Aggregators, Aggregation)> {
        let shape = self.tree(hosts)?;
        let leaf = |LeafGrant { first, children, at, rdma_port }| Leaf {
            first,
            children,
            at: Endpoints { tcp: at, rdma_port },
        };
        let tree = |(name, leaves): (String, Vec<_>)| Tree {
            key: key(keys, &name),
            name,
            leaves: leaves.into_iter().map(leaf).collect(),
        };
        let trees = self.groups.into_iter().map(tree).collect();
        let provider = Aggregators::new(trees, (OFFLOAD_WINDOW, OFFLOAD_CHUNK_BYTES), devices);
        let aggregation = Aggregation {
            tree: shape.into(),
            groups: provider.devices().len(),
            window: OFFLOAD_WINDOW,
            chunk_bytes: OFFLOAD_CHUNK_BYTES,
            byte_ps: self.byte_ps,
            is_automatic: provider.devices().iter().all(|device| device.properties.exact),
            ..Aggregation::star(hosts)
        };
        Some((provider, aggregation))
    }

    /// Whether the texts and the groups are within their limits.
    fn is_sound(&self) -> bool {
        let is_leaf =
            |leaf: &LeafGrant| (1..=AGGREGATOR_CHILDREN_MAX).contains(&usize::from(leaf.children));
        let is_group = |(name, leaves): &(String, Vec<LeafGrant>)| {
            name.len() <= NAME_BYTES_MAX
                && leaves.len() <= OFFLOAD_LEAVES_MAX
                && leaves.iter().all(is_leaf)
        };
        self.refused.len() <= REASONS_BYTES_MAX
            && self.groups.len() <= CHANNELS_MAX.into()
            && self.groups.iter().all(is_group)
    }
}

/// Encodes the answer of rank 0. Cuts long texts.
#[must_use]
pub fn encode(answer: Answer) -> Vec<u8> {
    let cut = |text: String, bytes| text[..text.floor_char_boundary(bytes)].to_owned();
    let short = |offer: Offer| Offer {
        refused: cut(offer.refused, REASONS_BYTES_MAX),
        groups: offer.groups.into_iter().map(|(it, at)| (cut(it, NAME_BYTES_MAX), at)).collect(),
        ..offer
    };
    let answer: Answer = answer.map(short).map_err(|reason| cut(reason, REASONS_BYTES_MAX));
    postcard::to_stdvec(&answer).unwrap_or_default()
}

/// Decodes the bytes of rank 0.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Answer> {
    let (answer, rest): (Answer, _) = postcard::take_from_bytes(bytes).ok()?;
    let is_sound = match &answer {
        Ok(offer) => offer.is_sound(),
        Err(reason) => reason.len() <= REASONS_BYTES_MAX,
    };
    (rest.is_empty() && is_sound).then_some(answer)
}

fn shape(tree: &AggregationTree, counts: &mut Vec<u16>) {
    let AggregationTree::Node(children) = tree else { return };
    let of_members = match children.first() {
        Some(AggregationTree::Member(_)) => OF_MEMBERS,
        _ => 0,
    };
    counts.push(u16::try_from(children.len()).unwrap_or(0) | of_members);
    children.iter().for_each(|child| shape(child, counts));
}

/// The tree with these counts. `next` is the number of the next member.
fn tree(
    counts: &mut impl Iterator<Item = u16>,
    next: &mut usize,
    (members, levels): (usize, usize),
) -> Option<AggregationTree> {
    let count = counts.next().filter(|_| levels > 0)?;
    let children = usize::from(count & !OF_MEMBERS);
    if count & OF_MEMBERS == 0 {
        let children = (0..children).map(|_| tree(counts, next, (members, levels - 1)));
        return children.collect::<Option<_>>().map(AggregationTree::Node);
    }
    let first = std::mem::replace(next, *next + children);
    (*next <= members)
        .then(|| AggregationTree::Node((first..*next).map(AggregationTree::Member).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(tree: &AggregationTree) -> Offer {
        let at = "10.0.0.1:7000".parse().unwrap();
        let leaves = vec![LeafGrant { first: 0, children: 3, at, rdma_port: 9 }];
        let groups = vec![("a:1".to_owned(), leaves), ("b:1".to_owned(), Vec::new())];
        let mut offer = Offer { byte_ps: 1 << 40, groups, ..Offer::none("c:1: no room".into()) };
        offer.set_tree(tree);
        offer
    }

    #[test]
    fn answers_travel_and_nonsense_is_refused() {
        for members in [1, 2, 5, 64, 65, 4096] {
            for children in [2, 3, 64] {
                let tree = AggregationTree::levels(members, children);
                let answer = Ok(offer(&tree));
                let bytes = encode(answer.clone());
                let decoded = decode(&bytes).unwrap();
                assert_eq!(decoded, answer);
                let offer = decoded.unwrap();
                assert_eq!(offer.tree(members), Some(tree));
                assert_eq!(offer.tree(members + 1), None, "another number of hosts");
                assert_eq!(offer.tree(members - 1), None, "another number of hosts");
                let step = 1 + bytes.len() / 100;
                let cut = |end: &usize| decode(&bytes[..*end]).is_some();
                assert_eq!((0..bytes.len()).step_by(step).find(cut), None);
                assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
            }
        }
        let fault = Err("no such file".to_owned());
        assert_eq!(decode(&encode(fault.clone())), Some(fault));
        let mut many = offer(&AggregationTree::star(2));
        many.groups.resize(usize::from(CHANNELS_MAX) + 1, many.groups[1].clone());
        assert_eq!(decode(&encode(Ok(many))), None);
    }

    #[test]
    fn answers_beyond_a_limit_are_refused() {
        type Change = fn(&mut Offer);
        let decoded = |answer: Answer| decode(&postcard::to_stdvec(&answer).unwrap());
        let changed = |change: Change| {
            let mut offer = offer(&AggregationTree::star(2));
            change(&mut offer);
            decoded(Ok(offer))
        };
        let changes: [(Change, bool); 6] = [
            (|it| it.groups[0].1[0].children = 64, true),
            (|it| it.groups[0].1[0].children = 65, false),
            (|it| it.groups[0].1[0].children = 0, false),
            (|it| it.groups[1].0 = "n".repeat(NAME_BYTES_MAX), true),
            (|it| it.groups[1].0 = "n".repeat(NAME_BYTES_MAX + 1), false),
            (|it| it.refused = "r".repeat(REASONS_BYTES_MAX + 1), false),
        ];
        for (at, (change, is_sound)) in changes.into_iter().enumerate() {
            assert_eq!(changed(change).is_some(), is_sound, "change {at}");
        }
        assert!(decoded(Err("r".repeat(REASONS_BYTES_MAX))).is_some());
        assert_eq!(decoded(Err("r".repeat(REASONS_BYTES_MAX + 1))), None);
    }

    #[test]
    fn a_shape_without_an_end_is_refused() {
        let deep = Offer { shape: vec![1; 40], ..Offer::none(String::new()) };
        assert_eq!(deep.tree(2), None);
    }
}

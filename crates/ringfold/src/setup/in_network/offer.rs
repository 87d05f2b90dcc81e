//! The trees of aggregators that rank 0 has found, as it tells the other ranks. Bytes are
//! little-endian.
//!
//! ```text
//! 0 whether there is an offer. Without one, the reason follows, as text
//! 1 time of a byte (u64)   9 reasons, name and ticket of each group, the shape
//! ```
//!
//! Texts, tickets and the shape begin with their length (u16). The shape has 16 bits for each
//! aggregator, parents first: the number of its children, with the highest bit if they are members.

use ringfold_topology::AggregationTree;
use ringfold_types::limits::{AGGREGATOR_LEVELS_MAX, CHANNELS_MAX, OFFLOAD_TICKET_BYTES_MAX};

/// Bytes of a name, and of all reasons together.
const NAME_BYTES_MAX: usize = 300;
const REASONS_BYTES_MAX: usize = 4096;

/// Set for an aggregator whose children are members.
const OF_MEMBERS: u16 = 1 << 15;

/// Levels of a shape: those of aggregators, and those of groups at one aggregator.
const LEVELS_MAX: usize = 2 * AGGREGATOR_LEVELS_MAX;

/// The trees that a communicator can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// The shape of all trees. Its members are in order.
    pub(super) tree: AggregationTree,
    /// `Aggregation::byte_ps`.
    pub(super) byte_ps: u64,
    /// The name and the ticket of each tree.
    pub(super) groups: Vec<(String, Vec<u8>)>,
    /// The reasons why the other aggregators are of no use.
    pub(super) refused: String,
}

/// The offer of rank 0, or the reason why the setting names no aggregators.
pub(super) type Answer = Result<Offer, String>;

pub(super) fn encode(answer: &Answer) -> Vec<u8> {
    let offer = match answer {
        Ok(offer) => offer,
        Err(reason) => return [&[0], cut(reason, REASONS_BYTES_MAX).as_bytes()].concat(),
    };
    let mut bytes = vec![1];
    bytes.extend(offer.byte_ps.to_le_bytes());
    let mut push = |text: &[u8]| {
        bytes.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend(text);
    };
    push(cut(&offer.refused, REASONS_BYTES_MAX).as_bytes());
    for (name, ticket) in &offer.groups {
        push(cut(name, NAME_BYTES_MAX).as_bytes());
        push(ticket);
    }
    let mut counts = Vec::new();
    shape(&offer.tree, &mut counts);
    push(&counts.into_iter().flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    bytes
}

/// Decodes the bytes of rank 0 for a communicator with this many members.
pub(super) fn decode(bytes: &[u8], members: usize) -> Option<Answer> {
    let (is_offer, rest) = bytes.split_first()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if *is_offer == 0 {
        return Some(Err(text(rest)));
    }
    let (byte_ps, mut rest) = rest.split_first_chunk::<8>()?;
    let mut fields = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (field, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
        fields.push(field);
        rest = after;
    }
    let [refused, groups @ .., counts] = &fields[..] else { return None };
    let (groups, []) = groups.as_chunks::<2>() else { return None };
    let is_sound = |group: &[&[u8]; 2]| group[1].len() <= OFFLOAD_TICKET_BYTES_MAX;
    let (counts, []) = counts.as_chunks::<2>() else { return None };
    let mut counts = counts.iter().map(|count| u16::from_le_bytes(*count));
    let mut next = 0;
    let tree = tree(&mut counts, &mut next, (members, LEVELS_MAX))?;
    let is_whole = rest.is_empty() && counts.next().is_none() && next == members;
    let offer = Offer {
        tree,
        byte_ps: u64::from_le_bytes(*byte_ps),
        groups: groups.iter().map(|[name, ticket]| (text(name), ticket.to_vec())).collect(),
        refused: text(refused),
    };
    (is_whole && groups.len() <= CHANNELS_MAX.into() && groups.iter().all(is_sound))
        .then_some(Ok(offer))
}

fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
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

    fn offer(tree: AggregationTree) -> Answer {
        let groups = vec![("a:1".to_owned(), vec![1, 2, 3]), ("b:1".to_owned(), Vec::new())];
        Ok(Offer { tree, byte_ps: 1 << 40, groups, refused: "c:1: no room".into() })
    }

    #[test]
    fn answers_travel_and_nonsense_is_refused() {
        for members in [1, 2, 5, 64, 65, 4096] {
            for children in [2, 3, 64] {
                let answer = offer(AggregationTree::levels(members, children));
                let bytes = encode(&answer);
                assert_eq!(decode(&bytes, members), Some(answer));
                assert_eq!(decode(&bytes, members + 1), None, "another number of hosts");
                assert_eq!(decode(&bytes, members - 1), None, "another number of hosts");
                let step = 1 + bytes.len() / 100;
                let cut = |end: &usize| decode(&bytes[..*end], members).is_some();
                assert_eq!((0..bytes.len()).step_by(step).find(cut), None);
            }
        }
        let fault = Err("no such file".to_owned());
        assert_eq!(decode(&encode(&fault), 3), Some(fault));
    }

    #[test]
    fn a_shape_without_an_end_is_refused() {
        let mut bytes = encode(&offer(AggregationTree::star(2)));
        bytes.truncate(bytes.len() - 4);
        let deep = vec![1_u16; 40];
        bytes.extend(80_u16.to_le_bytes());
        bytes.extend(deep.into_iter().flat_map(u16::to_le_bytes));
        assert_eq!(decode(&bytes, 2), None);
    }
}

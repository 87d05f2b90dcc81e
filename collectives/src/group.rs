//! Groups that hand over chunks to a provider in the network: one rank of each host, below a
//! tree of aggregators, and the part of each member if there is no provider.

use alloc::sync::Arc;
use alloc::vec::Vec;

use ringfold_topology::AggregationTree;
use ringfold_types::{Buffer, Collective, Rank, Slice};

use crate::form::Form;

/// The group of one lane, as one of its members sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The number of the group among those of the layout.
    pub number: usize,
    /// The ranks of the members, by number.
    pub members: Arc<[Rank]>,
    /// The number of this member.
    pub me: usize,
    /// The aggregators above the members.
    pub tree: Arc<AggregationTree>,
    /// Chunks that a member may be ahead of the oldest result that it has not taken.
    pub window: usize,
    /// The form in which members hand over elements.
    pub form: Form,
    /// The member that gets the results of a reduce. `None` if all members get them.
    pub root: Option<usize>,
    pub(crate) is_barrier: bool,
    /// The aggregators in whose place this member acts, or takes part as a child, from below.
    pub(crate) levels: Vec<Level>,
    /// The member that finishes results.
    pub(crate) finisher: Rank,
    /// Memory for sums that leave as accumulators, for two chunks.
    pub(crate) partials: [Slice; 2],
    /// Memory for sums in the group's form, for two chunks and each level.
    pub(crate) sums: [Vec<Slice>; 2],
}

/// The part of a member in the place of one aggregator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Level {
    /// The members that send their parts to this one, before or after its own in the order.
    pub(crate) before: Option<(Rank, Form)>,
    pub(crate) after: Vec<Rank>,
    /// The member to which it passes the sum. `None` if the sum is the aggregator's.
    pub(crate) to: Option<Rank>,
}

/// The members, and the number of this one.
pub(crate) struct Membership<'a> {
    pub(crate) members: Arc<[Rank]>,
    pub(crate) me: usize,
    pub(crate) tree: &'a Arc<AggregationTree>,
}

impl Group {
    /// Makes the group of a lane that hands over `chunks` chunks of at most `longest` elements.
    pub(crate) fn new(
        collective: Collective,
        mut reserve: impl FnMut(usize, Form) -> Slice,
        membership: Membership<'_>,
        (window, form): (usize, Form),
        root: Option<usize>,
        (chunks, longest): (usize, usize),
    ) -> Self {
        let Membership { members, me, tree } = membership;
        let is_chain = chunks > 1;
        let is_barrier = collective == Collective::Barrier;
        let mut path = Vec::new();
        find(tree, me, &mut path);
        let mut levels = Vec::new();
        for (children, at) in path.into_iter().rev().filter(|(children, _)| children.len() > 1) {
            let membership: Vec<Rank> =
                children.iter().map(|child| members[acting(child, is_chain)]).collect();
            let level = level(&membership, at, is_chain, form);
            let goes_on = level.to.is_none();
            levels.push(level);
            if !goes_on {
                break;
            }
        }
        let finisher = members[acting(tree, is_chain)];
        let nothing = Slice::new(Buffer::Scratch, 0, 0);
        let (mut partials, mut sums) = ([nothing; 2], [Vec::new(), Vec::new()]);
        if !is_barrier {
            partials = partials.map(|_| reserve(longest, Form::Accumulator));
            sums = sums.map(|_| levels.iter().map(|_| reserve(longest, form)).collect());
        }
        let tree = Arc::clone(tree);
        Self {
            number: 0,
            members,
            me,
            tree,
            window,
            form,
            root,
            is_barrier,
            levels,
            finisher,
            partials,
            sums,
        }
    }

    /// The same group with another number.
    pub(crate) fn numbered(self, number: usize) -> Self {
        Self { number, ..self }
    }

    pub(crate) fn is_finisher(&self) -> bool {
        self.members[self.me] == self.finisher
    }
}

impl Level {
    /// The members that send their parts to this one.
    pub(crate) fn children(&self) -> impl Iterator<Item = Rank> + '_ {
        self.before.map(|(rank, _)| rank).into_iter().chain(self.after.iter().copied())
    }
}

/// The member that acts in the place of a node.
fn acting(tree: &AggregationTree, is_chain: bool) -> usize {
    match tree {
        AggregationTree::Member(number) => *number,
        AggregationTree::Node(children) => {
            let child = if is_chain { children.last() } else { children.first() };
            child.map_or(0, |child| acting(child, is_chain))
        }
    }
}

/// Finds the way from the root to a member: for each node its children, and the one to follow.
fn find<'t>(
    tree: &'t AggregationTree,
    member: usize,
    path: &mut Vec<(&'t [AggregationTree], usize)>,
) -> bool {
    match tree {
        AggregationTree::Member(number) => *number == member,
        AggregationTree::Node(children) => children.iter().enumerate().any(|(at, child)| {
            path.push((children, at));
            let is_here = find(child, member, path);
            if !is_here {
                path.pop();
            }
            is_here
        }),
    }
}

/// The part of the child at a place of an aggregator, whose children are these.
fn level(children: &[Rank], at: usize, is_chain: bool, form: Form) -> Level {
    if !is_chain {
        return match at {
            0 => Level { before: None, after: children[1..].to_vec(), to: None },
            _ => Level { before: None, after: Vec::new(), to: Some(children[0]) },
        };
    }
    let form = if at == 1 { form } else { Form::Accumulator };
    let before = at.checked_sub(1).map(|before| (children[before], form));
    Level { before, after: Vec::new(), to: children.get(at + 1).copied() }
}

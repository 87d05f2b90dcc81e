//! Groups that hand over chunks to a provider in the network, and the members' own steps in its
//! place.
//!
//! A provider combines the chunks of all members along a tree of aggregators. Each aggregator
//! combines its children in their order and rounds its sum once. Without a provider the members do
//! so themselves, in the same order, so the bits stay: `lower` puts both ways into a program, and a
//! stepper takes either. For several chunks the sum of an aggregator's children goes from child to
//! child, as accumulators, and chunks follow each other. A single chunk goes straight to the first
//! child.
//!
//! On a link between two members go either parts up or results down, so the order of sends is that
//! of receives, however far ahead a member hands over.

use alloc::vec::Vec;

use ringfold_topology::AggregationTree;
use ringfold_types::{Buffer, Collective, Rank, Slice};

use crate::schedule::{Builder, Form, Source, Step};

/// The group of one lane, as one of its members sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The ranks of the members, by number.
    pub members: Vec<Rank>,
    /// The number of this member.
    pub me: usize,
    /// The aggregators above the members.
    pub tree: AggregationTree,
    /// Chunks that a member may be ahead of the oldest result that it has not taken.
    pub window: usize,
    /// The form in which members hand over elements.
    pub form: Form,
    /// The member that gets the results of a reduce. `None` if all members get them.
    pub root: Option<usize>,
    is_barrier: bool,
    /// The aggregators in whose place this member acts, or takes part as a child, from below.
    levels: Vec<Level>,
    /// The member that finishes results.
    finisher: Rank,
    /// Memory for sums that leave as accumulators, for two chunks.
    partials: [Slice; 2],
    /// Memory for sums in the group's form, for two chunks and each level.
    sums: [Vec<Slice>; 2],
}

/// The part of a member in the place of one aggregator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Level {
    /// The members that send their parts to this one, before or after its own in the order.
    before: Option<(Rank, Form)>,
    after: Vec<Rank>,
    /// The member to which it passes the sum. `None` if the sum is the aggregator's.
    to: Option<Rank>,
}

/// The members' own steps for one chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Relayed {
    /// The steps where the chunk would be handed over.
    pub(crate) begun: Vec<Step>,
    /// The steps where its result would be taken.
    pub(crate) ended: Vec<Step>,
}

/// The members, and the number of this one.
pub(crate) struct Seats<'a> {
    pub(crate) members: Vec<Rank>,
    pub(crate) me: usize,
    pub(crate) tree: &'a AggregationTree,
}

impl Group {
    /// Makes the group of a lane that hands over `chunks` chunks of at most `longest` elements.
    pub(crate) fn new(
        steps: &mut Builder,
        seats: Seats<'_>,
        (window, form): (usize, Form),
        root: Option<usize>,
        (chunks, longest): (usize, usize),
    ) -> Self {
        let Seats { members, me, tree } = seats;
        let is_chain = chunks > 1;
        let is_barrier = steps.collective() == Collective::Barrier;
        let mut path = Vec::new();
        find(tree, me, &mut path);
        let mut levels = Vec::new();
        for (children, at) in path.into_iter().rev().filter(|(children, _)| children.len() > 1) {
            let seats: Vec<Rank> =
                children.iter().map(|child| members[acting(child, is_chain)]).collect();
            let level = level(&seats, at, is_chain, form);
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
            let reserve = |steps: &mut Builder, form| steps.sums(longest, form);
            partials = partials.map(|_| reserve(steps, Form::Accumulator));
            sums = sums.map(|_| levels.iter().map(|_| reserve(steps, form)).collect());
        }
        let tree = tree.clone();
        Self { members, me, tree, window, form, root, is_barrier, levels, finisher, partials, sums }
    }

    /// Writes this member's steps for a chunk up to the finished result, or to its last send up.
    pub(crate) fn begin(&self, steps: &mut Builder, chunk: usize, src: Slice, dst: Slice) {
        if self.is_barrier {
            for level in &self.levels {
                for from in level.children() {
                    steps.recv(from, dst);
                }
                level.to.into_iter().for_each(|to| steps.send(to, src));
            }
            return;
        }
        let mut own = src;
        for (at, level) in self.levels.iter().enumerate() {
            let before = level.before.map(|(rank, form)| Source::Wire(rank, form));
            let after = level.after.iter().map(|rank| Source::Wire(*rank, self.form));
            let sources: Vec<Source> =
                before.into_iter().chain([Source::Local(own)]).chain(after).collect();
            let is_last = at + 1 == self.levels.len();
            if sources.len() > 1 {
                own = match level.to {
                    None if is_last && dst.len > 0 => dst,
                    None if !is_last => self.sums[chunk % 2][at].take(src.len),
                    _ => self.partials[chunk % 2].take(src.len),
                };
                steps.reduce(own, &sources);
            }
            level.to.into_iter().for_each(|to| steps.send(to, own));
        }
        let root = self.root.map(|root| self.members[root]);
        if let Some(root) = root.filter(|root| self.is_finisher() && *root != self.finisher) {
            steps.send(root, own);
        }
    }

    /// Writes this member's steps from the result on.
    pub(crate) fn end(&self, steps: &mut Builder, dst: Slice) {
        if self.root.is_some() {
            if dst.len > 0 && !self.is_finisher() {
                steps.reduce(dst, &[Source::Wire(self.finisher, Form::Accumulator)]);
            }
            return;
        }
        if let Some(to) = self.levels.last().and_then(|level| level.to) {
            steps.recv(to, dst);
        }
        // The largest part of the members is below the last level.
        for level in self.levels.iter().rev() {
            level.children().for_each(|child| steps.send(child, dst));
        }
    }

    fn is_finisher(&self) -> bool {
        self.members[self.me] == self.finisher
    }
}

impl Level {
    /// The members that send their parts to this one.
    fn children(&self) -> impl Iterator<Item = Rank> + '_ {
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

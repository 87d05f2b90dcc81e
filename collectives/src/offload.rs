//! Chunks that a group hands over to a provider in the network, and the members' own steps in its
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

use ringfold_types::Slice;

use crate::form::Form;
use crate::group::Group;
use crate::schedule::{Builder, Relayed, Source};

/// Hands over `src` as the next chunk of the lane's group, with its result in `dst`.
///
/// # Panics
/// If the lane has no group.
pub fn offload(steps: &mut Builder, src: Slice, dst: Slice) {
    let (group, chunk) = steps.next_chunk();
    let group = group.cloned().unwrap_or_else(|| panic!("the lane has a group"));
    let begun = steps.apart(|steps| begin(&group, steps, chunk, src, dst));
    let ended = steps.apart(|steps| end(&group, steps, dst));
    steps.hand_over(src, dst, Relayed { begun, ended });
}

/// Writes this member's steps for a chunk up to the finished result, or to its last send up.
fn begin(group: &Group, steps: &mut Builder, chunk: usize, src: Slice, dst: Slice) {
    if group.is_barrier {
        for level in &group.levels {
            for from in level.children() {
                steps.recv(from, dst);
            }
            level.to.into_iter().for_each(|to| steps.send(to, src));
        }
        return;
    }
    let mut own = src;
    for (at, level) in group.levels.iter().enumerate() {
        let before = level.before.map(|(rank, form)| Source::Wire(rank, form));
        let after = level.after.iter().map(|rank| Source::Wire(*rank, group.form));
        let sources: Vec<Source> =
            before.into_iter().chain([Source::Local(own)]).chain(after).collect();
        let is_last = at + 1 == group.levels.len();
        if sources.len() > 1 {
            own = match level.to {
                None if is_last && dst.len > 0 => dst,
                None if !is_last => group.sums[chunk % 2][at].take(src.len),
                _ => group.partials[chunk % 2].take(src.len),
            };
            steps.reduce(own, &sources);
        }
        level.to.into_iter().for_each(|to| steps.send(to, own));
    }
    let root = group.root.map(|root| group.members[root]);
    if let Some(root) = root.filter(|root| group.is_finisher() && *root != group.finisher) {
        steps.send(root, own);
    }
}

/// Writes this member's steps from the result on.
fn end(group: &Group, steps: &mut Builder, dst: Slice) {
    if group.root.is_some() {
        if dst.len > 0 && !group.is_finisher() {
            steps.reduce(dst, &[Source::Wire(group.finisher, Form::Accumulator)]);
        }
        return;
    }
    if let Some(to) = group.levels.last().and_then(|level| level.to) {
        steps.recv(to, dst);
    }
    // The largest part of the members is below the last level.
    for level in group.levels.iter().rev() {
        level.children().for_each(|child| steps.send(child, dst));
    }
}

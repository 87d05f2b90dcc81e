//! A provider in the network, as an axiom: the result of a chunk holds the part of every member
//! once all have handed theirs over, in the order of the tree.

use alloc::vec::Vec;

use ringfold_topology::AggregationTree;
use ringfold_types::{Collective, Rank, Slice};

use super::flaw::Flaw;
use super::memory::{Run, combine};
use super::provider::Part;
use super::world::World;
use crate::schedule::Form;

impl World<'_> {
    pub(super) fn post(
        &mut self,
        index: usize,
        lane: usize,
        src: Slice,
        dst: Slice,
    ) -> Result<bool, Flaw> {
        let rank = Rank::at(index);
        let Some(group) = self.schedules[index].group(lane) else {
            return Err(Flaw::Bounds { rank, slice: src });
        };
        if dst.len != 0 && dst.len != src.len {
            return Err(Flaw::Bounds { rank, slice: dst });
        }
        let posted = self.provider.posted[lane][index].len();
        if posted - self.provider.taken[lane][index] >= group.window {
            return Ok(false);
        }
        let values = self.read_to_send(index, src)?;
        self.touch((index, lane), index, src, false)?;
        let node = &mut self.nodes[index];
        node.sent += src.len;
        let depth = node.depth[lane];
        let part = Part { values, form: Form::of(src.buffer), len: src.len, depth };
        self.provider.posted[lane][index].push(part);
        for member in group.members.iter() {
            self.nodes[member.index()].is_awake = true;
        }
        Ok(true)
    }

    pub(super) fn take_result(
        &mut self,
        index: usize,
        lane: usize,
        dst: Slice,
    ) -> Result<bool, Flaw> {
        let rank = Rank::at(index);
        let Some(group) = self.schedules[index].group(lane) else {
            return Err(Flaw::Bounds { rank, slice: dst });
        };
        let chunk = self.provider.taken[lane][index];
        let posted = &self.provider.posted[lane];
        let parts: Option<Vec<&Part>> =
            group.members.iter().map(|member| posted[member.index()].get(chunk)).collect();
        let Some(parts) = parts else { return Ok(false) };
        let own = &parts[group.me];
        let is_barrier = self.schedules[index].call().collective == Collective::Barrier;
        for (part, from) in parts.iter().zip(group.members.iter()) {
            let is_alike = part.len == own.len && (part.form == own.form || is_barrier);
            if !is_alike || part.form != group.form && !is_barrier {
                return Err(Flaw::Form { rank, from: *from });
            }
        }
        let depth = parts.iter().map(|part| part.depth).max().unwrap_or(0);
        let depth = depth + 2 * group.tree.depth();
        let values = if is_barrier {
            parts.iter().flat_map(|part| part.values.clone()).collect()
        } else {
            combined(&group.tree, &parts, group.form, (rank, dst), true)?
        };
        self.provider.taken[lane][index] += 1;
        let node = &mut self.nodes[index];
        node.depth[lane] = node.depth[lane].max(depth);
        if is_barrier {
            for (_, value) in &values {
                node.entered = node.entered.union(&value.from);
            }
        } else if dst.len > 0 {
            self.touch((index, lane), index, dst, true)?;
            self.write(index, dst, values)?;
        }
        Ok(true)
    }
}

/// The sum that a node of the tree makes of its members' parts, with shifts for the place of `dst`.
fn combined(
    tree: &AggregationTree,
    parts: &[&Part],
    form: Form,
    at: (Rank, Slice),
    is_top: bool,
) -> Result<Vec<Run>, Flaw> {
    let (rank, dst) = at;
    let children = match tree {
        AggregationTree::Member(number) => {
            let mut position = dst.offset.cast_signed();
            let mut values = parts[*number].values.clone();
            for (len, value) in &mut values {
                value.shift -= position;
                position += len.cast_signed();
            }
            return Ok(values);
        }
        AggregationTree::Node(children) => children,
    };
    let mut sum: Option<Vec<Run>> = None;
    for child in children {
        let values = combined(child, parts, form, at, false)?;
        sum = Some(match sum {
            None => values,
            Some(before) => combine(&before, &values, false, (rank, dst))?,
        });
    }
    let mut sum = sum.unwrap_or_default();
    for (_, value) in &mut sum {
        if value.finished {
            return Err(Flaw::Mixed { rank, slice: dst });
        }
        if is_top {
            (value.finished, value.fold) = (true, value.fold.finished());
        } else if children.len() > 1 && form == Form::Element {
            value.fold = value.fold.rounded();
        }
    }
    Ok(sum)
}

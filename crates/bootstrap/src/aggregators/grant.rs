//! The requests for all groups of a tree.

use std::net::SocketAddr;
use std::time::Duration;

use super::control::{Above, Ask, AskError, Granted, ask, parent};
use super::place::Placement;
use super::trees::{Trees, is_address};
use crate::secret::Secret;
use ringfold_types::limits::AGGREGATOR_LEVELS_MAX;

/// The terms of a group, which are the same at all aggregators of its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The job, for `ringfold aggregate --stats`. At most 64 bytes.
    pub job: String,
    /// The group's key, which derives from the job's secret.
    pub key: [u8; 32],
    /// Ranks of the communicator, by which averages are divided.
    pub ranks: u32,
    /// Chunks that a member may be ahead.
    pub window: u8,
    /// Bytes of a member's part of a chunk, at most.
    pub chunk_bytes: u32,
}

/// The group of an aggregator that has members as children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafGrant {
    /// The first member; the others follow without gaps.
    pub first: u16,
    /// The number of these members.
    pub children: u16,
    /// The group's number at this aggregator.
    pub group: u32,
    /// The group's endpoint.
    pub at: SocketAddr,
}

/// Asks all aggregators of a tree for their groups, parents first. Returns the groups that have
/// members as children, in the order of the members. Waits for each aggregator for at most
/// `timeout`. After an error the groups that others have granted end by themselves, since nobody
/// connects to them.
///
/// # Errors
/// An aggregator does not answer in time, or refuses.
pub fn grant(
    tree: &Placement,
    terms: &Terms,
    site: &Secret,
    timeout: Duration,
) -> Result<Vec<LeafGrant>, AskError> {
    let mut granted: Vec<Granted> = Vec::with_capacity(tree.groups.len());
    let mut leaves = Vec::new();
    for group in &tree.groups {
        let above = group.parent.map(|(index, child)| {
            let Granted { group: number, port } = granted[index];
            let is_here = tree.groups[index].at == group.at;
            Above { group: number, port, child, is_here }
        });
        let request = Ask {
            job: terms.job.clone(),
            key: terms.key,
            ranks: terms.ranks,
            first: group.first,
            members: group.members.clone(),
            window: terms.window,
            chunk_bytes: terms.chunk_bytes,
            above,
        };
        let (answer, at) = ask(&group.at, site, request, timeout)?;
        granted.push(answer);
        if group.is_leaf {
            let children = u16::try_from(group.members.len()).unwrap_or(u16::MAX);
            leaves.push(LeafGrant { first: group.first, children, group: answer.group, at });
        }
    }
    leaves.sort_unstable_by_key(|leaf| leaf.first);
    Ok(leaves)
}

impl Trees {
    /// Asks the aggregators of a list for their parents, and those for theirs. A tree file names
    /// the parents, so nobody is asked. Waits for each aggregator for at most `timeout`.
    ///
    /// # Errors
    /// An aggregator does not answer in time, or the parents form a circle.
    pub fn with_parents(mut self, site: &Secret, timeout: Duration) -> Result<Self, AskError> {
        let mut at = 0;
        while self.is_list && at < self.nodes.len() {
            let node = self.nodes[at].at.clone();
            let wrong = |reason| AskError::Other { at: node.clone(), reason };
            if let Some(above) = parent(&node, site, timeout)? {
                if !is_address(&above) {
                    return Err(wrong(format!("{above:.80?} is no address of a parent")));
                }
                let index = self.nodes.iter().position(|node| node.at == above);
                self.nodes[at].parent = Some(index.unwrap_or_else(|| self.append(above)));
                if self.path(at).len() > AGGREGATOR_LEVELS_MAX {
                    return Err(wrong("its parents form a circle, or too many levels".into()));
                }
            }
            at += 1;
        }
        self.is_list = false;
        Ok(self)
    }
}

//! The requests for all groups of a tree.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::control::{Above, Ask, AskError, Granted, Terms, ask, parent};
use super::file::{Trees, is_address};
use super::place::Placement;
use ringfold_bootstrap::Secret;
use ringfold_types::limits::AGGREGATOR_LEVELS_MAX;
use serde::{Deserialize, Serialize};

/// The group of an aggregator that has members as children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafGrant {
    /// The first member; the others follow without gaps.
    pub first: u16,
    /// The number of these members.
    pub children: u16,
    /// The group's endpoint for TCP.
    pub at: SocketAddr,
    /// The port of that for RDMA; 0 if there is none.
    pub rdma_port: u16,
}

/// The groups that the aggregators of a tree have granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeGrant {
    /// The groups that have members as children, in the order of the members.
    pub leaves: Vec<LeafGrant>,
    /// For each group of the placement, the rate of all links of its aggregator in Mbit/s; 0 if it
    /// does not know.
    pub mbps: Vec<u32>,
}

/// The key of a group, which its members and aggregators know. An aggregator cannot derive others
/// from it. The numbers of groups change when some are refused, so the root's name tells keys
/// apart.
pub(super) fn key(keys: &Secret, root: &str) -> [u8; 32] {
    keys.derive(&["in-network", root])
}

/// Asks all aggregators of a tree for their groups, parents first. Waits for each aggregator for at
/// most `timeout`. After an error the groups that others have granted end by themselves, since
/// nobody connects to them.
///
/// # Errors
/// An aggregator does not answer in time, or refuses.
pub fn grant(
    tree: &Placement,
    terms: &Terms,
    site: &Secret,
    timeout: Duration,
) -> Result<TreeGrant, AskError> {
    let mut granted: Vec<Granted> = Vec::with_capacity(tree.groups.len());
    let mut leaves = Vec::new();
    for group in &tree.groups {
        let above = group.parent.map(|(index, child)| {
            let Granted { group: number, port, rdma_port, .. } = granted[index];
            let is_here = tree.groups[index].at == group.at;
            Above { group: number, port, rdma_port, child, is_here }
        });
        let (terms, first, members) = (terms.clone(), group.first, group.members.clone());
        let request = Ask { terms, first, members, above };
        let (answer, at) = ask(&group.at, site, request, timeout)?;
        granted.push(answer);
        if group.is_leaf {
            let children = u16::try_from(group.members.len()).unwrap_or(u16::MAX);
            let rdma_port = answer.rdma_port;
            leaves.push(LeafGrant { first: group.first, children, at, rdma_port });
        }
    }
    leaves.sort_unstable_by_key(|leaf| leaf.first);
    Ok(TreeGrant { leaves, mbps: granted.iter().map(|granted| granted.mbps).collect() })
}

impl Trees {
    /// Asks the aggregators of a list for their parents, and those for theirs. A tree file names
    /// the parents, so nobody is asked. Leaves out the aggregators that cannot be used, and returns
    /// the reasons: they or those above them do not answer within `timeout`, or the parents form a
    /// circle. Waits about that long for each level.
    #[must_use]
    pub fn with_parents(mut self, site: &Secret, timeout: Duration) -> (Self, Vec<AskError>) {
        let mut failed = HashMap::new();
        let mut at = 0;
        while self.is_list && at < self.nodes.len() {
            let asked = self.nodes[at..].iter().map(|node| node.at.clone());
            for answer in parents(asked.collect(), site, timeout) {
                let attached = answer.and_then(|above| self.attach(at, above));
                failed.extend(attached.err().map(|error| (at, error)));
                at += 1;
            }
        }
        self.is_list = false;
        self.retain(|trees, node| !trees.path(node).iter().any(|node| failed.contains_key(node)));
        let mut failed: Vec<(usize, AskError)> = failed.into_iter().collect();
        failed.sort_unstable_by_key(|(at, _)| *at);
        (self, failed.into_iter().map(|(_, error)| error).collect())
    }

    /// Makes `above` the parent of a node.
    fn attach(&mut self, at: usize, above: Option<String>) -> Result<(), AskError> {
        let Some(above) = above else { return Ok(()) };
        let node = self.nodes[at].at.clone();
        let wrong = |reason| Err(AskError::Other { at: node, reason });
        if !is_address(&above) {
            return wrong(format!("{above:.80?} is no address of a parent"));
        }
        let index = self.nodes.iter().position(|node| node.at == above);
        self.nodes[at].parent = Some(index.unwrap_or_else(|| self.append(above)));
        if self.path(at).len() > AGGREGATOR_LEVELS_MAX {
            return wrong("its parents form a circle, or too many levels".into());
        }
        Ok(())
    }
}

/// Asks aggregators for their parents, all at the same time.
fn parents(
    asked: Vec<String>,
    site: &Secret,
    timeout: Duration,
) -> Vec<Result<Option<String>, AskError>> {
    thread::scope(|scope| {
        let asking: Vec<_> =
            asked.iter().map(|at| scope.spawn(move || parent(at, site, timeout))).collect();
        let died = |at: &String| {
            Err(AskError::Other { at: at.clone(), reason: "the asking thread panicked".into() })
        };
        let answers = asking.into_iter().zip(&asked);
        answers.map(|(thread, at)| thread.join().unwrap_or_else(|_| died(at))).collect()
    })
}

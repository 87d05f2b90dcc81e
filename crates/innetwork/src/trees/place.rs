//! The part of each aggregator for the members of one group: the children of each.
//!
//! Members stay in their order, so that a tree combines them as they are numbered. Neighbours below
//! the same aggregator are one group there. An aggregator with more children than its limit has
//! several groups, and at the root another one above them.

use std::collections::{HashMap, VecDeque};

use ringfold_types::limits::{AGGREGATOR_CHILDREN_MAX, OFFLOAD_LEAVES_MAX};

use super::file::Trees;

/// One tree of aggregators for the members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The address of the root, for logs.
    pub name: String,
    /// The rail of the tree, if the tree file names one.
    pub rail: Option<u16>,
    /// The groups at the aggregators. Group 0 is the top, and parents come before their children.
    pub groups: Vec<PlacedGroup>,
}

/// A group at one aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedGroup {
    /// The address of the aggregator's control port.
    pub at: String,
    /// The group above, as an index, and the number of the child that this group is there.
    pub parent: Option<(usize, u8)>,
    /// The first member below. The others follow.
    pub first: u16,
    /// Members below each child, in the order of the children.
    pub members: Vec<u16>,
    /// Whether the children are members, and not groups.
    pub is_leaf: bool,
}

/// The trees that the members of a group can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placements {
    /// The trees, all of one shape. Tree g belongs to rail g modulo the number of rails.
    pub trees: Vec<Placement>,
    /// The trees that cannot be used, each with its reason.
    pub left_out: Vec<String>,
}

impl Placement {
    /// Builds another tree from this one: `member` makes a leaf of a member's number, and `node` an
    /// aggregator of its children.
    pub fn fold<T>(&self, member: &impl Fn(usize) -> T, node: &impl Fn(Vec<T>) -> T) -> T {
        self.fold_from(0, member, node)
    }

    fn fold_from<T>(
        &self,
        at: usize,
        member: &impl Fn(usize) -> T,
        node: &impl Fn(Vec<T>) -> T,
    ) -> T {
        let group = &self.groups[at];
        if group.is_leaf {
            let first = usize::from(group.first);
            return node((first..first + group.members.len()).map(member).collect());
        }
        let mut children: Vec<(u8, usize)> = (0..)
            .zip(&self.groups)
            .filter_map(|(child, group)| {
                group.parent.filter(|(parent, _)| *parent == at).map(|(_, place)| (place, child))
            })
            .collect();
        children.sort_unstable();
        node(children.into_iter().map(|(_, child)| self.fold_from(child, member, node)).collect())
    }

    /// For each group, its neighbours at other aggregators: children and parent. Each of them sends
    /// every byte of a call once, and receives it once.
    #[must_use]
    pub fn neighbours(&self) -> Vec<usize> {
        let mut counts: Vec<usize> = self.groups.iter().map(|group| group.members.len()).collect();
        for (index, group) in self.groups.iter().enumerate() {
            match group.parent {
                Some((above, _)) if self.groups[above].at == group.at => counts[above] -= 1,
                Some(_) => counts[index] += 1,
                None => {}
            }
        }
        counts
    }

    /// The tree as nested lists, to compare shapes and to print.
    fn shape(&self) -> String {
        let list = |children: Vec<String>| format!("[{}]", children.join(" "));
        self.fold(&|member| member.to_string(), &list)
    }
}

impl Trees {
    /// Places the members of a group, whose hosts are in the order of the members. A host's name
    /// matches whole, or up to its first dot.
    #[must_use]
    pub fn place(&self, hosts: &[&str]) -> Placements {
        let mut placements = Placements::default();
        let mut by_rail: HashMap<u16, VecDeque<Placement>> = HashMap::new();
        for root in (0..self.nodes.len()).filter(|node| self.nodes[*node].parent.is_none()) {
            match self.place_below(root, hosts) {
                Ok(tree) => by_rail.entry(tree.rail.unwrap_or(0)).or_default().push_back(tree),
                Err(reason) => {
                    let at = &self.nodes[root].at;
                    placements.left_out.push(format!("the tree of {at}: {reason}"));
                }
            }
        }
        let rails = self.nodes.iter().filter_map(|node| node.rail).max().unwrap_or(0) + 1;
        let mut next = (0..rails).cycle();
        while let Some(tree) = next.next().and_then(|rail| by_rail.get_mut(&rail)?.pop_front()) {
            let first = placements.trees.first().unwrap_or(&tree);
            if first.shape() == tree.shape() {
                placements.trees.push(tree);
            } else {
                let text = format!("the tree of {}: another shape than {}", tree.name, first.name);
                placements.left_out.push(text);
            }
        }
        let mut rest: Vec<_> = by_rail.into_values().flatten().map(|tree| tree.name).collect();
        rest.sort();
        let reason = "its rail has more trees than another";
        placements.left_out.extend(rest.iter().map(|at| format!("the tree of {at}: {reason}")));
        placements
    }

    fn place_below(&self, root: usize, hosts: &[&str]) -> Result<Placement, String> {
        let most = OFFLOAD_LEAVES_MAX * AGGREGATOR_CHILDREN_MAX;
        if hosts.len() > most {
            return Err(format!("{} members are more than {most}, the limit", hosts.len()));
        }
        let mut row: Vec<Item> = (self.targets(root, hosts)?.into_iter().zip(0..))
            .map(|(target, first)| Item { first, count: 1, target, built: None })
            .collect();
        let mut built: Vec<Built> = Vec::new();
        let deepest = row.iter().map(|item| self.path(item.target).len()).max().unwrap_or(1);
        for depth in (1..=deepest).rev() {
            row = self.combine(row, depth, &mut built);
        }
        while row.len() > 1 || row.first().is_some_and(|item| item.built.is_none()) {
            row = self.combine(row, 1, &mut built);
        }
        let mut top = row.first().and_then(|item| item.built).ok_or("the group has no members")?;
        // An aggregator with a single group below it has nothing to combine.
        while let [Item { built: Some(only), .. }] = built[top].children[..] {
            top = only;
        }
        let mut groups = Vec::new();
        self.number(&built, top, None, &mut groups);
        if groups.iter().filter(|group| group.is_leaf).count() > OFFLOAD_LEAVES_MAX {
            return Err(format!("more than {OFFLOAD_LEAVES_MAX} aggregators with members"));
        }
        let Self { nodes, .. } = self;
        Ok(Placement { name: nodes[root].at.clone(), rail: nodes[root].rail, groups })
    }

    /// The aggregator of each member.
    fn targets(&self, root: usize, hosts: &[&str]) -> Result<Vec<usize>, String> {
        let has_children = self.has_children();
        let is_leaf =
            |node: &usize| !has_children[*node] && self.path(*node).last().copied() == Some(root);
        let leaves: Vec<usize> = (0..self.nodes.len()).filter(is_leaf).collect();
        let mut named = HashMap::new();
        for leaf in &leaves {
            named.extend(self.nodes[*leaf].hosts.iter().map(|host| (host.as_str(), *leaf)));
        }
        if named.is_empty() {
            let run = hosts.len().div_ceil(leaves.len().max(1)).max(2);
            return Ok((0..hosts.len()).map(|member| leaves[member / run]).collect());
        }
        let short = |host: &str| host.split('.').next().and_then(|short| named.get(short)).copied();
        let target = |host: &&str| {
            let target = named.get(host).copied().or_else(|| short(host));
            target.ok_or_else(|| format!("no aggregator names host {host:.80}"))
        };
        hosts.iter().map(target).collect()
    }

    /// Makes groups of neighbours whose aggregator is at this depth, the root being at depth 1.
    fn combine(&self, row: Vec<Item>, depth: usize, built: &mut Vec<Built>) -> Vec<Item> {
        let mut made = Vec::new();
        for run in row.chunk_by(|a, b| a.target == b.target) {
            let target = run[0].target;
            let is_whole = depth == 1 && row.len() == 1 && run[0].built.is_some();
            if self.path(target).len() != depth || is_whole {
                made.extend_from_slice(run);
                continue;
            }
            let blocks = run.len().div_ceil(AGGREGATOR_CHILDREN_MAX);
            for children in run.chunks(run.len().div_ceil(blocks)) {
                let count = children.iter().map(|child| child.count).sum();
                let first = children[0].first;
                built.push(Built { target, children: children.to_vec() });
                let target = self.nodes[target].parent.unwrap_or(target);
                made.push(Item { first, count, target, built: Some(built.len() - 1) });
            }
        }
        made
    }

    /// Appends a group and those below it.
    fn number(
        &self,
        built: &[Built],
        at: usize,
        parent: Option<(usize, u8)>,
        groups: &mut Vec<PlacedGroup>,
    ) {
        let Built { target, children } = &built[at];
        let index = groups.len();
        groups.push(PlacedGroup {
            at: self.nodes[*target].at.clone(),
            parent,
            first: children[0].first,
            members: children.iter().map(|child| child.count).collect(),
            is_leaf: children.iter().all(|child| child.built.is_none()),
        });
        for (child, place) in children.iter().zip(0..) {
            if let Some(below) = child.built {
                self.number(built, below, Some((index, place)), groups);
            }
        }
    }
}

/// A member or a group, with the aggregator that combines it with its neighbours.
#[derive(Clone, Copy, Debug)]
struct Item {
    first: u16,
    count: u16,
    target: usize,
    /// The group that it is.
    built: Option<usize>,
}

/// A group, before groups are numbered.
#[derive(Debug)]
struct Built {
    target: usize,
    children: Vec<Item>,
}

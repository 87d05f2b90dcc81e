//! The places of the ranks: the host of each rank, the places of hosts in the fabric, and the rails
//! of each rank. A layout is a value: it is compared, cached, and the same on every rank.

mod hosts;
mod level;
pub(crate) mod reach;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ringfold_types::Rank;
use ringfold_types::limits::FRAME_BYTES;

use crate::aggregation::Aggregation;
use crate::order::{Order, aligned, carriers, chain, ring};
use crate::prices::{LinkClass, Prices};
use hosts::Hosts;
pub use level::Level;
pub use reach::{RankReach, Reach};

/// The places of the ranks of a communicator, with the prices of the links between them.
///
/// Clones share hosts, paths, reach and prices. A hash of a layout leaves the prices and the
/// aggregators out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    hosts: Arc<Hosts>,
    /// By host; empty if unknown.
    paths: Arc<[Path]>,
    /// By rank; empty if unknown.
    reach: Arc<[RankReach]>,
    rails_cross: bool,
    orders: Orders,
    occupancy: Occupancy,
    shares_memory: bool,
    peer_memory: PeerMemory,
    has_rdma: bool,
    channels: usize,
    prices: Arc<Prices>,
    aggregation: Option<Arc<Aggregation>>,
}

impl Hash for Layout {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { hosts, paths, reach, rails_cross, orders, .. } = self;
        (hosts, paths, reach, rails_cross, orders).hash(state);
        let Self { occupancy, shares_memory, peer_memory, has_rdma, channels, .. } = self;
        (occupancy, shares_memory, peer_memory, has_rdma, channels).hash(state);
    }
}

/// Values that follow from paths and reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Orders {
    ring: Order,
    aligned: Order,
    /// By shard: the rank of each host that carries it. Empty if paths and reach are unknown.
    carriers: Arc<[Arc<[Rank]>]>,
    /// By leaf group: the positions of its hosts in fabric order. Empty if paths are unknown.
    leaf_groups: Arc<[Vec<usize>]>,
    rails_per_host: usize,
}

/// Whether the kernel lets a rank copy from another rank's own memory, and how fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerMemory {
    /// It does not.
    #[default]
    Closed,
    /// It does, but two copies by the ranks themselves, through shared memory, are faster.
    Slow,
    /// It does, and one such copy is at least about as fast as two copies by the ranks.
    Fast,
}

/// The place of a host in the fabric. Equal numbers mean the same pod, group or machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path {
    /// Its number in fabric order, where neighbours are near each other. Hosts with equal numbers
    /// are sorted by pod, group and machine.
    pub order: u32,
    /// The pod: leaf groups that share spines.
    pub pod: u32,
    /// The leaf group: hosts that share leaf switches. Unique over all pods.
    pub group: u32,
    /// The machine, unique over all groups. Containers of one machine are hosts that share it.
    pub machine: u32,
}

/// Ranks that share CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Occupancy {
    /// Number of ranks.
    pub ranks: usize,
    /// Number of CPUs that these ranks share; at least 1.
    pub cpus: usize,
}

impl Occupancy {
    /// Whether there are more ranks than CPUs, so that ranks wait for each other's CPUs.
    #[must_use]
    pub const fn is_oversubscribed(&self) -> bool {
        self.ranks > self.cpus
    }

    /// The value with fewer CPUs for each rank.
    #[must_use]
    pub const fn scarcer(self, other: Self) -> Self {
        if self.ranks * other.cpus >= other.ranks * self.cpus { self } else { other }
    }
}

impl Layout {
    /// `size` ranks on one host, each with a CPU of its own.
    #[must_use]
    pub fn one_host(size: usize) -> Self {
        Self::from_host_names(&vec![(); size])
    }

    /// `size` ranks, each on a host of its own.
    #[must_use]
    pub fn apart(size: usize) -> Self {
        Self::hosts_of(1, size)
    }

    /// `size` ranks on consecutive hosts with `ranks` ranks each. The last host may have fewer.
    ///
    /// # Panics
    /// If `ranks` is 0.
    #[must_use]
    pub fn hosts_of(ranks: usize, size: usize) -> Self {
        Self::on((0..size).map(|rank| Rank::at(rank / ranks).0).collect())
    }

    /// Ranks with CPUs of their own, each on the host whose name is at its index. Equal names are
    /// one host. Hosts are numbered in order of first appearance.
    #[must_use]
    pub fn from_host_names<N: Ord>(names: &[N]) -> Self {
        let mut numbers = BTreeMap::new();
        let mut number = |name| {
            let next = Rank::at(numbers.len()).0;
            *numbers.entry(name).or_insert(next)
        };
        Self::on(names.iter().map(&mut number).collect())
    }

    /// Ranks, each on the host whose number is at its index.
    fn on(host_of: Vec<u32>) -> Self {
        Self {
            hosts: Arc::new(Hosts::new(host_of)),
            paths: Arc::default(),
            reach: Arc::default(),
            rails_cross: false,
            orders: Orders::default(),
            occupancy: Occupancy { ranks: 1, cpus: 1 },
            shares_memory: false,
            peer_memory: PeerMemory::Closed,
            has_rdma: false,
            channels: 1,
            prices: Arc::default(),
            aggregation: None,
        }
    }

    /// The same ranks on hosts with known paths. `paths` are by host number.
    ///
    /// # Panics
    /// If the number of paths is not that of the hosts.
    #[must_use]
    pub fn with_paths(self, paths: &[Path]) -> Self {
        assert_eq!(paths.len(), self.hosts(), "one path for each host");
        Self { paths: paths.into(), ..self }.with_ways()
    }

    /// The same ranks with known rails. `reach` is by rank.
    ///
    /// # Panics
    /// If its length is not the number of ranks, or a rank prefers rails that it does not reach.
    #[must_use]
    pub fn with_reach(self, reach: &[RankReach]) -> Self {
        assert_eq!(reach.len(), self.size(), "one reach for each rank");
        let is_part = |it: &RankReach| it.prefers.and(it.reaches) == it.prefers;
        assert!(reach.iter().all(is_part), "a rank may prefer only rails that it reaches");
        Self { reach: reach.into(), ..self }.with_ways()
    }

    fn with_ways(self) -> Self {
        let order = self.hosts_in_order();
        let hosts: Vec<&[Rank]> = order.iter().map(|host| self.ranks_on(*host)).collect();
        let prefers = |rank: &Rank| self.reach(*rank).prefers;
        let rails = |ranks: &&[Rank]| ranks.iter().map(prefers).collect::<Reach>().places().count();
        let orders = Orders {
            rails_per_host: hosts.iter().map(rails).min().unwrap_or(0),
            ring: Order::new(ring(&hosts, &self.reach)),
            aligned: Order::new(aligned(&hosts, &self.reach)),
            carriers: carriers(&hosts, &self.reach).into_iter().map(Vec::into).collect(),
            leaf_groups: self.groups_of(&order).into(),
        };
        Self { orders, ..self }
    }

    /// The same ranks, with or without ports that reach other rails. By default, ports do not.
    #[must_use]
    pub fn with_crossing_rails(self, rails_cross: bool) -> Self {
        Self { rails_cross, ..self }
    }

    /// The same ranks. `occupancy` are those with the fewest CPUs for each rank.
    #[must_use]
    pub fn with_occupancy(self, occupancy: Occupancy) -> Self {
        Self { occupancy, ..self }
    }

    /// The same ranks. The argument says whether all of them can map each other's memory.
    #[must_use]
    pub fn sharing_memory(self, shares_memory: bool) -> Self {
        Self { shares_memory, ..self }
    }

    /// The same ranks, with this access to each other's own memory.
    #[must_use]
    pub fn with_peer_memory(self, peer_memory: PeerMemory) -> Self {
        Self { peer_memory, ..self }
    }

    /// The same ranks. The argument says whether they use RDMA where they share no memory.
    #[must_use]
    pub fn with_rdma(self, has_rdma: bool) -> Self {
        Self { has_rdma, ..self }
    }

    /// The same ranks, with this number of channels.
    ///
    /// # Panics
    /// If it is 0.
    #[must_use]
    pub fn with_channels(self, channels: usize) -> Self {
        assert!(channels > 0, "a layout needs at least one channel");
        Self { channels, ..self }
    }

    /// The same ranks, with these prices of their links. All ranks must have equal prices.
    #[must_use]
    pub fn with_prices(self, prices: Prices) -> Self {
        Self { prices: Arc::new(prices), ..self }
    }

    /// The same ranks, with or without aggregators. All ranks must have equal ones.
    ///
    /// # Panics
    /// If the members of the tree are not as many as the hosts.
    #[must_use]
    pub fn with_aggregation(self, aggregation: Option<Aggregation>) -> Self {
        let members = aggregation.as_ref().map(|it| it.tree.members().len());
        assert!(members.is_none_or(|it| it == self.hosts()), "one member for each host");
        Self { aggregation: aggregation.map(Arc::new), ..self }
    }

    /// The aggregators that the ranks may use, if there are any.
    #[must_use]
    pub fn aggregation(&self) -> Option<&Aggregation> {
        self.aggregation.as_deref()
    }

    /// The prices of the links between the ranks, and of combining.
    #[must_use]
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// The class of the links between hosts. Its price holds for all pairs of hosts.
    #[must_use]
    pub fn links_between(&self) -> LinkClass {
        if self.is_one_machine() {
            LinkClass::Container
        } else if self.has_rdma {
            self.prices.rails()
        } else {
            LinkClass::Tcp
        }
    }

    /// Whether all hosts are known to be containers of one machine.
    #[must_use]
    pub fn is_one_machine(&self) -> bool {
        self.hosts() > 1 && self.occupancy.ranks == self.size()
    }

    /// Number of rails that the ranks of each host prefer, at least; 1 if they are unknown.
    #[must_use]
    pub fn rails_per_host(&self) -> usize {
        self.orders.rails_per_host.max(1)
    }

    /// Number of parts of a long call that may go from rank to rank side by side. Between hosts
    /// each has a connection of its own.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Whether all ranks can map each other's memory, so that calls can use staging buffers.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.shares_memory
    }

    /// How all ranks can copy from each other's own memory.
    #[must_use]
    pub fn peer_memory(&self) -> PeerMemory {
        self.peer_memory
    }

    /// Whether ranks that share no memory use RDMA.
    #[must_use]
    pub fn has_rdma(&self) -> bool {
        self.has_rdma
    }

    /// Bytes of a long message that its receiver gets together when it wakes: a frame of TCP.
    /// `None` where no two ranks use TCP.
    #[must_use]
    pub fn frame_bytes(&self) -> Option<usize> {
        (self.hosts() > 1 && !self.has_rdma).then_some(FRAME_BYTES)
    }

    /// The ranks with the fewest CPUs for each. They may be on several hosts, because containers
    /// share the CPUs of their machine.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        self.occupancy
    }

    /// Number of ranks.
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        self.hosts.host_of.len()
    }

    /// Number of hosts.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts.count()
    }

    /// The number of the host that `rank` runs on.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn host(&self, rank: Rank) -> u32 {
        self.hosts.host_of[rank.index()]
    }

    /// The ranks of a host, in rank order. Empty if there is no such host.
    #[must_use]
    pub fn ranks_on(&self, host: u32) -> &[Rank] {
        self.hosts.ranks(host as usize)
    }

    /// Numbers of ranks on the emptiest and on the fullest host. Both are 0 without ranks.
    #[must_use]
    pub fn ranks_per_host(&self) -> (usize, usize) {
        self.hosts.each.map(|ranks| ranks as usize).into()
    }

    /// The place of a host; `None` if unknown.
    #[must_use]
    pub fn path(&self, host: u32) -> Option<Path> {
        self.paths.get(host as usize).copied()
    }

    /// The rails of a rank. Empty if they are unknown.
    #[must_use]
    pub fn reach(&self, rank: Rank) -> RankReach {
        self.reach.get(rank.index()).copied().unwrap_or_default()
    }

    /// Whether ports are known to reach ports of other rails.
    #[must_use]
    pub fn rails_cross(&self) -> bool {
        self.rails_cross
    }

    /// Whether the places of hosts or the rails of ranks are known.
    #[must_use]
    pub fn has_fabric(&self) -> bool {
        !self.paths.is_empty() || !self.reach.is_empty()
    }

    /// The numbers of the hosts in fabric order, or in ascending order if paths are unknown.
    #[must_use]
    pub fn hosts_in_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.hosts()).map(|host| Rank::at(host).0).collect();
        let key = |path: Path| (path.order, path.pod, path.group, path.machine);
        order.sort_by_key(|host| self.path(*host).map(key));
        order
    }

    /// By leaf group, the positions of its hosts in fabric order. Empty if paths are unknown.
    #[must_use]
    pub fn leaf_groups(&self) -> &[Vec<usize>] {
        &self.orders.leaf_groups
    }

    /// The leaf groups of hosts in this order.
    fn groups_of(&self, order: &[u32]) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut numbers = BTreeMap::new();
        for (place, host) in order.iter().enumerate() {
            let Some(path) = self.path(*host) else { return Vec::new() };
            let number = *numbers.entry((path.pod, path.group)).or_insert(groups.len());
            if number == groups.len() {
                groups.push(Vec::new());
            }
            groups[number].push(place);
        }
        groups
    }

    /// The order for rings and chains. Hosts are in fabric order. The last rank of a host shares a
    /// rail with the first rank of the next host, if there are such ranks. It is the rank order if
    /// the fabric is unknown.
    #[must_use]
    pub fn ring(&self) -> &Order {
        &self.orders.ring
    }

    /// The order for cubes. Hosts are in fabric order. Where hosts are alike, ranks at equal
    /// positions of their hosts prefer equal rails. It is the rank order if the fabric is unknown.
    #[must_use]
    pub fn aligned(&self) -> &Order {
        &self.orders.aligned
    }

    /// The order for chains that begin at `root`. The hosts of its leaf group come first, beginning
    /// with its own, and hosts are joined as in `ring`. It is the rank order if the fabric is
    /// unknown.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn chain_from(&self, root: Rank) -> Order {
        if !self.has_fabric() {
            return Order::default();
        }
        let order = self.hosts_from(root);
        let hosts: Vec<&[Rank]> = order.iter().map(|host| self.ranks_on(*host)).collect();
        Order::new(chain(&hosts, &self.reach, root))
    }

    /// The order for chains that end at `root`: the reverse of `chain_from`.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn chain_to(&self, root: Rank) -> Order {
        let from = self.chain_from(root);
        match self.has_fabric() {
            true => Order::new((0..self.size()).rev().map(|place| from.at(place)).collect()),
            false => from,
        }
    }

    /// The numbers of the hosts in fabric order, rotated to begin with the leaf group of `root`.
    /// The host of `root` comes first.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn hosts_from(&self, root: Rank) -> Vec<u32> {
        let own = self.host(root);
        let group = |host: &u32| self.path(*host).map(|path| (path.pod, path.group));
        let mut order = self.hosts_in_order();
        let is_first =
            |host: &u32| *host == own || group(host).is_some() && group(host) == group(&own);
        let first = order.iter().position(is_first).unwrap_or(0);
        order.rotate_left(first);
        let place = order.iter().position(|host| *host == own).unwrap_or(0);
        order[..=place].rotate_right(1);
        order
    }

    /// By shard, the ranks that carry it: one of each host, in fabric order, with a rail that all
    /// of them reach. No rank carries two shards. There are as many shards as such ranks allow.
    ///
    /// Hosts with unknown rails carry any shard. If no rail reaches all hosts, each shard is on a
    /// rail that most hosts have. Without known rails, the ranks of a shard have equal positions on
    /// their hosts.
    #[must_use]
    pub fn carriers(&self) -> Cow<'_, [Arc<[Rank]>]> {
        if !self.orders.carriers.is_empty() {
            return Cow::Borrowed(&self.orders.carriers);
        }
        let hosts: Vec<&[Rank]> = (0..self.hosts()).map(|host| self.hosts.ranks(host)).collect();
        carriers(&hosts, &[]).into_iter().map(Vec::into).collect()
    }

    /// Whether two ranks are on one host, so that they can share memory.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn same_host(&self, a: Rank, b: Rank) -> bool {
        self.host(a) == self.host(b)
    }
}

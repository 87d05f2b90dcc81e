//! The places and the prices of the ranks of a job.

use std::collections::HashMap;
use std::error;
use std::fmt;
use std::sync::Arc;

use ringfold_topology::fabric::{Fabric, classify};
use ringfold_topology::prices::{Prices, Rates};
use ringfold_topology::{Aggregation, Layout, Path, RankReach, Reach};
use ringfold_types::limits::{CHANNELS_MAX, RANKS_MAX};
use ringfold_types::{Rank, mix};

use crate::network::Network;
use crate::progress::Progress;

/// The time in a switch, in picoseconds: that of a switch of InfiniBand's last generations, which
/// data sheets give as 90 to 130 ns, and of some metres of cable.
const HOP_PS: u64 = 150_000;

/// Two random ports are drawn so many times, until a way joins them.
const DRAWS: u64 = 64;

/// A job on a fabric: its ranks fill the hosts, in the order of the fabric.
#[derive(Clone, Debug)]
pub struct Job {
    /// The places of the ranks, by which a call chooses its algorithm.
    pub layout: Layout,
    /// The links.
    pub network: Network,
    /// Picoseconds in each switch of a way after the first, whose time is a part of the latency of
    /// the class of links.
    pub hop_ps: u64,
    /// The progress of simulations of this job and its clones.
    pub progress: Arc<Progress>,
    /// The messages of other jobs.
    pub(crate) traffic: Vec<Traffic>,
    /// By rank: the ports of its host, the rank's own first.
    ports: Vec<Vec<usize>>,
    /// By port: its place among those of its host.
    numbers: Vec<usize>,
}

/// A stream of messages of another job, which never ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    /// The ports from which and to which it goes.
    pub(crate) ports: [usize; 2],
    /// The most that it takes of the rate of its first link.
    pub(crate) part: f64,
}

/// A job that does not fit its fabric, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfitJob(String);

impl fmt::Display for UnfitJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for UnfitJob {}

impl Job {
    /// `ranks` ranks, `per_host` on each host of a fabric. `rdma` says whether they use RDMA or TCP
    /// between hosts. `adjust` may change the prices that follow from the rates of the ports.
    ///
    /// # Errors
    /// There are too few hosts, or no ports.
    pub fn of(
        fabric: &Fabric,
        ranks: Option<usize>,
        per_host: usize,
        rdma: bool,
        adjust: impl FnOnce(Prices) -> Prices,
    ) -> Result<Self, UnfitJob> {
        let found = classify(fabric);
        let names: HashMap<&str, usize> =
            found.hosts.iter().enumerate().map(|(at, it)| (it.host.as_str(), at)).collect();
        let mut ports_of = vec![Vec::new(); found.hosts.len()];
        let mut numbers = vec![0; fabric.ports.len()];
        for (at, port) in fabric.ports.iter().enumerate() {
            if let Some(host) = names.get(port.host.as_str()) {
                numbers[at] = ports_of[*host].len();
                ports_of[*host].push(at);
            }
        }
        let most = ports_of.len().saturating_mul(per_host);
        let size = ranks.unwrap_or(most);
        if size == 0 || size > most || size > RANKS_MAX {
            let hosts = ports_of.len();
            let least = most.min(RANKS_MAX);
            return Err(UnfitJob(format!(
                "{size} ranks: the fabric has {hosts} hosts, and {per_host} ranks on each are \
                 {most}; give 1 to {least}"
            )));
        }
        let hosts = size.div_ceil(per_host);
        let paths: Vec<Path> = (0..)
            .zip(&found.hosts[..hosts])
            .map(|(machine, it)| Path { order: it.order, pod: it.pod, group: it.group, machine })
            .collect();
        let ports: Vec<Vec<usize>> = (0..size)
            .map(|rank| {
                let mut ports = ports_of[rank / per_host].clone();
                let own = rank % per_host % ports.len();
                ports.rotate_left(own);
                ports
            })
            .collect();
        let gbps = |ports: &Vec<usize>| ports.iter().map(|port| fabric.ports[*port].gbps).min();
        let slowest = ports.iter().filter_map(gbps).min().unwrap_or(0);
        let all: u32 =
            ports_of[..hosts].iter().map(|ports| total(fabric, ports)).min().unwrap_or(0);
        let tcp_mbps = all.saturating_mul(1000);
        let prices = adjust(Prices::default().with_rates(Rates { tcp_mbps, rdma_gbps: slowest }));
        let layout = Layout::hosts_of(per_host, size).with_paths(&paths).with_rdma(rdma);
        let places = |ports: &[usize]| -> Reach {
            ports.iter().filter_map(|port| found.places[*port].0.and_then(Reach::of)).collect()
        };
        let reach: Vec<RankReach> = ports
            .iter()
            .map(|ports| RankReach { reaches: places(ports), prefers: places(&ports[..1]) })
            .collect();
        let layout = match reach.iter().any(|it| it.reaches.is_empty()) {
            true => layout,
            false => layout.with_reach(&reach).with_crossing_rails(found.crosses.value),
        };
        let layout = layout.with_prices(prices).sharing_memory(hosts == 1);
        let mut network = Network::of(fabric);
        network.limit_ports(layout.prices().link(layout.links_between()).byte_ps);
        let progress = Arc::default();
        let traffic = Vec::new();
        Ok(Self { layout, network, hop_ps: HOP_PS, progress, traffic, ports, numbers })
    }

    /// The same job, whose ranks may use aggregators: each switch is one.
    ///
    /// # Errors
    /// There is only one host, or no way joins the ports by which hosts reach them.
    pub fn with_aggregators(self) -> Result<Self, UnfitJob> {
        let carriers = self.layout.carriers().into_owned();
        let members = carriers.first().filter(|_| self.layout.hosts() > 1);
        let members = members.ok_or_else(|| UnfitJob("one host needs no aggregators".into()))?;
        let ports: Vec<usize> = members.iter().map(|rank| self.port(*rank)).collect();
        let tree = self.network.clone().tree(&ports, 0);
        let tree = tree.ok_or_else(|| UnfitJob("no switch joins all hosts".into()))?;
        let aggregation = Aggregation {
            tree: tree.of_members().into(),
            groups: carriers.len().min(CHANNELS_MAX.into()),
            ..Aggregation::star(ports.len())
        };
        Ok(Self { layout: self.layout.with_aggregation(Some(aggregation)), ..self })
    }

    /// Adds a stream of another job from one port to another, as in host3.0 and host9.0. It takes
    /// its fair share of each link, but no more than this part of its port's rate.
    ///
    /// # Errors
    /// There are no such ports, or no way joins them.
    pub fn add_traffic(&mut self, ends: [&str; 2], part: f64) -> Result<(), UnfitJob> {
        let port = |name| self.network.port(name).map_err(|error| UnfitJob(error.to_string()));
        let ports = [port(ends[0])?, port(ends[1])?];
        if ports[0] == ports[1] || !self.network.joins(ports) {
            return Err(UnfitJob("no way joins two such ports; give others".into()));
        }
        self.traffic.push(Traffic { ports, part });
        Ok(())
    }

    /// Adds such streams between random ports of the fabric, those of the job included.
    ///
    /// # Errors
    /// Ways join none of its ports, or hardly any.
    pub fn add_random_traffic(
        &mut self,
        count: usize,
        seed: u64,
        part: f64,
    ) -> Result<(), UnfitJob> {
        let ports = self.numbers.len() as u64;
        for number in 0..count as u64 {
            let draw = |time: u64| {
                let random = mix(mix(mix(seed) ^ number) ^ time);
                [random >> 32, random & 0xffff_ffff].map(|it| usize::try_from(it % ports).ok())
            };
            let drawn = (0..DRAWS).map(draw).find_map(|drawn| match drawn {
                [Some(a), Some(b)] if a != b && self.network.joins([a, b]) => Some([a, b]),
                _ => None,
            });
            let none = || UnfitJob("ways join hardly any two ports; name them".into());
            self.traffic.push(Traffic { ports: drawn.ok_or_else(none)?, part });
        }
        Ok(())
    }

    /// Number of streams of other jobs.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.traffic.len()
    }

    /// The port of a rank: its own one of its host.
    pub(crate) fn port(&self, rank: Rank) -> usize {
        self.ports[rank.index()][0]
    }

    /// The ports by which a message goes from a rank to one of another host: the sender's own and
    /// the receiver's own. Where no way joins these, the sender's host has one on the receiver's
    /// rail.
    pub(crate) fn pairs(&self, from: Rank, to: Rank) -> [[usize; 2]; 2] {
        let (senders, receiver) = (&self.ports[from.index()], self.ports[to.index()][0]);
        let number = self.numbers[receiver];
        let same = senders.iter().find(|port| self.numbers[**port] == number);
        [[senders[0], receiver], [*same.unwrap_or(&senders[0]), receiver]]
    }
}

/// Gbit/s of all ports together.
fn total(fabric: &Fabric, ports: &[usize]) -> u32 {
    ports.iter().map(|port| fabric.ports[*port].gbps).sum()
}

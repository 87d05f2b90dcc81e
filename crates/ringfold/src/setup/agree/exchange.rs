//! The exchange of all ranks' evidence over the control plane, before the ranks connect.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ringfold_topology::Layout;
use ringfold_topology::agree::{HostEvidence, Known, RankEvidence};
use ringfold_topology::machine::{Affinity, Machine, Network, PciAddress, gpu_of, share, storage};
use ringfold_topology::statement::{self, Statement};
use ringfold_types::{Digest, Rank};

use crate::config::{Config, Filter};
use crate::setup::discover::Discovered;
use crate::setup::error::InitError;
use crate::setup::members::{Members, unreadable};
use crate::setup::peer_info::{EvidenceSummary, PeerInfo};

/// The evidence of all ranks.
#[derive(Debug)]
pub(crate) struct AllEvidence {
    pub(super) known: Known,
    /// By rank: the addresses on which it listens for TCP, each with the index of its port in the
    /// rank's evidence.
    pub(super) tcp: Vec<Vec<(u8, SocketAddr)>>,
}

/// Sends this rank's evidence to all ranks and returns the evidence of all. This rank listens for
/// TCP at `listening`, in the order of its interfaces. Returns `None` without an exchange if no
/// rank's evidence may change routes or schedules.
///
/// # Errors
/// The exchange fails, or the evidence of a rank cannot be read.
pub(crate) fn exchange(
    config: &Config,
    found: &Discovered,
    listening: &[SocketAddr],
    members: &Members<'_>,
) -> Result<Option<AllEvidence>, InitError> {
    let (rank, infos) = (members.rank(), &members.infos);
    let hosts: Vec<&str> = infos.iter().map(|info| info.host_id.as_str()).collect();
    let layout = Layout::from_host_names(&hosts);
    let is_of_use = infos.iter().filter_map(|info| info.evidence).any(|it| it.is_of_use);
    if layout.hosts() < 2 || !is_of_use {
        return Ok(None);
    }
    let local = layout.ranks_on(layout.host(rank));
    let place = local.iter().position(|it| *it == rank).unwrap_or(0);
    let visible = config.environment.get("CUDA_VISIBLE_DEVICES").map(String::as_str);
    let gpu = |machine: &Machine| gpu_of(machine, visible, place, local.len());
    let own = &found.local;
    let statement = Statement {
        gpu: found.machine.as_ref().and_then(gpu),
        tcp: (own.rdma..).zip(listening).filter_map(indexed).collect(),
        evidence: sends_evidence(infos, &layout, rank).then(|| own.evidence.clone()),
    };
    let longest = infos.iter().filter_map(|info| info.evidence).map(|it| it.bytes).max();
    let all = members.exchange(&statement.encode(), longest.unwrap_or(0))?;
    let mut statements = Vec::with_capacity(all.len());
    for (rank, bytes) in all.iter().enumerate() {
        let wrong = |_| unreadable(Rank::at(rank));
        statements.push(Statement::decode(bytes).map_err(wrong)?);
    }
    drop(all);
    let ranks: Vec<LocalRank<'_>> = local
        .iter()
        .map(|it| LocalRank { info: &infos[it.index()], gpu: statements[it.index()].gpu })
        .collect();
    let mut evidence = statements.iter().filter_map(|it| it.evidence.as_ref());
    let have_choice = evidence.any(|it| it.ports.len() > 1);
    let preferred = if have_choice { preferred(config, found, &ranks, place) } else { 0 };
    let mut all_evidence = combine(infos, &layout, statements)?;
    if have_choice {
        let all = members.exchange(&preferred.to_le_bytes(), 4)?;
        for (rank, (it, bytes)) in all_evidence.known.ranks.iter_mut().zip(all).enumerate() {
            let wrong = |_| unreadable(Rank::at(rank));
            it.preferred = u32::from_le_bytes(bytes.try_into().map_err(wrong)?);
        }
    }
    Ok(Some(all_evidence))
}

/// The CPUs and the GPU of a rank on this host.
#[derive(Clone, Copy, Debug)]
struct LocalRank<'a> {
    info: &'a PeerInfo,
    gpu: Option<PciAddress>,
}

fn indexed((port, address): (usize, &SocketAddr)) -> Option<(u8, SocketAddr)> {
    Some((u8::try_from(port).ok()?, *address))
}

/// Whether a rank is the first of its host with this evidence.
fn sends_evidence(infos: &[PeerInfo], layout: &Layout, rank: Rank) -> bool {
    let of = |rank: Rank| infos[rank.index()].evidence.map(|it| it.digest);
    let mut local = layout.ranks_on(layout.host(rank)).iter();
    of(rank).is_some() && local.find(|it| of(**it) == of(rank)) == Some(&rank)
}

/// The ports that the rank at `place` of its host prefers, as a mask: those near its GPU or its
/// CPUs, divided among the host's ranks. 0 if the rank has no choice. Ports for storage are left
/// out unless the user names devices.
fn preferred(config: &Config, found: &Discovered, local: &[LocalRank<'_>], place: usize) -> u32 {
    let own = &found.local;
    let (rdma, tcp) = own.evidence.ports.split_at(own.rdma);
    // The time of the division grows with the cube of the ranks, so it is skipped if useless.
    let Some(machine) = found.machine.as_ref().filter(|_| rdma.len() > 1 || tcp.len() > 1) else {
        return 0;
    };
    let affinity = |it: &LocalRank<'_>| {
        let cpus: Vec<u16> = it.info.cpus.iter().collect();
        Affinity::new(machine, it.gpu, &cpus)
    };
    let affinities: Vec<Affinity> = local.iter().map(affinity).collect();
    let mut mask = 0;
    for (first, ports) in [(0, rdma), (own.rdma, tcp)].into_iter().filter(|it| it.1.len() > 1) {
        let device =
            |name: &'_ str| name.split_once(':').map_or(name.len(), |(name, _)| name.len());
        let names: Vec<&str> = ports.iter().map(|port| &port.name[..device(&port.name)]).collect();
        let may_omit = first < own.rdma && config.ib_devices == Filter::default();
        let apart = if may_omit { storage(machine, &names) } else { Vec::new() };
        let used: Vec<usize> = (0..names.len()).filter(|at| !apart.contains(at)).collect();
        let names: Vec<&str> = used.iter().map(|at| names[*at]).collect();
        let shares = share(machine, &affinities, &names);
        for at in shares.get(place).into_iter().flatten() {
            mask |= 1_u32.checked_shl(u32::try_from(first + used[*at]).unwrap_or(32)).unwrap_or(0);
        }
    }
    mask
}

/// Puts all statements together.
fn combine(
    infos: &[PeerInfo],
    layout: &Layout,
    statements: Vec<Statement>,
) -> Result<AllEvidence, InitError> {
    let mut machines = BTreeMap::new();
    let mut known = Known::default();
    let mut found = BTreeMap::new();
    let mut tcp = Vec::with_capacity(infos.len());
    for (index, (info, statement)) in infos.iter().zip(statements).enumerate() {
        let rank = Rank::at(index);
        let host = layout.host(rank);
        let next = u32::try_from(machines.len()).unwrap_or(u32::MAX);
        let machine = *machines.entry(info.machine()).or_insert(next);
        if known.machines.len() == host as usize {
            known.machines.push(machine);
        }
        let wrong = || unreadable(rank);
        let evidence = match info.evidence {
            None => None,
            Some(EvidenceSummary { digest: wanted, .. }) => {
                let next = u32::try_from(known.evidence.len()).unwrap_or(u32::MAX);
                let at = *found.entry((host, wanted)).or_insert(next);
                if at == next {
                    let evidence = statement.evidence.ok_or_else(wrong)?;
                    if Digest::of(statement::encode(&evidence)) != wanted {
                        return Err(wrong());
                    }
                    known.evidence.push(HostEvidence { host, evidence });
                }
                Some(at)
            }
        };
        let ports = evidence.map(|at| &known.evidence[at as usize].evidence.ports);
        let is_there = |(port, _): &(u8, SocketAddr)| {
            ports
                .and_then(|ports| ports.get(usize::from(*port)))
                .is_some_and(|it| it.network == Network::Tcp)
        };
        if !statement.tcp.iter().all(is_there) {
            return Err(wrong());
        }
        tcp.push(statement.tcp);
        known.ranks.push(RankEvidence { host, evidence, preferred: 0 });
    }
    Ok(AllEvidence { known, tcp })
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use ringfold_bootstrap::Control;
    use ringfold_bootstrap::local::controls;
    use ringfold_topology::discover::Host;
    use ringfold_topology::evidence::{Attached, Evidence, PortEvidence, Source};
    use ringfold_topology::fabric::Place;
    use ringfold_topology::machine::{Gpu, Interface, PciDevice};
    use ringfold_topology::prices::{Locality, Rates};

    use super::*;
    use crate::setup::discover::LocalEvidence;

    const fn address(bus: u8) -> PciAddress {
        PciAddress { domain: 0, bus, device: 0, function: 0 }
    }

    /// Two NUMA nodes, with a GPU and an interface on each.
    fn machine() -> Machine {
        let mut machine = Machine::default();
        for (node, bus) in [(0, 0x10), (1, 0x20)] {
            for address in [address(bus), address(bus + 1)] {
                let node = Some(node);
                machine.devices.push(PciDevice { address, node, ..PciDevice::default() });
            }
            machine.gpus.push(Gpu { pci: address(bus), node: Some(node), domain: None });
            let (name, pci) = (format!("eth{node}"), Some(address(bus + 1)));
            machine.interfaces.push(Interface { name, pci, ..Interface::default() });
        }
        machine
    }

    /// A rank on a host with these interfaces, each declared a rail.
    fn found(machine: Option<Machine>, interfaces: u16) -> Discovered {
        let port = |rail| PortEvidence {
            name: format!("eth{rail}"),
            network: Network::Tcp,
            gbps: 0,
            attached: vec![Attached::Rail(Place { rail, plane: 0 }, Source::Declared)],
        };
        let ports = (0..interfaces).map(port).collect();
        let evidence = Evidence { ports, ..Evidence::default() };
        Discovered {
            host: Host { id: String::new(), name: String::new() },
            cpus: "0".parse().unwrap(),
            cores: 1,
            interface: None,
            interfaces: Vec::new(),
            others: Vec::new(),
            machine,
            local: LocalEvidence { evidence, is_of_use: true, ..LocalEvidence::default() },
            rates: Rates::default(),
            locality: Locality::default(),
            rdma_ports: 0,
            witness: None,
        }
    }

    /// A rank of the test: its host, its discovery, and its list of GPUs.
    struct Member<'a> {
        host: &'a str,
        found: Discovered,
        visible: Option<&'a str>,
    }

    /// Two ranks on host a, which has a choice of ports, and one on host b.
    fn three(visible: [Option<&str>; 2]) -> [Member<'_>; 3] {
        let [first, second] = visible.map(|visible| Member {
            host: "a/1",
            found: found(Some(machine()), 2),
            visible,
        });
        [first, second, Member { host: "b/1", found: found(None, 1), visible: None }]
    }

    /// The outcome of each member's exchange. Member k listens on TCP port k + 1 of each interface.
    fn exchange_all(members: &[Member<'_>]) -> Vec<Result<AllEvidence, InitError>> {
        let info = |Member { host, found, .. }: &Member<'_>| PeerInfo {
            host_id: (*host).to_owned(),
            evidence: EvidenceSummary::of(&found.local, found.local.evidence.ports.len()),
            ..PeerInfo::default()
        };
        let infos: Vec<PeerInfo> = members.iter().map(info).collect();
        let part = |control: Control, member: &Member<'_>| {
            let port = u16::try_from(control.rank().index() + 1).unwrap();
            let ports = member.found.local.evidence.ports.iter();
            let listening: Vec<SocketAddr> =
                ports.map(|_| SocketAddr::from(([10, 0, 0, 1], port))).collect();
            let mut config = Config::default();
            let visible = member.visible.map(str::to_owned);
            let name = String::from("CUDA_VISIBLE_DEVICES");
            config.environment.extend(visible.map(|visible| (name, visible)));
            let deadline = Instant::now() + Duration::from_secs(60);
            let members = Members { control: &control, infos: infos.clone(), deadline };
            let outcome = exchange(&config, &member.found, &listening, &members);
            control.leave().unwrap();
            outcome.map(Option::unwrap)
        };
        thread::scope(|scope| {
            let part = &part;
            let all = controls(members.len()).unwrap().into_iter().zip(members);
            let all: Vec<_> = all.map(|(c, member)| scope.spawn(move || part(c, member))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn preferred(visible: [Option<&str>; 2]) -> Vec<u32> {
        let outcome = exchange_all(&three(visible)).remove(2).unwrap();
        outcome.known.ranks.iter().map(|rank| rank.preferred).collect()
    }

    #[test]
    fn ranks_prefer_the_ports_near_the_gpus_that_they_see() {
        assert_eq!(preferred([None, None]), [0b01, 0b10, 0], "GPUs in turn");
        assert_eq!(preferred([Some("1"), Some("0")]), [0b10, 0b01, 0], "one each");
        assert_eq!(preferred([Some("1,0"), Some("1,0")]), [0b10, 0b01, 0], "one list for both");
    }

    #[test]
    fn all_ranks_receive_the_evidence_of_every_host() {
        for outcome in exchange_all(&three([None, None])) {
            let AllEvidence { known, tcp } = outcome.unwrap();
            let evidence: Vec<(u32, usize)> =
                known.evidence.iter().map(|it| (it.host, it.evidence.ports.len())).collect();
            assert_eq!(evidence, [(0, 2), (1, 1)]);
            let of_ranks: Vec<Option<u32>> = known.ranks.iter().map(|it| it.evidence).collect();
            assert_eq!(of_ranks, [Some(0), Some(0), Some(1)]);
            assert_eq!(known.machines, [0, 1]);
            let ports = |it: &Vec<(u8, SocketAddr)>| -> Vec<(u8, u16)> {
                it.iter().map(|(port, address)| (*port, address.port())).collect()
            };
            let tcp: Vec<Vec<(u8, u16)>> = tcp.iter().map(ports).collect();
            assert_eq!(tcp, [vec![(0, 1), (1, 1)], vec![(0, 2), (1, 2)], vec![(0, 3)]]);
        }
    }

    #[test]
    fn addresses_of_ports_that_are_not_there_are_refused() {
        let mut members = three([None, None]);
        // Its addresses are those of ports 1 and 2 now, and it has ports 0 and 1.
        members[1].found.local.rdma = 1;
        for outcome in exchange_all(&members) {
            let error = outcome.unwrap_err().to_string();
            assert!(
                error.starts_with("rank 1 sent evidence of the fabric that cannot be read"),
                "{error}"
            );
        }
    }
}

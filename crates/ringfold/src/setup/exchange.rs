//! Everyone's evidence, told over the control plane before the ranks connect.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{Control, ExchangeError};
use ringfold_topology::Layout;
use ringfold_topology::agree::{HostEvidence, Known, RankEvidence};
use ringfold_topology::machine::{Machine, Network, Seat, gpu_of, share, storage};
use ringfold_types::Rank;
use ringfold_types::limits::EVIDENCE_BYTES_MAX;

use super::Own;
use super::wire::{self, Statement, UnreadableEvidence};
use crate::card::{Card, EvidenceCard};
use crate::config::{Config, Filter};
use crate::settings::digest;

/// What all ranks know.
#[derive(Debug)]
pub(crate) struct Told {
    pub(super) known: Known,
    /// By rank: where it listens for TCP, each with the index of the port in its evidence.
    pub(super) tcp: Vec<Vec<(u8, SocketAddr)>>,
}

/// Why the ranks do not know of each other's evidence.
#[derive(Debug)]
pub(crate) enum ExchangeFailed {
    /// The exchange itself failed.
    Control(ExchangeError),
    /// A rank's evidence makes no sense.
    Evidence(Rank, UnreadableEvidence),
}

/// Tells the others what this rank knows, and hears what they know. Nothing where no rank knows
/// anything that could change how data moves; then nobody exchanges anything.
pub(crate) fn exchange(
    config: &Config,
    control: &Control,
    cards: &[Card],
    own: &Own,
    listening: &[SocketAddr],
    deadline: Instant,
) -> Result<Option<Told>, ExchangeFailed> {
    let hosts: Vec<&str> = cards.iter().map(|card| card.host_id.as_str()).collect();
    let layout = Layout::from_host_names(&hosts);
    let is_of_use = cards.iter().filter_map(|card| card.evidence).any(|it| it.is_of_use);
    if layout.hosts() < 2 || !is_of_use {
        return Ok(None);
    }
    let (rank, host) = (control.rank(), layout.host(control.rank()));
    let local = layout.ranks_on(host);
    let place = local.iter().position(|it| *it == rank).unwrap_or(0);
    let visible = config.environment.get("CUDA_VISIBLE_DEVICES").map(String::as_str);
    let gpu = |machine: &Machine| gpu_of(machine, visible, place, local.len());
    let statement = Statement {
        gpu: own.machine.as_ref().and_then(gpu),
        tcp: (own.rdma..).zip(listening).filter_map(told).collect(),
        evidence: tells_for_others(cards, &layout, rank).then(|| own.evidence.clone()),
    };
    let longest = cards.iter().filter_map(|card| card.evidence).map(|it| it.bytes).max();
    let all = gather(control, &statement.encode(), longest.unwrap_or(0), deadline)?;
    let mut statements = Vec::with_capacity(all.len());
    for (rank, bytes) in all.iter().enumerate() {
        let wrong = |e| ExchangeFailed::Evidence(Rank::at(rank), e);
        statements.push(Statement::decode(bytes).map_err(wrong)?);
    }
    drop(all);
    let seats: Vec<(&Card, &Statement)> =
        local.iter().map(|it| (&cards[it.index()], &statements[it.index()])).collect();
    let mut told = statements.iter().filter_map(|it| it.evidence.as_ref());
    let have_choice = told.any(|it| it.ports.len() > 1);
    let preferred = if have_choice { preferred(config, own, &seats, place) } else { 0 };
    let mut told = assemble(cards, &layout, statements)?;
    if have_choice {
        let all = gather(control, &preferred.to_le_bytes(), 4, deadline)?;
        for (rank, (it, bytes)) in told.known.ranks.iter_mut().zip(all).enumerate() {
            let wrong = |_| ExchangeFailed::Evidence(Rank::at(rank), UnreadableEvidence);
            it.preferred = u32::from_le_bytes(bytes.try_into().map_err(wrong)?);
        }
    }
    Ok(Some(told))
}

fn told((port, address): (usize, &SocketAddr)) -> Option<(u8, SocketAddr)> {
    Some((u8::try_from(port).ok()?, *address))
}

/// Whether a rank is the first of its host with its evidence.
fn tells_for_others(cards: &[Card], layout: &Layout, rank: Rank) -> bool {
    let of = |rank: Rank| cards[rank.index()].evidence.map(|it| it.digest);
    let mut local = layout.ranks_on(layout.host(rank)).iter();
    of(rank).is_some() && local.find(|it| of(**it) == of(rank)) == Some(&rank)
}

/// Every rank's bytes, of which none has more than `longest`. Where a message has no room for all
/// of them, the ranks take turns.
fn gather(
    control: &Control,
    bytes: &[u8],
    longest: usize,
    deadline: Instant,
) -> Result<Vec<Vec<u8>>, ExchangeFailed> {
    let share = Control::exchange_bytes_max(control.size()).max(1);
    let mut all = vec![Vec::new(); control.size()];
    for turn in 0..longest.div_ceil(share).max(1) {
        let piece = bytes.iter().skip(turn * share).take(share).copied().collect();
        let left = deadline.saturating_duration_since(Instant::now());
        let pieces = control.exchange(piece, left.max(Duration::from_millis(1)));
        for (rank, (all, piece)) in
            all.iter_mut().zip(pieces.map_err(ExchangeFailed::Control)?).enumerate()
        {
            if all.len() + piece.len() > EVIDENCE_BYTES_MAX {
                return Err(ExchangeFailed::Evidence(Rank::at(rank), UnreadableEvidence));
            }
            all.extend(piece);
        }
    }
    Ok(all)
}

/// The ports that the rank at `place` of its host prefers, as a mask: those near its GPU or its
/// CPUs, shared out among the host's ranks. None where it has no choice. Ports for storage are left
/// out unless the user names devices.
fn preferred(config: &Config, own: &Own, local: &[(&Card, &Statement)], place: usize) -> u32 {
    let (rdma, tcp) = own.evidence.ports.split_at(own.rdma);
    // Sharing out takes time by the cube of the ranks, so it must be of use.
    let Some(machine) = own.machine.as_ref().filter(|_| rdma.len() > 1 || tcp.len() > 1) else {
        return 0;
    };
    let seat = |(card, statement): &(&Card, &Statement)| {
        let cpus: Vec<u16> = card.cpus.iter().collect();
        Seat::new(machine, statement.gpu, &cpus)
    };
    let seats: Vec<Seat> = local.iter().map(seat).collect();
    let mut mask = 0;
    for (first, ports) in [(0, rdma), (own.rdma, tcp)].into_iter().filter(|it| it.1.len() > 1) {
        let device =
            |name: &'_ str| name.split_once(':').map_or(name.len(), |(name, _)| name.len());
        let names: Vec<&str> = ports.iter().map(|port| &port.name[..device(&port.name)]).collect();
        let may_omit = first < own.rdma && config.ib_devices == Filter::default();
        let apart = if may_omit { storage(machine, &names) } else { Vec::new() };
        let used: Vec<usize> = (0..names.len()).filter(|at| !apart.contains(at)).collect();
        let names: Vec<&str> = used.iter().map(|at| names[*at]).collect();
        let shares = share(machine, &seats, &names);
        for at in shares.get(place).into_iter().flatten() {
            mask |= 1_u32.checked_shl(u32::try_from(first + used[*at]).unwrap_or(32)).unwrap_or(0);
        }
    }
    mask
}

/// What all statements say together.
fn assemble(
    cards: &[Card],
    layout: &Layout,
    statements: Vec<Statement>,
) -> Result<Told, ExchangeFailed> {
    let mut machines = BTreeMap::new();
    let mut known = Known::default();
    let mut found = BTreeMap::new();
    let mut tcp = Vec::with_capacity(cards.len());
    for (index, (card, statement)) in cards.iter().zip(statements).enumerate() {
        let rank = Rank::at(index);
        let host = layout.host(rank);
        let next = u32::try_from(machines.len()).unwrap_or(u32::MAX);
        let machine = *machines.entry(card.machine()).or_insert(next);
        if known.machines.len() == host as usize {
            known.machines.push(machine);
        }
        let wrong = || ExchangeFailed::Evidence(rank, UnreadableEvidence);
        let evidence = match card.evidence {
            None => None,
            Some(EvidenceCard { digest: wanted, .. }) => {
                let next = u32::try_from(known.evidence.len()).unwrap_or(u32::MAX);
                let at = *found.entry((host, wanted)).or_insert(next);
                if at == next {
                    let evidence = statement.evidence.ok_or_else(wrong)?;
                    if digest(wire::encode(&evidence)) != wanted {
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
    Ok(Told { known, tcp })
}

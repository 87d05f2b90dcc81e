//! Bringing the ranks together: who they are, where they are, and how they reach each other.

use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::sync::Once;
use std::time::Instant;

use ringfold_bootstrap::interface::{Choice, Family, choose_all, interfaces};
use ringfold_bootstrap::{Control, Identity, Options, Rendezvous, discover};
use ringfold_lend::placement;
use ringfold_topology::evidence::Evidence;
use ringfold_topology::{Crowd, Layout, discover as machine};
use ringfold_transport::rdma::{self, Rails, Rdma};
use ringfold_transport::shm::{self, Shm};
use ringfold_transport::tcp::{self, Route};
use ringfold_types::Rank;
use ringfold_types::limits::{CHANNELS_MAX, LANES_MAX, TCP_CHANNELS};
use tracing::subscriber::NoSubscriber;

use crate::card::{Card, crowds};
use crate::communicator::Parts;
use crate::config::{Config, Transports};
use crate::engine::Engine;
use crate::init_error::InitError;
use crate::plans::Plans;
use crate::router::{Router, Via};
use crate::settings::Settings;
use crate::setup::{self, Agreed, ExchangeFailed, Own};
use crate::wait::Patience;

/// Joins the job that the environment describes. Blocks until all ranks are there.
pub(crate) fn join(config: &Config) -> Result<Parts, InitError> {
    start_log(config);
    if tracing::dispatcher::get_default(|log| !log.is::<NoSubscriber>()) {
        return meet(config);
    }
    // Ranks that wait for each other in vain say why, also in a program that keeps no log.
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
    let log = log.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
    tracing::subscriber::with_default(log.finish(), || meet(config))
}

fn meet(config: &Config) -> Result<Parts, InitError> {
    let variable = |name: &str| config.environment.get(name).cloned();
    let mut identity = discover(&variable)?;
    let (rank, size) = (identity.rank, identity.size);
    let (launcher, version) = (identity.launcher, env!("CARGO_PKG_VERSION"));
    tracing::info!("ringfold {version}: rank {rank} of {size}, launcher {launcher}");
    if size == 1 {
        return alone(config);
    }
    let secret = identity.secret(&variable, config.join_timeout)?;
    let key = secret.data_key(&identity.job);
    let here = Here::open(config, &identity, key)?;
    let card = here.card(config);
    let options = here.options(config, &identity);
    let (control, cards) = Control::join(identity, secret, card.encode(), options)?;
    let cards: Vec<Card> = cards
        .iter()
        .enumerate()
        .map(|(peer, card)| {
            let rank = Rank::at(peer);
            Card::decode(card).map_err(|source| InitError::Card { rank, source })
        })
        .collect::<Result<_, _>>()?;
    if let Err(different) = Settings::compare(cards.iter().map(|card| &card.settings)) {
        // All ranks see the same cards, so that nobody stays; there is nothing else to be heard.
        control.leave().unwrap_or_default();
        return Err(different.into());
    }
    assemble(config, here, &cards, control, key)
}

/// Everything that a rank on this host would tell other ranks of its place in the network, under
/// these settings: its ports, and which source says what of each. Opens RDMA devices, closes them
/// again, and sends nothing.
///
/// # Errors
/// The file that describes the fabric cannot be used, or no interface suits the settings.
pub fn evidence(config: &Config) -> Result<Evidence, InitError> {
    let (rank, host) = (Rank(0), machine::Host::this());
    let choices = interface(config, rank, false)?;
    let rails = open_rails(config, rank, choices.first())?;
    let machine = Own::machine(config, rails.as_ref(), &choices);
    let listed = setup::interfaces(config, &choices, machine.as_ref());
    Ok(Own::look(config, &host.name, machine, rails.as_ref(), &listed)?.into_evidence())
}

/// What this rank has found and opened before it meets the others.
struct Here {
    host: machine::Host,
    /// The interface by which it meets them, if it may need one.
    choice: Option<Choice>,
    doors: Doors,
    own: Own,
}

impl Here {
    fn open(config: &Config, identity: &Identity, key: [u8; 32]) -> Result<Self, InitError> {
        let (rank, host) = (identity.rank, machine::Host::this());
        let choices = interface(config, rank, meets_locally(&identity.rendezvous))?;
        let choice = choices.first().cloned();
        let mut rails = open_rails(config, rank, choice.as_ref())?;
        let machine = Own::machine(config, rails.as_ref(), &choices);
        if let (Some(rails), Some(machine)) = (&mut rails, &machine) {
            rails.locate(machine);
        }
        let listed = setup::interfaces(config, &choices, machine.as_ref());
        let own = Own::look(config, &host.name, machine, rails.as_ref(), &listed)?;
        let may_listen = config.transports.tcp || rails.is_some();
        let addresses: Vec<IpAddr> = listed.iter().map(|it| it.choice.address).collect();
        let tcp = (may_listen && !addresses.is_empty()).then(|| open_tcp(addresses, identity, key));
        let doors = Doors { shm: open_shm(config, rank, key)?, rails, tcp: tcp.transpose()? };
        Ok(Self { host, choice, doors, own })
    }

    /// Where this rank listens for TCP.
    fn listening(&self) -> &[SocketAddr] {
        self.doors.tcp.as_ref().map_or(&[], tcp::Listening::addresses)
    }

    /// The card has the first of several addresses; the others go with the evidence.
    fn card(&self, config: &Config) -> Card {
        let (host, doors) = (&self.host, &self.doors);
        let listening = self.listening();
        Card {
            settings: Settings::of(config, self.own.site),
            cpus: machine::Cpus::allowed(),
            cores: machine::cores(),
            host_id: config.host_id.iter().fold(host.id.clone(), |id, name| format!("{id}/{name}")),
            shm: doors.shm.as_ref().map_or_else(String::new, shm::Pending::address),
            rdma: doors.rails.as_ref().map_or_else(String::new, Rails::networks),
            may_use_tcp: config.transports.tcp,
            evidence: self.own.card(listening.len()),
            tcp: listening.first().copied().into_iter().collect(),
        }
    }

    fn options(&self, config: &Config, identity: &Identity) -> Options {
        // Where the launcher names rank 0's place, that is where the others look.
        let is_named = matches!(identity.rendezvous, Rendezvous::Ports { .. });
        let choice = self.choice.as_ref();
        let bind = choice.filter(|_| config.socket_ifname.is_some() && !is_named);
        Options {
            timeout: config.join_timeout,
            bind: bind.map(|choice| choice.address),
            host: Some(self.host.name.clone()),
            ..Options::default()
        }
    }
}

/// Agrees on the layout with the other ranks, whose cards these are, and connects to them.
fn assemble(
    config: &Config,
    mut here: Here,
    cards: &[Card],
    control: Control,
    key: [u8; 32],
) -> Result<Parts, InitError> {
    let (rank, size) = (control.rank(), control.size());
    let deadline = Instant::now() + config.join_timeout;
    let crowds = crowds(cards);
    let crowd = crowds[cards[rank.index()].machine()];
    tracing::info!("rank {rank}: {} ranks on {} CPUs of this machine", crowd.ranks, crowd.cpus);
    let agreed = agree(config, &here, cards, &control, deadline)?;
    let densest = crowds.into_values().fold(crowd, Crowd::denser);
    let layout = layout(cards, densest, config.channels, &agreed);
    if let Some(rails) = &mut here.doors.rails {
        agreed.label(rank, rails);
    }
    let mut named = config.rdma();
    named.host = here.host.name;
    let settings = rdma::Config {
        key,
        rank,
        lanes: LANES_MAX,
        settings: named,
        reaches: vec![false; size],
        may_use_tcp: cards.iter().all(|card| card.may_use_tcp),
        placement: Some(placement()),
    };
    let router = connect(rank, &layout, (cards, &agreed), here.doors, settings, deadline)?;
    for peer in (0..size).map(Rank::at).filter(|peer| *peer != rank) {
        tracing::info!("rank {rank}: rank {peer} by {}", router.name(peer));
    }
    let patience = Patience::new(crowd, router.shares_memory());
    Ok(Parts { interface: here.choice, ..parts(config, layout, router, patience, control) })
}

/// Exchanges evidence of the fabric, if any rank has some of use, and logs the outcome once.
fn agree(
    config: &Config,
    here: &Here,
    cards: &[Card],
    control: &Control,
    deadline: Instant,
) -> Result<Agreed, InitError> {
    let rank = control.rank();
    let told = setup::exchange(config, control, cards, &here.own, here.listening(), deadline);
    let agreed = Agreed::of(told.map_err(|failed| match failed {
        ExchangeFailed::Control(source) => InitError::Exchange { rank, source },
        ExchangeFailed::Evidence(rank, source) => InitError::Evidence { rank, source },
    })?);
    if rank.0 == 0 && tracing::enabled!(tracing::Level::INFO) {
        agreed.lines().iter().for_each(|line| tracing::info!("{line}"));
    }
    Ok(agreed)
}

fn alone(config: &Config) -> Result<Parts, InitError> {
    let mut controls = ringfold_bootstrap::local::controls(1).map_err(InitError::Descriptors)?;
    let Some(control) = controls.pop() else { unreachable!("one was asked for") };
    let router = Router::new(Vec::new(), vec![0], vec!["none"]);
    let patience = Patience::new(Crowd { ranks: 1, cpus: 1 }, true);
    Ok(parts(config, Layout::one_host(1), router, patience, control))
}

fn parts(
    config: &Config,
    layout: Layout,
    router: Router,
    patience: Patience,
    control: Control,
) -> Parts {
    Parts {
        layout,
        engine: Engine::new(router, patience),
        plans: Plans::new(config),
        control,
        timeout: config.timeout,
        interface: None,
    }
}

/// Where this rank waits for the others' data.
struct Doors {
    shm: Option<shm::Pending>,
    rails: Option<Rails>,
    tcp: Option<tcp::Listening>,
}

/// Begins to listen for ranks of this host, if shared memory may be used.
fn open_shm(config: &Config, rank: Rank, key: [u8; 32]) -> Result<Option<shm::Pending>, InitError> {
    if !config.transports.shm {
        return Ok(None);
    }
    let (lanes, offers) = (LANES_MAX, config.shm_cma);
    let pending = Shm::listen(shm::Config { key, rank, lanes, offers });
    pending.map(Some).map_err(|e| InitError::Shm { rank, source: e.into() })
}

/// Opens the RDMA devices, if they may be used.
fn open_rails(
    config: &Config,
    rank: Rank,
    choice: Option<&Choice>,
) -> Result<Option<Rails>, InitError> {
    let Transports { shm, rdma, tcp } = config.transports;
    if !rdma {
        return Ok(None);
    }
    match Rails::open(&config.rdma(), choice.map(|choice| choice.address)) {
        Ok(rails) => Ok(Some(rails)),
        Err(source) if !shm && !tcp => Err(InitError::Rdma { rank, source }),
        Err(why) => {
            tracing::info!("rank {rank}: {why}");
            Ok(None)
        }
    }
}

/// The interface to use, and those that suit as well, if TCP may be used, or RDMA, or the user
/// names some.
fn interface(config: &Config, rank: Rank, all_local: bool) -> Result<Vec<Choice>, InitError> {
    let filter = setup::filter(config);
    let may_listen = config.transports.tcp || config.transports.rdma;
    if !may_listen && filter.is_none() {
        return Ok(Vec::new());
    }
    let interfaces = interfaces().map_err(InitError::Interfaces)?;
    let choices = choose_all(&interfaces, filter.as_ref(), Family::Any, all_local)?;
    choices.first().iter().for_each(|it| tracing::info!("rank {rank}: {it}"));
    Ok(choices)
}

/// Begins to listen for TCP.
fn open_tcp(
    addresses: Vec<IpAddr>,
    identity: &Identity,
    key: [u8; 32],
) -> Result<tcp::Listening, InitError> {
    let (rank, size) = (identity.rank, identity.size);
    let listening = tcp::Tcp::listen(tcp::Config {
        key,
        rank,
        size,
        lanes: LANES_MAX,
        bind: addresses,
        ports: None,
        liveness: tcp::Liveness::default(),
    });
    listening.map_err(|source| InitError::Listen { rank, source })
}

/// Whether the ranks meet at an address that no other host reaches.
fn meets_locally(rendezvous: &Rendezvous) -> bool {
    let is_loopback = |host: &str| {
        host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    };
    match rendezvous {
        Rendezvous::Alone => true,
        Rendezvous::Ports { hosts, .. } => hosts.iter().all(|host| is_loopback(host)),
        Rendezvous::Ask { address } => address
            .rsplit_once(':')
            .is_some_and(|(host, _)| is_loopback(host.trim_matches(['[', ']']))),
        Rendezvous::Kvs(_) => false,
    }
}

/// Where the ranks are, with so many channels if that is set. All come to the same result.
fn layout(cards: &[Card], densest: Crowd, channels: Option<u8>, agreed: &Agreed) -> Layout {
    let hosts: Vec<&str> = cards.iter().map(|card| card.host_id.as_str()).collect();
    let layout = Layout::from_host_names(&hosts).with_crowd(densest);
    let share = |card: &Card| shm::same_host(&card.shm, &cards[0].shm);
    let shares_memory = layout.hosts() == 1 && cards.iter().all(share);
    let by_tcp = !shares_memory && cards.iter().all(|card| card.rdma.is_empty());
    let reaches_all = |network| cards.iter().all(|card| card.rdma.contains(network));
    let by_rdma = !shares_memory && cards[0].rdma.chars().any(reaches_all);
    // Lane k is on rail k.
    let rails = || u8::try_from(agreed.tcp_rails()).unwrap_or(CHANNELS_MAX);
    let channels = channels.unwrap_or_else(|| if by_tcp { TCP_CHANNELS.max(rails()) } else { 1 });
    let channels = channels.clamp(1, CHANNELS_MAX).into();
    let layout = layout.sharing_memory(shares_memory).with_rdma(by_rdma);
    agreed.layout(layout.with_channels(channels))
}

/// Connects to every peer by the first transport that both offer.
fn connect(
    rank: Rank,
    layout: &Layout,
    (cards, agreed): (&[Card], &Agreed),
    doors: Doors,
    mut rdma: rdma::Config,
    deadline: Instant,
) -> Result<Router, InitError> {
    let (mut by_shm, mut by_tcp) = (Vec::new(), Vec::new());
    let own = &cards[rank.index()];
    let mut strangers = Vec::new();
    let mut names = vec!["none"; cards.len()];
    for (index, card) in cards.iter().enumerate() {
        let peer = Rank::at(index);
        if peer == rank {
            continue;
        }
        let both_listen = !own.tcp.is_empty() && !card.tcp.is_empty();
        let have_rails = own.rdma.chars().any(|network| card.rdma.contains(network));
        if layout.same_host(rank, peer) && shm::same_host(&own.shm, &card.shm) {
            names[index] = "shm";
            by_shm.push((peer, card.shm.clone()));
        } else if both_listen && (have_rails || own.may_use_tcp && card.may_use_tcp) {
            names[index] = if have_rails { "rdma" } else { "tcp" };
            strangers.extend((!have_rails).then(|| apart(rank, own, peer, card)).flatten());
            rdma.reaches[index] = have_rails;
            // The interface that suits best carries what no rail does.
            let mut ways = agreed.ways(rank, peer);
            ways.others.extend(anywhere(card));
            by_tcp.push((peer, ways));
        } else {
            let same_host = layout.same_host(rank, peer);
            let rdma = apart(rank, own, peer, card).unwrap_or_default();
            return Err(InitError::Unreachable { rank, peer, same_host, rdma });
        }
    }
    // One line, however many they are: all of a host have the same reason.
    if let Some(first) = strangers.first() {
        let count = strangers.len();
        tracing::info!("rank {rank}: {count} ranks by tcp for want of a common rdma: {first}");
    }
    let mut transports = Vec::new();
    let mut route = vec![0; cards.len()];
    if let Some(shm) = doors.shm.filter(|_| !by_shm.is_empty()) {
        by_shm.iter().for_each(|(peer, _)| route[peer.index()] = transports.len());
        let shm = shm.connect(&by_shm, deadline);
        let shm = shm.map_err(|source| InitError::Shm { rank, source })?;
        transports.push(Via::Memory(Box::new(shm)));
    }
    if let Some(tcp) = doors.tcp.filter(|_| !by_tcp.is_empty()) {
        by_tcp.iter().for_each(|(peer, _)| route[peer.index()] = transports.len());
        let tcp = tcp.connect_by_rail(by_tcp)?;
        transports.push(Via::Messages(
            match doors.rails.filter(|_| rdma.reaches.contains(&true)) {
                Some(rails) => {
                    Box::new(Rdma::new(rails, tcp, rdma).map_err(InitError::Descriptors)?)
                }
                None => Box::new(tcp),
            },
        ));
    }
    Ok(Router::new(transports, route, names))
}

/// Ways to a rank's addresses from any of this rank's.
fn anywhere(card: &Card) -> Vec<Route> {
    card.tcp.iter().map(|to| Route { from: None, to: *to }).collect()
}

/// Why two ranks have no RDMA in common, if one of them has some.
fn apart(rank: Rank, own: &Card, peer: Rank, card: &Card) -> Option<String> {
    let none = |rank| Some(format!("rank {rank} has no RDMA port to use; its log says why"));
    match (own.rdma.is_empty(), card.rdma.is_empty()) {
        (true, true) => None,
        (true, false) => none(rank),
        (false, true) => none(peer),
        (false, false) => {
            let what = Rails::apart(&own.rdma, &card.rdma);
            Some(format!("RDMA ports of ranks {rank} and {peer} {what}"))
        }
    }
}

/// Installs a log for programs that have none, if the user wants to read it.
fn start_log(config: &Config) {
    static ONCE: Once = Once::new();
    let Some(level) = config.debug else { return };
    ONCE.call_once(|| {
        let log = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
        // A program that has a subscriber of its own keeps it.
        log.try_init().ok();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_rdma_if_they_share_a_network_and_no_memory() {
        let has_rdma = |networks: [&str; 3], shm: &str| {
            let cards = networks.map(|networks| {
                let (rdma, shm) = (networks.to_owned(), shm.to_owned());
                Card { rdma, shm, ..Card::default() }
            });
            layout(&cards, Crowd { ranks: 1, cpus: 1 }, None, &Agreed::default()).has_rdma()
        };
        assert!(has_rdma(["ei", "i", "i"], "") && !has_rdma(["ei", "i", "e"], ""));
        assert!(!has_rdma(["i", "i", ""], "") && !has_rdma(["", "", ""], ""));
        let half = "0".repeat(32);
        let place = format!("{half}.{half}");
        assert!(shm::same_host(&place, &place) && !has_rdma(["i", "i", "i"], &place));
    }

    #[test]
    fn ranks_without_a_common_network_are_told_why() {
        let [here, there] =
            ["i", "e"].map(|networks| Card { rdma: networks.to_owned(), ..Card::default() });
        let cards = [here, there];
        let doors = Doors { shm: None, rails: None, tcp: None };
        let settings = rdma::Config {
            key: [0; 32],
            rank: Rank(0),
            lanes: LANES_MAX,
            settings: rdma::Settings::default(),
            reaches: vec![false; 2],
            may_use_tcp: false,
            placement: None,
        };
        let layout = Layout::from_host_names(&["a", "b"]);
        let error = connect(
            Rank(0),
            &layout,
            (&cards, &Agreed::default()),
            doors,
            settings,
            Instant::now(),
        )
        .unwrap_err();
        let text = error.to_string();
        let why = "that both use; RDMA ports of ranks 0 and 1 are InfiniBand and RoCE, and one is";
        assert!(text.contains(why) && text.contains("LINK_TYPE_P1"), "{text}");
        let none = apart(Rank(0), &cards[0], Rank(1), &Card::default());
        assert_eq!(none.as_deref(), Some("rank 1 has no RDMA port to use; its log says why"));
        assert_eq!(apart(Rank(0), &Card::default(), Rank(1), &Card::default()), None);
    }
}

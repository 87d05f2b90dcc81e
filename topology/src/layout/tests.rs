//! Layouts of small and large jobs.

use ringfold_harness::Random;

use super::*;
use crate::fabric::Place;
use crate::prices::Rates;

/// Rails of plane 0.
fn rails(rails: impl IntoIterator<Item = u16>) -> Reach {
    rails.into_iter().filter_map(|rail| Reach::of(Place { rail, plane: 0 })).collect()
}

/// A rank that reaches all of `count` rails and prefers one.
fn all_but_prefers(count: u16, rail: u16) -> RankReach {
    RankReach { reaches: rails(0..count), prefers: rails([rail]) }
}

/// A rank that reaches one rail.
fn only(rail: u16) -> RankReach {
    RankReach { reaches: rails([rail]), prefers: rails([rail]) }
}

/// The rank's position on its host, as the number of its rail.
fn place(rank: usize, ranks: usize) -> u16 {
    u16::try_from(rank % ranks).unwrap_or(0)
}

/// Paths of hosts in order, with `group` hosts in a group and `pod` hosts in a pod.
fn paths(hosts: u32, group: u32, pod: u32) -> Vec<Path> {
    let path = |host| Path { order: host, pod: host / pod, group: host / group, machine: host };
    (0..hosts).map(path).collect()
}

/// Messages between neighbours of the ring that leave their rail.
fn leave_rails(layout: &Layout) -> usize {
    let (ring, size) = (layout.ring(), layout.size());
    let leaves = |place: &usize| layout.leaves_rail(ring.at(*place), ring.at((place + 1) % size));
    (0..size).filter(leaves).count()
}

#[test]
fn ranks_are_found_on_their_hosts() {
    let layout = Layout::from_host_names(&["b", "a", "b", "c", "b", "a"]);
    let on = |host| layout.ranks_on(host).iter().map(|it| it.index()).collect::<Vec<_>>();
    assert_eq!([on(0), on(1), on(2), on(3)], [vec![0, 2, 4], vec![1, 5], vec![3], vec![]]);
    assert_eq!(layout.ranks_per_host(), (1, 3));
    assert_eq!(*layout.carriers(), [[Rank(0), Rank(1), Rank(3)].into()]);
    assert_eq!(Layout::apart(3), Layout::from_host_names(&[0, 1, 2]));
    assert_eq!(Layout::apart(0).ranks_per_host(), (0, 0));
    assert_eq!(Layout::hosts_of(2, 5), Layout::from_host_names(&[0, 0, 1, 1, 2]));
}

#[test]
fn denser_are_those_with_fewer_cpus_for_each() {
    let occupancy = |ranks, cpus| Occupancy { ranks, cpus };
    assert_eq!(occupancy(8, 2).scarcer(occupancy(40, 20)), occupancy(8, 2));
    assert_eq!(occupancy(40, 20).scarcer(occupancy(8, 2)), occupancy(8, 2));
    assert!(occupancy(3, 2).is_oversubscribed() && !occupancy(2, 2).is_oversubscribed());
}

#[test]
fn without_a_fabric_all_orders_are_rank_order() {
    let layout = Layout::from_host_names(&[2, 1, 2, 3, 1, 1]);
    assert!(!layout.has_fabric());
    let chains = [layout.chain_from(Rank(4)), layout.chain_to(Rank(4))];
    for order in [layout.ring(), layout.aligned(), &chains[0], &chains[1]] {
        assert!(order.is_rank_order());
        assert!((0..6).all(|place| order.at(place).index() == place));
        assert_eq!(order.place(Rank(4)), 4);
    }
    assert_eq!(layout.hosts_in_order(), [0, 1, 2]);
    assert_eq!(layout.level(Rank(0), Rank(2)), Level::Host);
    assert_eq!(layout.level(Rank(0), Rank(1)), Level::Group);
    assert_eq!(layout.reach(Rank(0)), RankReach::default());
}

#[test]
fn hosts_stand_in_fabric_order() {
    // Hosts 0 to 3 have ranks 0 and 4, 1 and 5, 2 and 6, 3 and 7.
    let layout = Layout::from_host_names(&[0, 1, 2, 3, 0, 1, 2, 3]);
    let path = |order, group| Path { order, pod: 0, group, machine: order };
    let layout = layout.with_paths(&[path(2, 1), path(0, 0), path(3, 1), path(1, 0)]);
    assert_eq!(layout.hosts_in_order(), [1, 3, 0, 2]);
    let in_order = [1, 5, 3, 7, 0, 4, 2, 6].map(Rank);
    assert_eq!((layout.ring().ranks(), layout.aligned().ranks()), (&in_order[..], &in_order[..]));
    // Group 1, which has hosts 0 and 2, comes first, and in it the host of the root.
    assert_eq!(layout.chain_from(Rank(6)).ranks(), [6, 2, 0, 4, 1, 5, 3, 7].map(Rank));
    assert_eq!(layout.chain_to(Rank(6)).ranks(), [7, 3, 5, 1, 4, 0, 2, 6].map(Rank));
    assert_eq!(*layout.carriers(), [[1, 3, 0, 2], [5, 7, 4, 6]].map(|it| it.map(Rank).into()));
    assert_eq!(layout.level(Rank(0), Rank(2)), Level::Group);
    assert_eq!(layout.level(Rank(0), Rank(1)), Level::Pod);
    assert_eq!(layout.level(Rank(0), Rank(4)), Level::Host);
}

#[test]
fn unknown_places_leave_groups_together() {
    let path = |group, machine| Path { group, machine, ..Path::default() };
    let layout = Layout::apart(4).with_paths(&[path(1, 0), path(0, 1), path(1, 0), path(0, 3)]);
    assert_eq!(layout.hosts_in_order(), [1, 3, 0, 2]);
    assert_eq!(layout.level(Rank(0), Rank(2)), Level::Host);
}

#[test]
fn rings_leave_no_rail() {
    for (hosts, ranks) in [(4, 2), (3, 3), (64, 8), (7, 5), (5, 1), (2, 4)] {
        let size = hosts * ranks;
        let all = u16::try_from(ranks).unwrap();
        let each = (0..size).map(|rank| only(if ranks == 1 { 0 } else { place(rank, ranks) }));
        let layout = Layout::hosts_of(ranks, size).with_reach(&each.collect::<Vec<_>>());
        assert_eq!(leave_rails(&layout), 0, "{hosts} hosts of {ranks}");
        let any = (0..size).map(|rank| all_but_prefers(all, place(rank, ranks)));
        let layout = Layout::hosts_of(ranks, size).with_reach(&any.collect::<Vec<_>>());
        assert_eq!(leave_rails(&layout), 0, "{hosts} hosts of {ranks}");
    }
    // Two rails cannot alternate around an odd number of hosts.
    let each: Vec<RankReach> = (0..10).map(|rank| only(place(rank, 2))).collect();
    assert_eq!(leave_rails(&Layout::hosts_of(2, 10).with_reach(&each)), 1);
}

#[test]
fn chains_leave_no_rail() {
    let each: Vec<RankReach> = (0..40).map(|rank| only(place(rank, 4))).collect();
    let layout = Layout::hosts_of(4, 40).with_reach(&each);
    for root in (0..40).map(Rank) {
        let chain = layout.chain_from(root);
        let leaves = |at: &usize| layout.leaves_rail(chain.at(*at), chain.at(at + 1));
        assert_eq!((0..39).filter(leaves).count(), 0, "from {root}");
    }
}

#[test]
fn two_rails_are_taken_in_turn() {
    let each: Vec<RankReach> = (0..8).map(|rank| only(place(rank, 2))).collect();
    let layout = Layout::hosts_of(2, 8).with_reach(&each);
    assert_eq!(layout.ring().ranks(), [0, 1, 3, 2, 4, 5, 7, 6].map(Rank));
    assert!(layout.aligned().is_rank_order());
}

#[test]
fn trees_join_hosts_by_the_commonest_rail() {
    // The second host lacks rail 0, and has its ranks in another order.
    let each = [0, 1, 2, 2, 1, 3].map(only);
    let layout = Layout::hosts_of(3, 6).with_reach(&each);
    assert_eq!(layout.aligned().ranks(), [1, 2, 0, 4, 3, 5].map(Rank));
}

#[test]
fn a_missing_rail_costs_one_shard() {
    // Rank 7 of the second host uses rail 6, because rail 7 is down there.
    let mut each: Vec<RankReach> = (0..24).map(|rank| only(place(rank, 8))).collect();
    each[15] = only(6);
    let layout = Layout::hosts_of(8, 24).with_reach(&each);
    let carriers = layout.carriers();
    assert_eq!(carriers.len(), 7);
    for (rail, ranks) in (0..).zip(carriers.iter()) {
        assert!(ranks.iter().all(|rank| layout.reach(*rank) == only(rail)), "{rail}: {ranks:?}");
    }
    // If ranks reach all rails that are up, another rank carries one in its place.
    each.iter_mut().enumerate().for_each(|(rank, it)| *it = all_but_prefers(8, place(rank, 8)));
    for it in &mut each[8..16] {
        it.reaches = rails(0..7);
    }
    each[15].prefers = rails([6]);
    let carriers = Layout::hosts_of(8, 24).with_reach(&each).carriers().into_owned();
    assert_eq!(carriers.len(), 8);
    let met =
        |ranks: &[Rank]| ranks.iter().map(|rank| each[rank.index()].reaches).reduce(Reach::and);
    assert!(carriers.iter().all(|ranks| met(ranks).is_some_and(|it| !it.is_empty())));
}

#[test]
fn no_common_rail_leaves_places() {
    let layout = Layout::hosts_of(2, 4).with_reach(&[0, 1, 2, 3].map(only));
    assert_eq!(*layout.carriers(), [[0, 2], [1, 3]].map(|it| it.map(Rank).into()));
}

/// Number of hosts that carry a shard by a rank which prefers its rail. Most carriers do.
fn on_their_rail(layout: &Layout, ranks: &[Rank]) -> usize {
    let prefers = |rank: &Rank, rail| layout.reach(*rank).prefers == rails([rail]);
    let count = |rail| ranks.iter().filter(|rank| prefers(rank, rail)).count();
    (0..8).map(count).max().unwrap_or(0)
}

#[test]
fn a_host_without_evidence_costs_the_others_nothing() {
    // Ranks are sorted by rail, in another order on every host.
    let rail = |rank: usize| place(rank + rank / 8, 8);
    for each in [only as fn(u16) -> RankReach, |rail| all_but_prefers(8, rail)] {
        let mut each: Vec<RankReach> = (0..512).map(|rank| each(rail(rank))).collect();
        each[40..48].fill(RankReach::default());
        let layout = Layout::hosts_of(8, 512).with_reach(&each);
        assert_eq!(layout.carriers().len(), 8);
        for ranks in layout.carriers().iter() {
            assert_eq!(on_their_rail(&layout, ranks), 63, "{ranks:?}");
        }
        assert_sound(&layout);
    }
}

#[test]
fn missing_ports_cost_only_their_own_hosts() {
    // 26 of 512 are missing, and every rail lacks some of them.
    let missing: Vec<usize> = (0..26).map(|at| at * 16 + (8 - at % 8) % 8).collect();
    let rail = |rank: usize| place(rank + rank / 8, 8);
    let up = |host: usize| {
        let is_up = |rank: &usize| !missing.contains(rank);
        rails((host * 8..host * 8 + 8).filter(is_up).map(rail))
    };
    for is_wide in [false, true] {
        let of = |rank: usize| {
            let prefers = rails([rail(rank)]).and(up(rank / 8));
            RankReach { reaches: if is_wide { up(rank / 8) } else { prefers }, prefers }
        };
        let each: Vec<RankReach> = (0..512).map(of).collect();
        let layout = Layout::hosts_of(8, 512).with_reach(&each);
        let carriers = layout.carriers();
        assert_eq!(carriers.len(), 8);
        let on_rail = carriers.iter().map(|it| on_their_rail(&layout, it));
        assert_eq!(on_rail.sum::<usize>(), 512 - missing.len(), "wide: {is_wide}");
        assert_sound(&layout);
    }
}

/// For any reach, orders have every rank once and hosts together, and carriers differ.
#[test]
fn orders_and_carriers_are_sound_for_any_reach() {
    let mut numbers = Random::seeded();
    let mut random = |end: u64| numbers.bits() % end;
    for _ in 0..300 {
        let (size, hosts, count) = (1 + random(40), 1 + random(9), 1 + random(6));
        let names: Vec<u64> = (0..size).map(|_| random(hosts)).collect();
        let mut reach = || {
            let any = |seed: u64| {
                rails((0..16).filter(|rail| u64::from(*rail) < count && seed >> rail & 1 == 1))
            };
            let reaches = any(random(1 << 16));
            RankReach { reaches, prefers: any(random(1 << 16)).and(reaches) }
        };
        let reach: Vec<RankReach> = names.iter().map(|_| reach()).collect();
        let layout = Layout::from_host_names(&names);
        let machines = Rank::at(layout.hosts()).0;
        let layout = layout.with_reach(&reach).with_paths(&paths(machines, 2, 4));
        let ring = layout.ring();
        let turned = [layout.chain_from(Rank(0)), layout.chain_to(Rank(0))];
        assert_eq!(turned[0].at(0), Rank(0));
        assert_eq!(turned[1].at(layout.size() - 1), Rank(0));
        for order in [ring, layout.aligned(), &turned[0], &turned[1]] {
            let ranks: Vec<Rank> = (0..layout.size()).map(|place| order.at(place)).collect();
            let mut sorted = ranks.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().enumerate().all(|(at, rank)| rank.index() == at), "{ranks:?}");
            let borders = ranks.windows(2).filter(|two| !layout.same_host(two[0], two[1]));
            assert_eq!(borders.count(), layout.hosts() - 1, "{ranks:?}");
        }
        assert_sound(&layout);
    }
}

/// Checks that carriers are one of each host, differ, and have a common rail unless none exists.
fn assert_sound(layout: &Layout) {
    let carriers = layout.carriers();
    let mut all: Vec<Rank> = carriers.iter().flat_map(|it| it.iter()).copied().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), carriers.len() * layout.hosts());
    let in_order = layout.hosts_in_order();
    let reach = |rank: &Rank| layout.reach(*rank).reaches;
    let common = |ranks: &[Rank]| ranks.iter().map(reach).reduce(Reach::and).unwrap_or_default();
    let of_host = |host: &u32| layout.ranks_on(*host).iter().map(reach).collect::<Reach>();
    let of_all = in_order.iter().map(of_host).reduce(Reach::and).unwrap_or_default();
    for ranks in carriers.iter() {
        assert!(ranks.iter().map(|rank| layout.host(*rank)).eq(in_order.iter().copied()));
        assert_eq!(common(ranks).is_empty(), of_all.is_empty(), "{ranks:?} of {layout:?}");
    }
}

/// 2,048 hosts of 8 ranks and rails in 32 groups, named in random order.
fn large() -> Layout {
    let (hosts, ranks) = (2048_usize, 8_usize);
    let names: Vec<String> =
        (0..hosts * ranks).map(|rank| format!("node{:05}", rank / ranks * 1_117 % hosts)).collect();
    let reach: Vec<RankReach> =
        (0..hosts * ranks).map(|rank| all_but_prefers(8, place(rank, ranks))).collect();
    Layout::from_host_names(&names).with_paths(&paths(2048, 64, 512)).with_reach(&reach)
}

#[test]
fn a_large_layout_is_small() {
    let layout = large();
    let carriers: usize = layout.orders.carriers.iter().map(|it| size_of_val(&**it) + 16).sum();
    let groups = layout.orders.leaf_groups.iter();
    let groups: usize = groups.map(|it| size_of_val(&**it) + size_of_val(it)).sum();
    let orders = layout.orders.ring.ranks().len() + layout.orders.aligned.ranks().len();
    let bytes = layout.hosts.bytes()
        + size_of_val(&*layout.paths)
        + size_of_val(&*layout.reach)
        + carriers
        + groups
        + orders * size_of::<Rank>();
    assert!(bytes <= 1 << 20, "{bytes} bytes");
}

/// Equal layouts with other prices differ, but have equal hashes.
#[test]
fn prices_are_outside_the_hash() {
    use std::hash::BuildHasher;

    let plain = Layout::hosts_of(2, 8);
    let rates = Rates { tcp_mbps: 1000, rdma_gbps: 0 };
    let priced = plain.clone().with_prices(Prices::default().with_rates(rates));
    let state = std::hash::RandomState::new();
    assert_eq!(state.hash_one(&plain), state.hash_one(&priced));
    assert_ne!(state.hash_one(&plain), state.hash_one(Layout::hosts_of(4, 8)));
    assert_ne!(plain, priced);
}

#[test]
fn a_host_has_the_rails_that_its_ranks_prefer() {
    let each: Vec<RankReach> = (0..8).map(|rank| only(place(rank, 4))).collect();
    assert_eq!(Layout::hosts_of(4, 8).with_reach(&each).rails_per_host(), 4);
    let mut each = each;
    each[7] = only(0);
    assert_eq!(Layout::hosts_of(4, 8).with_reach(&each).rails_per_host(), 3);
    assert_eq!(Layout::hosts_of(4, 8).rails_per_host(), 1);
}

//! The algorithms that constraints allow, and those that are chosen.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

use ringfold_topology::prices::{LinkClass, LinkPrice, Prices, Profile, Rates};
use ringfold_topology::{Layout, Occupancy, PeerMemory};
use ringfold_types::limits::{FRAME_BYTES, LINK_BYTES_MIN};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use super::possible::STEPS_WANTED;
use super::{
    Constraints, InvalidConstraints, Measurements, buffer_bytes, chunk_len, is_possible, select,
    select_in_windows,
};
use crate::algorithm::{Algorithm, ScheduleParams};

fn allreduce(data_type: DataType, bytes: usize) -> Call {
    let (collective, count) = (Collective::AllReduce, bytes / data_type.bytes());
    Call { collective, count, data_type, op: ReduceOp::Sum, root: Rank(0), wire: Wire::default() }
}

fn hosts(hosts: usize, ranks_each: usize) -> Layout {
    let names: Vec<usize> = (0..hosts * ranks_each).map(|rank| rank / ranks_each).collect();
    Layout::from_host_names(&names).sharing_memory(hosts == 1)
}

/// The names of the algorithms for `collective` that `text` allows.
fn allowed(text: &str, collective: Collective) -> Vec<&'static str> {
    let constraints: Constraints = text.parse().unwrap();
    let of = Algorithm::of(collective).iter();
    of.filter(|algorithm| constraints.allow(algorithm)).map(|algorithm| algorithm.name).collect()
}

fn refused(text: &str) -> InvalidConstraints {
    text.parse::<Constraints>().expect_err(text)
}

#[test]
fn rules_are_read_as_nccl_does() {
    let all = Collective::AllReduce;
    let known: Vec<&str> = Algorithm::of(all).iter().map(|algorithm| algorithm.name).collect();
    assert_eq!(allowed("", all), known);
    assert_eq!(allowed("ring", all), ["ring"]);
    assert_eq!(allowed("Tree,RING", all), ["ring", "tree"]);
    assert_eq!(allowed(" allreduce : tree , ring ; ", all), ["ring", "tree"]);
    assert_eq!(allowed("AllReduce:double_tree", all), ["double_tree"]);
    let without: Vec<&str> = known.iter().copied().filter(|name| *name != "ring").collect();
    assert_eq!(allowed("^ring", all), without);
    assert_eq!(allowed("allreduce:^ring", all), without);
    assert_eq!(allowed("allreduce:one_shot;^ring", all), ["one_shot"], "its own rule counts");
    assert_eq!(allowed("^ring;allreduce:ring", all), ["ring"]);
}

#[test]
fn text_forms_mean_the_same() {
    let written = |text: &str| text.parse::<Constraints>().unwrap().to_string();
    assert_eq!(written(""), "");
    assert_eq!(written("AllReduce: tree,ring"), "allreduce:ring,tree");
    assert_eq!(written("AllGatherV: ring"), "allgather:ring", "both forms have one rule");
    assert_eq!(written("broadcast:^scatter_allgather ; ^ring"), written("^ring,scatter_allgather"));
    for text in ["ring,tree", "^ring", "allreduce:^ring;tree", "broadcast:chain;reduce:^ring"] {
        let constraints: Constraints = text.parse().unwrap();
        assert_eq!(constraints.to_string().parse(), Ok(constraints), "{text}");
    }
}

#[test]
fn a_rule_for_all_leaves_others_free() {
    let barrier = Collective::Barrier;
    let known: Vec<&str> = Algorithm::of(barrier).iter().map(|algorithm| algorithm.name).collect();
    assert_eq!(allowed("two_shot", barrier), known);
    assert_eq!(allowed("allreduce:two_shot", barrier), known);
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let unknown = refused("allreduce:rign").to_string();
    assert!(
        unknown.starts_with("allreduce has no algorithm 'rign' (did you mean ring?); use one of "),
        "{unknown}"
    );
    assert!(Algorithm::of(Collective::AllReduce).iter().all(|a| unknown.contains(a.name)));
    let unknown = refused("rign").to_string();
    assert!(unknown.contains(" allreduce/ring "), "{unknown}");
    let unknown = refused("alltoone:ring").to_string();
    assert!(unknown.contains("'alltoone' is not a collective") && unknown.contains("allreduce"));
    for text in ["ring,", "ring,,tree", "^", "allreduce:", "allreduce:^", "^ring,^tree", ":ring"] {
        let name = refused(text);
        let is_unknown = matches!(
            name,
            InvalidConstraints::UnknownAlgorithm { .. }
                | InvalidConstraints::UnknownCollective { .. }
        );
        assert!(is_unknown, "{text}: {name:?}");
    }
}

#[test]
fn a_collective_keeps_an_algorithm_and_has_one_rule() {
    let collective = Collective::AllReduce;
    let mut every = String::from("^");
    for algorithm in Algorithm::of(collective) {
        write!(every, "{},", algorithm.name).unwrap();
    }
    let every = every.trim_end_matches(',');
    assert_eq!(refused(every), InvalidConstraints::NothingLeft { collective });
    let own = "allreduce:".to_string() + every;
    assert_eq!(refused(&own), InvalidConstraints::NothingLeft { collective });
    assert_eq!(refused("ring;tree"), InvalidConstraints::Repeated { collective: None });
    let twice = refused("allreduce:ring;allreduce:tree");
    assert_eq!(twice, InvalidConstraints::Repeated { collective: Some(collective) });
}

#[test]
fn rules_for_windows_leave_ordinary_calls_an_algorithm() {
    let collective = Collective::AllReduce;
    let (call, layout) = (allreduce(DataType::F32, 1 << 20), Layout::one_host(2));
    let measured = Measurements::default();
    let in_windows = |c: &Constraints| select_in_windows(&call, &layout, c, &measured).name;
    let ordinarily = |c: &Constraints| select(&call, &layout, c, &measured).name;
    let without = "^window".parse().unwrap();
    assert_eq!(in_windows(&Constraints::default()), "window");
    let ordinary = ordinarily(&Constraints::default());
    assert_eq!(in_windows(&without), ordinary);
    assert_eq!(ordinarily(&"window".parse().unwrap()), ordinary);
    let known = Algorithm::of(collective).iter().filter(|algorithm| algorithm.works_anywhere());
    let names: Vec<&str> = known.map(|algorithm| algorithm.name).collect();
    for prefix in ["^", "allreduce:^"] {
        let text = prefix.to_string() + &names.join(",");
        assert_eq!(refused(&text), InvalidConstraints::NothingLeft { collective });
    }
}

/// On two ranks, short messages arrive before tokens have gone both ways.
#[test]
fn windows_are_for_all_but_the_shortest() {
    for (size, least) in [(2, 256), (4, 256)] {
        let layout = Layout::one_host(size);
        for bytes in (2..30).map(|power| 1 << power) {
            let call = allreduce(DataType::F32, bytes);
            let (free, measured) = (Constraints::default(), Measurements::default());
            let chosen = select_in_windows(&call, &layout, &free, &measured);
            assert_eq!(chosen.needs_windows(), bytes >= least, "{bytes} on {size}: {chosen}");
        }
    }
}

/// On 1 and 2 CPUs, one turn of all ranks and a copy take less time than two turns.
#[test]
fn short_calls_in_windows_may_use_staging_if_oversubscribed() {
    for (ranks, cpus, most) in
        [(2, 1, 8192), (3, 2, 4096), (4, 2, 2048), (6, 2, 2048), (8, 2, 2048)]
    {
        let layout = Layout::one_host(ranks).sharing_memory(true);
        let layout = layout.with_occupancy(Occupancy { ranks, cpus });
        for bytes in (7..30).map(|power| 1 << power) {
            let call = allreduce(DataType::F32, bytes);
            let (free, measured) = (Constraints::default(), Measurements::default());
            let chosen = select_in_windows(&call, &layout, &free, &measured).name;
            let wanted = if bytes <= most { "staged_one_shot" } else { "window" };
            assert_eq!(chosen, wanted, "{bytes} on {ranks}");
        }
    }
}

#[test]
fn an_allowed_algorithm_is_chosen() {
    for collective in Collective::ALL {
        let here = |algorithm: &&Algorithm| !algorithm.needs_provider();
        for algorithm in Algorithm::of(collective).iter().filter(here) {
            let wanted = alloc::format!("{collective}:{}", algorithm.name).parse().unwrap();
            for size in [1, 2, 7] {
                let call = Call { collective, ..allreduce(DataType::F32, 4000) };
                let measured = Measurements::default();
                let layout = Layout::one_host(size).sharing_memory(true);
                let chosen = select_in_windows(&call, &layout, &wanted, &measured);
                assert_eq!(chosen.to_string(), algorithm.to_string());
                let chosen = select(&call, &layout, &wanted, &measured);
                assert_eq!(chosen.name == algorithm.name, !algorithm.needs_windows());
                let chosen = select(&call, &Layout::one_host(size), &wanted, &measured);
                assert_eq!(chosen.name == algorithm.name, algorithm.works_anywhere());
            }
        }
    }
}

/// Two ranks with a core each read messages from each other's memory, if these are not short and
/// not longer than the caches. Other ranks do so only if it was measured, or if nothing else is
/// allowed.
#[test]
fn attached_algorithms_are_chosen_for_two_ranks_with_a_core_each() {
    let (free, nothing) = (Constraints::default(), Measurements::default());
    for collective in [Collective::AllGather, Collective::Broadcast] {
        for bytes in (2..30).map(|power| 1 << power) {
            let call = Call { collective, ..allreduce(DataType::F32, bytes) };
            let layout = Layout::one_host(2).sharing_memory(true);
            assert!(!select(&call, &layout, &free, &nothing).is_single_copy(), "{call}");
            let reading = layout.clone().with_peer_memory(PeerMemory::Fast);
            let of = |layout: &Layout| select(&call, layout, &free, &nothing).is_single_copy();
            let most = if collective == Collective::Broadcast { 1 << 20 } else { 16 << 20 };
            let is_middling = bytes >= 64 << 10 && buffer_bytes(&call, 2) <= most;
            assert_eq!(
                of(&reading.clone().with_occupancy(Occupancy { ranks: 2, cpus: 2 })),
                is_middling
            );
            assert!(
                !of(&reading.clone().with_occupancy(Occupancy { ranks: 2, cpus: 1 })),
                "{call}"
            );
            let slow = reading.clone().with_peer_memory(PeerMemory::Slow);
            assert!(!of(&slow.with_occupancy(Occupancy { ranks: 2, cpus: 2 })), "{call}");
            let more = Layout::one_host(3).sharing_memory(true).with_peer_memory(PeerMemory::Fast);
            assert!(!of(&more.with_occupancy(Occupancy { ranks: 3, cpus: 8 })), "{call}");
            let wanted = "single_copy".parse().unwrap();
            assert!(select(&call, &layout, &wanted, &nothing).is_single_copy(), "{call}");
            let text = alloc::format!("{collective} 2 1 {bytes} single_copy 5");
            let measured = text.parse().unwrap();
            assert!(select(&call, &layout, &free, &measured).is_single_copy(), "{call}");
        }
    }
}

#[test]
fn chunks_between_hosts_are_what_wakes_a_receiver_once() {
    let call = allreduce(DataType::F32, 4000);
    let bytes = |layout: &Layout| chunk_len(&call, layout) * DataType::F32.bytes();
    assert_eq!(bytes(&hosts(4, 1)), FRAME_BYTES);
    assert_eq!(bytes(&hosts(2, 2)), FRAME_BYTES);
    assert_eq!(bytes(&hosts(2, 2).with_rdma(true)), 256 * 1024);
    assert_eq!(bytes(&hosts(1, 2)), 64 * 1024);
    assert_eq!(bytes(&hosts(1, 4)), 64 * 1024);
}

#[test]
fn schedules_stay_short() {
    for size in [2, 8, 64] {
        let layout = Layout::one_host(size).sharing_memory(true);
        for count in [1 << 10, 1 << 20, 1 << 28] {
            let call = Call { count, ..allreduce(DataType::F32, 0) };
            for algorithm in Algorithm::of(Collective::AllReduce) {
                let chunk = chunk_len(&call, &layout);
                assert!(chunk >= 1024);
                // Never chosen for such lengths, because the elements that it overwrites must fit
                // the links.
                if algorithm.name == "one_shot" && count > 1 << 10
                    || ["two_shot", "hierarchical"].contains(&algorithm.name) && size > 32
                    || algorithm.needs_staging() && !is_possible(algorithm, &call, &layout)
                {
                    continue;
                }
                let window_bytes = LINK_BYTES_MIN;
                let plan =
                    ScheduleParams { call, layout: &layout, rank: Rank(1), chunk, window_bytes };
                let schedule = (algorithm.schedule)(&plan);
                let longest = schedule.lanes().iter().map(Vec::len).max().unwrap_or(0);
                assert!(longest <= 2 * STEPS_WANTED, "{algorithm}, {size}, {count}: {longest}");
            }
        }
    }
}

/// The most peers that a rank has over links, in the call that is chosen.
#[test]
fn many_ranks_do_not_all_link_to_each_other() {
    // The data of an all-to-all go from every rank to every other.
    let bounded = Collective::ALL.into_iter().filter(|it| *it != Collective::AllToAll);
    for ranks in [65, 256, 1024] {
        let layouts = [Layout::one_host(ranks).sharing_memory(true), Layout::one_host(ranks)];
        for layout in layouts.map(|layout| layout.with_occupancy(Occupancy { ranks, cpus: 2 })) {
            for collective in bounded.clone() {
                for bytes in [4, 1 << 10, 64 << 10, 1 << 20, 16 << 20] {
                    let call = Call { collective, ..allreduce(DataType::F32, bytes) };
                    let none = &Constraints::default();
                    let chosen = select(&call, &layout, none, &Measurements::default());
                    assert!(!chosen.has_many_links(), "{call} on {ranks} ranks by {chosen}");
                }
            }
        }
    }
    let wanted: Constraints = "allreduce:two_shot".parse().unwrap();
    let call = allreduce(DataType::F32, 64 << 10);
    let chosen = select(&call, &Layout::one_host(256), &wanted, &Measurements::default());
    assert_eq!(chosen.name, "two_shot", "a constraint gets it");
}

/// The least size, as a power of 2, from which on `name` is no longer chosen.
fn end_of(name: &str, collective: Collective, layout: &Layout) -> u32 {
    let free = (Constraints::default(), Measurements::default());
    let chosen = |power: &u32| {
        let bytes = 1_usize << power;
        let call = Call { collective, ..allreduce(DataType::F32, bytes) };
        select(&call, layout, &free.0, &free.1).name == name
    };
    (2..31).filter(chosen).max().map_or(0, |last| last + 1)
}

/// On slow links the calls that send few bytes win earlier, on fast ones those of few steps.
#[test]
fn choices_follow_the_rate_between_hosts() {
    let at = |tcp_mbps| {
        let rates = Rates { tcp_mbps, rdma_gbps: 0 };
        hosts(8, 1).with_prices(Prices::default().with_rates(rates))
    };
    for (name, collective) in [
        ("one_shot", Collective::AllReduce),
        ("direct", Collective::AllGather),
        ("direct", Collective::ReduceScatter),
        ("binomial", Collective::Broadcast),
        ("binomial", Collective::Reduce),
    ] {
        let ends = [100, 1000, 20_000, 100_000].map(|mbps| end_of(name, collective, &at(mbps)));
        assert!(ends.is_sorted() && ends[0] < ends[3], "{collective} {name}: {ends:?}");
        assert_eq!(ends[2], end_of(name, collective, &hosts(8, 1)), "the default is 20 Gbit/s");
    }
}

/// The longer a message is under way, the longer the calls that take few steps.
#[test]
fn choices_follow_the_latency_between_hosts() {
    let at = |class, nanos: u64| {
        let mut profile = Profile::default();
        let price = LinkPrice { latency_ps: nanos * 1000, ..LinkPrice::of(class) };
        profile.set_link(class, price);
        let layout = hosts(8, 1).with_rdma(class != LinkClass::Tcp);
        layout.with_prices(Prices::default().with_profile(&profile))
    };
    for class in [LinkClass::Tcp, LinkClass::Rdma(0)] {
        let ends = [2_000, 20_000, 200_000, 2_000_000].map(|nanos| {
            end_of("one_shot", Collective::AllReduce, &at(class, nanos)).max(end_of(
                "two_shot",
                Collective::AllReduce,
                &at(class, nanos),
            ))
        });
        assert!(ends.is_sorted() && ends[0] < ends[3], "{class}: {ends:?}");
    }
}

/// A profile of links within hosts moves the choices there, and no others.
#[test]
fn choices_follow_the_prices_within_hosts() {
    let mut profile = Profile::default();
    let own = LinkPrice { latency_ps: 50_000_000, ..LinkPrice::of(LinkClass::Sockets) };
    profile.set_link(LinkClass::Sockets, own);
    let prices = Prices::default().with_profile(&profile);
    let layout = Layout::one_host(8);
    let end = |layout: &Layout| end_of("one_shot", Collective::AllReduce, layout);
    assert!(end(&layout) < end(&layout.clone().with_prices(prices.clone())));
    let near = prices.clone().with_links_within(LinkClass::Cache);
    assert_eq!(end(&layout), end(&layout.clone().with_prices(near)), "another class");
    assert_eq!(end(&hosts(8, 1)), end(&hosts(8, 1).with_prices(prices)));
}

//! The model beside closed forms, and facts of every outcome.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringfold_collectives::Algorithm;
use ringfold_collectives::select::chunk_len;
use ringfold_sim::{Job, Limits, Outcome, Programs, Routing, Shape, TooMany, simulate};
use ringfold_topology::prices::{LinkClass, LinkPrice, Prices, Profile};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

fn job(shape: &str, per_host: usize) -> Job {
    let fabric = shape.parse::<Shape>().unwrap().fabric();
    Job::of(&fabric, None, per_host, true, |prices| prices).unwrap()
}

fn call(collective: Collective, count: usize) -> Call {
    let (data_type, op, root) = (DataType::F32, ReduceOp::Sum, Rank(0));
    Call { collective, count, data_type, op, root, wire: Wire::default() }
}

/// A call by the algorithm of this name, with chunks as long as the call.
fn run(job: &Job, call: Call, name: &str, routing: Routing) -> Outcome {
    let known = Algorithm::of(call.collective).iter().find(|it| it.name == name).unwrap();
    let programs = Programs::of(job, &call, known, 1 << 30, Limits::default()).unwrap();
    simulate(job, &programs, routing).unwrap()
}

fn price(job: &Job) -> LinkPrice {
    job.layout.prices().link(job.layout.links_between())
}

fn is_near(found: u64, wanted: f64, what: &str) {
    let ratio = found as f64 / wanted;
    assert!((0.99..1.01).contains(&ratio), "{what}: {found} ps, {wanted} ps wanted");
}

/// 2(n-1) steps, each with a latency and a block's bytes. Half of them combine the last piece.
#[test]
fn a_ring_takes_its_closed_form() {
    for n in [2, 3, 8, 30] {
        let job = job(&format!("switch:{n}x1:100G"), 1);
        let LinkPrice { latency_ps, byte_ps, .. } = price(&job);
        let (combined, _) = job.layout.prices().combining_ps();
        for block in [64, 1 << 18] {
            let bytes = block as f64 * 4.0;
            let found =
                run(&job, call(Collective::AllReduce, block * n), "ring", Routing::default());
            let piece = (bytes / 4.0).max(65536.0).min(bytes);
            let step = latency_ps as f64 + bytes * byte_ps as f64;
            let sums = (n - 1) as f64 * piece * combined as f64;
            let wanted = 2.0 * (n - 1) as f64 * step + sums;
            is_near(found.time_ps, wanted, &format!("{n} ranks, {block} elements"));
        }
    }
}

/// A binomial tree of n = 2^k ranks broadcasts a short message in k latencies. The root makes the
/// messages for the deepest ranks first.
#[test]
fn a_tree_takes_its_closed_form() {
    for k in [1, 3, 6] {
        let job = job(&format!("switch:{}x1:100G", 1 << k), 1);
        let LinkPrice { latency_ps, byte_ps, .. } = price(&job);
        let found = run(&job, call(Collective::Broadcast, 2), "binomial", Routing::default());
        let wanted = f64::from(k) * (latency_ps + 8 * byte_ps) as f64;
        is_near(found.time_ps, wanted, &format!("{k} levels"));
    }
}

/// A root sends to all others at once. Each message has a share of its port, which grows when
/// others have ended, and the port is never idle.
#[test]
fn messages_of_one_port_take_their_closed_form() {
    let n = 9;
    let job = job(&format!("switch:{n}x1:100G"), 1);
    let LinkPrice { latency_ps, byte_ps, message_ps, .. } = price(&job);
    for (count, name) in [(2, "short"), (1 << 18, "long")] {
        let found = run(&job, call(Collective::Broadcast, count), "linear", Routing::default());
        let bytes = (count * 4) as u64;
        let made = (n - 2) * message_ps + bytes * byte_ps;
        let left = (n - 1) * bytes * byte_ps;
        is_near(found.time_ps, (made.max(left) + latency_ps) as f64, name);
    }
}

/// All messages of a port together have the rate of its class of links, if that is lower.
#[test]
fn messages_of_one_port_share_the_rate_of_their_class() {
    let fabric = "switch:9x1:100G".parse::<Shape>().unwrap().fabric();
    let mut profile = Profile::default();
    let slow = LinkPrice { byte_ps: 8000, ..LinkPrice::of(LinkClass::Tcp) };
    profile.set_link(LinkClass::Tcp, slow);
    let job = Job::of(&fabric, None, 1, false, |prices| prices.with_profile(&profile)).unwrap();
    let found = run(&job, call(Collective::Broadcast, 1 << 18), "linear", Routing::default());
    is_near(found.time_ps, f64::from(8 << 20) * 8000.0 + slow.latency_ps as f64, "eight messages");
}

/// Half of the CPU time of a byte is its sender's, which may be slower than the port.
#[test]
fn a_slow_cpu_takes_longer_than_its_port() {
    let fabric = "switch:2x1:100G".parse::<Shape>().unwrap().fabric();
    let mut profile = Profile::default();
    let slow = LinkPrice { work_ps: [0, 1600], ..LinkPrice::of(LinkClass::Rdma(100)) };
    LinkClass::ALL.into_iter().for_each(|class| profile.set_link(class, slow));
    let job = Job::of(&fabric, None, 1, true, |prices| prices.with_profile(&profile)).unwrap();
    let found = run(&job, call(Collective::Broadcast, 1 << 18), "linear", Routing::default());
    is_near(found.time_ps, f64::from(800 << 20) + slow.latency_ps as f64, "the CPU's rate");
}

/// Each switch of a way after the first takes its time.
#[test]
fn a_way_takes_the_time_of_its_switches() {
    let time = |shape: &str| {
        let fabric = shape.parse::<Shape>().unwrap().fabric();
        let job = Job::of(&fabric, Some(2), 1, true, |prices| prices).unwrap();
        let found = run(&job, call(Collective::Broadcast, 2), "linear", Routing::default());
        (found.time_ps, job.hop_ps)
    };
    // On a torus of two hosts there are two switches between them.
    let ((near, hop_ps), (far, _)) = (time("switch:2x1:100G"), time("torus:2:100G"));
    assert_eq!(far - near, hop_ps);
}

/// A chunk takes its way up and down the levels of aggregators, and each of these takes its time.
/// Further chunks follow at the rate of the ports. Each waits for the result of the one a window
/// before it.
#[test]
fn aggregators_take_their_closed_form() {
    for (shape, depth) in
        [("switch:8x1:100G", 1), ("fat:16x1:100G:radix=8", 2), ("fat:64x1:100G:radix=8", 3)]
    {
        let job = job(shape, 1).with_aggregators().unwrap();
        let LinkPrice { latency_ps, byte_ps, .. } = price(&job);
        let aggregation = job.layout.aggregation().unwrap();
        let (aggregator_ps, window) = (aggregation.latency_ps, aggregation.window as u64);
        assert_eq!(aggregation.tree.depth(), depth, "{shape}");
        for chunks in [1, 2, 8, 200] {
            let count = chunks << 14;
            let found =
                run(&job, call(Collective::AllReduce, count), "in_network", Routing::default());
            let depth = depth as u64;
            let chunk_ps = (64 << 10) * byte_ps;
            let way_ps = depth * (2 * (latency_ps + chunk_ps) + aggregator_ps);
            let (rounds, rest) = ((chunks as u64 - 1) / window, (chunks as u64 - 1) % window);
            let wanted = way_ps + rounds * way_ps.max(window * chunk_ps) + rest * chunk_ps;
            is_near(found.time_ps, wanted as f64, &format!("{shape}, {chunks} chunks"));
        }
    }
}

/// Each port carries the part of its rail once, and so does a cable between two aggregators.
#[test]
fn links_carry_a_sum_once() {
    let job = job("rail:8x2:100G:radix=8", 2).with_aggregators().unwrap();
    let found = run(&job, call(Collective::AllReduce, 1 << 18), "in_network", Routing::default());
    // 16 ports, and two leaf switches of each rail below one spine switch.
    assert_eq!(found.links.len(), 2 * (16 + 4));
    assert!(found.links.iter().all(|link| link.bytes == 1 << 19), "{:?}", found.links);
    // Within hosts each rank gives the other its part, and gets the result.
    let part = 1 << 19;
    assert_eq!(found.levels, [32 * part, 32 * part, 8 * part, 0]);
}

/// Every rank sends n-1 blocks through its port, and each is as long.
#[test]
fn an_all_to_all_takes_its_closed_form() {
    let (n, block) = (8, 1 << 20);
    let job = job(&format!("switch:{n}x1:100G"), 1);
    let LinkPrice { latency_ps, byte_ps, .. } = price(&job);
    let found = run(&job, call(Collective::AllToAll, block), "linear", Routing::default());
    let wanted = ((n - 1) * block * 4) as f64 * byte_ps as f64 + latency_ps as f64;
    is_near(found.time_ps, wanted, "all-to-all");
}

#[test]
fn a_link_that_is_slower_or_gone_is_named() {
    let shape = "fat:8x1:100G:radix=8";
    let count = 1 << 20;
    let whole = run(&job(shape, 1), call(Collective::AllReduce, count), "ring", Routing::default());
    for (part, routing) in [(0.25, Routing::default()), (0.0, Routing::Adaptive)] {
        let mut hurt = job(shape, 1);
        // The ring of 8 hosts leaves each leaf switch by one cable, on which a subnet manager
        // insists.
        let used: Vec<String> = whole.links.iter().map(|link| link.name.clone()).collect();
        let name = used.iter().find(|name| name.starts_with("leaf0.") && !name.contains("host"));
        let cable = name.unwrap().split(' ').next().unwrap().to_owned();
        hurt.network.slow(&cable, part).unwrap();
        let found = run(&hurt, call(Collective::AllReduce, count), "ring", routing);
        if part > 0.0 {
            assert!(found.time_ps > whole.time_ps, "{cable}: {} ps", found.time_ps);
            assert!(found.links[0].name.starts_with(&cable), "{cable}: {:?}", found.links[0]);
        } else {
            assert!(found.links.iter().all(|link| !link.name.contains(&cable)), "{cable}");
        }
    }
}

/// A message and n streams of other jobs to the same port have an equal share of it each. Doubling
/// the streams' load lengthens the message, and the port's link is named.
#[test]
fn traffic_of_other_jobs_takes_its_share() {
    let time = |streams: usize, part: f64| {
        let fabric = "switch:8x1:100G".parse::<Shape>().unwrap().fabric();
        let mut job = Job::of(&fabric, Some(2), 1, true, |prices| prices).unwrap();
        for from in 2..2 + streams {
            job.add_traffic([&format!("host{from}.0"), "host1.0"], part).unwrap();
        }
        let found = run(&job, call(Collective::Broadcast, 1 << 20), "linear", Routing::default());
        let is_named = found.links[0].name == "leaf0 to host1.0";
        assert!(is_named || streams == 0, "{streams} streams: {:?}", found.links);
        assert_eq!(found.links[0].bytes, 4 << 20, "only the call's bytes");
        (found.time_ps, price(&job))
    };
    let (alone, LinkPrice { latency_ps, byte_ps, .. }) = time(0, 1.0);
    let wanted = |times: f64| latency_ps as f64 + (4 << 20) as f64 * byte_ps as f64 * times;
    is_near(alone, wanted(1.0), "alone");
    for (streams, part, times) in
        [(1, 1.0, 2.0), (2, 1.0, 3.0), (2, 0.25, 2.0), (1, 0.25, 4.0 / 3.0)]
    {
        is_near(time(streams, part).0, wanted(times), &format!("{streams} streams of {part}"));
    }
}

#[test]
fn random_traffic_is_that_of_its_seed() {
    let run = |seed| {
        let mut job = job("dragonfly:32x1:100G:radix=8", 1);
        job.add_random_traffic(40, seed, 1.0).unwrap();
        run(&job, call(Collective::AllReduce, 1 << 16), "recursive_doubling", Routing::default())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).time_ps, run(8).time_ps);
}

#[test]
fn equal_jobs_have_equal_outcomes() {
    let job = job("rail:8x2:400G:radix=8", 2);
    for routing in [Routing::default(), Routing::Ecmp(7), Routing::Adaptive] {
        for name in ["ring", "hierarchical", "recursive_doubling"] {
            let once = run(&job, call(Collective::AllReduce, 1 << 18), name, routing);
            assert_eq!(once, run(&job, call(Collective::AllReduce, 1 << 18), name, routing));
        }
    }
    let by_seed =
        |seed| run(&job, call(Collective::AllToAll, 1 << 14), "linear", Routing::Ecmp(seed));
    assert_ne!(by_seed(1).time_ps, by_seed(2).time_ps);
}

/// Every algorithm for every collective ends, on a fabric of each kind.
#[test]
fn every_algorithm_ends() {
    for (shape, per_host) in [
        ("rail:4x2:400G:radix=8", 2),
        ("rail-only:4x2:400G:radix=8", 2),
        ("fat:7x1:100G:radix=4", 1),
        ("dragonfly:16x1:100G:radix=4", 1),
        ("torus:3x3:100G", 2),
    ] {
        let job = job(shape, per_host);
        for collective in Collective::ALL {
            for known in Algorithm::of(collective).iter().filter(|it| it.works_anywhere()) {
                let moved = usize::from(collective != Collective::Barrier) * 1001;
                let found = run(&job, call(collective, moved), known.name, Routing::default());
                assert!(found.time_ps > 0, "{shape} {}", known.name);
                let busiest = found.links.iter().map(|link| link.used).fold(0.0, f64::max);
                assert!(busiest < 1.001, "{shape} {}: {busiest} of a link", known.name);
            }
        }
    }
}

/// A lone flow over a wider port is never slower.
#[test]
fn more_bandwidth_never_lengthens_a_lone_message() {
    let mut last = u64::MAX;
    for gbps in [10, 25, 50, 100, 200, 400, 800] {
        let shape = format!("fat:8x1:{gbps}G:radix=4").parse::<Shape>().unwrap();
        // The prices are those of the fastest class throughout: links alone differ.
        let mut profile = Profile::default();
        let fastest = LinkPrice::of(LinkClass::Rdma(1600));
        LinkClass::ALL.into_iter().for_each(|class| profile.set_link(class, fastest));
        let adjust = |prices: Prices| prices.with_profile(&profile);
        let job = Job::of(&shape.fabric(), Some(2), 1, true, adjust).unwrap();
        let found = run(&job, call(Collective::Broadcast, 1 << 20), "linear", Routing::default());
        assert!(found.time_ps <= last, "{gbps} Gbit/s: {} ps after {last}", found.time_ps);
        last = found.time_ps;
    }
}

/// Longer chunks and merged rounds move as many bytes, and take about as long.
#[test]
fn coarser_programs_take_about_as_long() {
    use Collective::{AllGather, AllReduce, AllToAll};
    for (collective, name, shape, mib, of_rank, most) in [
        (AllReduce, "ring", "fat:64x1:400G:radix=8", 4, 40, 1.06),
        (AllReduce, "ring", "dragonfly:64x1:100G:radix=8", 4, 40, 1.06),
        (AllReduce, "ring", "torus:8x8:100G", 64, 40, 1.2),
        (AllReduce, "double_tree", "fat:64x1:400G:radix=8", 64, 512, 1.2),
        (AllReduce, "hierarchical", "rail:16x4:400G:radix=8", 64, 512, 1.2),
        (AllGather, "ring", "rail:16x4:400G:radix=8", 4, 40, 1.06),
        (AllToAll, "pairwise", "fat:64x1:400G:radix=8", 16, 40, 1.06),
        (AllToAll, "pairwise", "dragonfly:60x1:100G:radix=8", 16, 80, 1.2),
    ] {
        let job = job(shape, shape.parse::<Shape>().unwrap().ports_per_host());
        let parts = if collective.has_blocks() { job.layout.size() } else { 1 };
        let call = call(collective, (mib << 18) / parts);
        let known = Algorithm::of(collective).iter().find(|it| it.name == name).unwrap();
        let chunk = chunk_len(&call, &job.layout);
        let run = |all| {
            let programs = Programs::of(
                &job,
                &call,
                known,
                chunk,
                Limits { all, of_rank, ..Limits::default() },
            );
            simulate(&job, &programs.unwrap(), Routing::default()).unwrap()
        };
        let (whole, coarse) = (run(usize::MAX), run(0));
        assert_eq!((whole.chunks, whole.rounds), (1, 1));
        assert!(coarse.events * 3 < whole.events * 2, "{name}: {} events", coarse.events);
        let bytes = |outcome: &Outcome| outcome.levels.iter().sum::<usize>();
        assert_eq!(bytes(&coarse), bytes(&whole), "{name} on {shape}");
        let ratio = coarse.time_ps as f64 / whole.time_ps as f64;
        assert!((1.0 / most..most).contains(&ratio), "{name} on {shape}: {ratio}");
    }
}

/// Messages that are received in another round cannot be merged.
#[test]
fn programs_that_cannot_be_coarser_are_refused() {
    let job = job("switch:64x1:100G", 1);
    let known = Algorithm::of(Collective::AllToAll).iter().find(|it| it.name == "linear").unwrap();
    let call = call(Collective::AllToAll, 16);
    let limits = Limits { all: 0, of_rank: 40, ..Limits::default() };
    let refused = Programs::of(&job, &call, known, 16, limits).unwrap_err();
    assert_eq!(refused, TooMany(64 * 127 + 127));
}

//! The estimates against real schedules.

use alloc::vec::Vec;

use ringfold_topology::prices::{LinkClass, LinkPrice, Prices, Profile, Rates};
use ringfold_topology::{Layout, Occupancy};
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Buffer, Call, Collective, DataType, Rank, ReduceOp, Wire};

use super::price;
use super::traffic::Traffic;
use crate::algorithm::{Algorithm, ScheduleParams};
use crate::schedule::{Schedule, Step};

fn call(collective: Collective, count: usize) -> Call {
    let (data_type, op) = (DataType::Bf16, ReduceOp::Sum);
    Call { collective, count, data_type, op, root: Rank(0), wire: Wire::default() }
}

fn schedules(algorithm: &Algorithm, call: Call, layout: &Layout) -> Vec<Schedule> {
    let (chunk, window_bytes) = (call.count.max(1), LINK_BYTES_MIN.max(8 * call.count));
    let plan = |rank| ScheduleParams { call, layout, rank: Rank::at(rank), chunk, window_bytes };
    (0..layout.size()).map(|rank| (algorithm.schedule)(&plan(rank))).collect()
}

/// Counts the sends of a rank that `wanted` selects, and the signals that it waits for. Returns
/// their number and their elements.
fn sends(schedule: &Schedule, wanted: impl Fn(Rank, Buffer) -> bool) -> (usize, usize) {
    let steps = schedule.lanes().iter().flatten();
    let sends = steps.filter_map(|step| match step {
        Step::Send { to, src } | Step::Put { to, src } | Step::Get { from: to, src, .. }
            if wanted(*to, src.buffer) =>
        {
            Some(src.len)
        }
        Step::Wait { from } if wanted(*from, Buffer::Scratch) => Some(0),
        _ => None,
    });
    sends.fold((0, 0), |(messages, elements), len| (messages + 1, elements + len))
}

/// Counts the elements that a rank copies into and out of staging buffers, and those that it reads
/// to combine them.
fn through_staging(schedule: &Schedule) -> (usize, usize) {
    schedule.lanes().iter().flatten().fold((0, 0), |(copied, read), step| match step {
        Step::Get { dst, .. } => (copied + dst.len, read),
        Step::Copy { src, dst } if [src.buffer, dst.buffer].contains(&Buffer::Staging) => {
            (copied + dst.len, read)
        }
        Step::Reduce { dst, sources } => (copied, read + dst.len * sources.len()),
        _ => (copied, read),
    })
}

#[track_caller]
fn assert_near(what: &str, estimate: usize, real: usize, unit: usize) {
    let near = estimate <= 2 * real + unit && real <= 2 * estimate + unit;
    assert!(near, "{what}: estimated {estimate}, really {real}");
}

/// The messages and elements that the busiest rank sends or receives, from buffers that `wanted`
/// selects.
fn busiest(schedules: &[Schedule], wanted: impl Fn(Buffer) -> bool) -> (usize, usize) {
    let sent = schedules.iter().map(|schedule| sends(schedule, |_, buffer| wanted(buffer)));
    let taken = (0..schedules.len()).map(|rank| {
        let to_rank = |schedule| sends(schedule, |to, from| to.index() == rank && wanted(from));
        schedules.iter().map(to_rank).fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1))
    });
    sent.chain(taken).fold((0, 0), |most, own| (most.0.max(own.0), most.1.max(own.1)))
}

#[test]
fn estimates_are_near_the_real_schedules() {
    for size in [2, 3, 4, 8, 13, 32] {
        let layout = Layout::one_host(size);
        let all = Collective::ALL.into_iter().flat_map(Algorithm::of).flat_map(Algorithm::variants);
        // A hierarchical algorithm has a price for each of its levels.
        for algorithm in all.filter(|algorithm| !algorithm.is_hierarchical()) {
            let call = call(algorithm.collective, 16 * size * 64);
            let traffic = Traffic::of(algorithm, &call, &Layout::apart(size));
            let schedules = schedules(algorithm, call, &layout);
            let (messages, moved) = busiest(&schedules, |_| true);
            let (_, wide) = busiest(&schedules, |buffer| buffer == Buffer::Scratch);
            let wide = if algorithm.works_anywhere() { wide } else { 0 };
            let what = alloc::format!("{algorithm} on {size}");
            let pieces = algorithm.pieces(&call, size, call.count);
            assert_near(&what, traffic.messages * pieces, messages, 3);
            if algorithm.needs_staging() {
                let each = schedules.iter().map(through_staging);
                let sum = each.fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
                assert_near(&what, traffic.moved, sum.0 / size, 0);
                assert_near(&what, traffic.summed, sum.1 / size, 0);
                continue;
            }
            assert_near(&what, traffic.moved, moved, 0);
            let all = schedules.iter().map(|schedule| sends(schedule, |_, _| true).1);
            assert_near(&what, traffic.total, all.sum(), 0);
            if algorithm.collective.reduces() {
                // First messages are not sums, which matters for few ranks.
                assert_near(&what, traffic.wide, wide, 2 * call.count);
            }
        }
    }
}

#[test]
fn local_ways_use_the_network_little() {
    let names: Vec<usize> = (0..32).map(|rank| rank / 8).collect();
    let layout = Layout::from_host_names(&names);
    for algorithm in Collective::ALL.into_iter().flat_map(Algorithm::of) {
        let call = call(algorithm.collective, 16 * 32 * 64);
        let traffic = Traffic::of(algorithm, &call, &Layout::apart(32));
        if !traffic.pattern.is_local() {
            continue;
        }
        let schedules = schedules(algorithm, call, &layout);
        for host in schedules.chunks(8) {
            let far = host.iter().map(|schedule| {
                let away = |to, _| !layout.same_host(to, schedule.rank());
                sends(schedule, away).1
            });
            let far: usize = far.sum();
            assert!(far <= 2 * traffic.moved, "{algorithm}: {far} of {}", traffic.moved);
        }
    }
}

/// Within hosts an all-reduce by levels is two shots, between them a flat algorithm.
#[test]
fn levels_cost_as_much_as_their_parts() {
    let hierarchical = Algorithm::named(Collective::AllReduce, "hierarchical").unwrap();
    let named = |name| Algorithm::named(Collective::AllReduce, name).unwrap();
    let hosts = |hosts: usize, ranks: usize| {
        let names: Vec<usize> = (0..hosts * ranks).map(|rank| rank / ranks).collect();
        Layout::from_host_names(&names)
    };
    let chunk = 1 << 14;
    for count in [1 << 4, 1 << 14, 1 << 18, 1 << 24] {
        let call = call(Collective::AllReduce, count);
        let of = |algorithm, layout: &Layout| price(algorithm, &call, layout, chunk);
        let rails = ["ring", "halving_doubling", "recursive_doubling"];
        for size in [2, 5, 8] {
            let apart = rails.map(|name| of(named(name), &Layout::apart(size)));
            let least = apart.into_iter().min().unwrap();
            assert_eq!(of(hierarchical, &Layout::apart(size)), least, "{size} hosts");
            let within = of(named("two_shot"), &hosts(1, 4));
            let both = of(hierarchical, &hosts(size, 4));
            assert!(both <= 2 * (least + within), "{both:?}: {least:?}, {within:?}");
            assert!(both >= least.max(within) / 2, "{both:?}: {least:?}, {within:?}");
        }
    }
}

/// Containers of one machine have no network between them, unless their links take longer for a
/// byte than a sender's CPU does. Only that network can be congested.
#[test]
fn only_a_network_is_congested() {
    let direct = Algorithm::named(Collective::AllGather, "direct").unwrap();
    let usual = LinkPrice::of(LinkClass::Container);
    let call = call(Collective::AllGather, 1 << 20);
    let at = |byte_ps| {
        let mut profile = Profile::default();
        profile.set_link(LinkClass::Container, LinkPrice { byte_ps, ..usual });
        let layout = Layout::apart(4).with_occupancy(Occupancy { ranks: 4, cpus: 2 });
        let layout = layout.with_prices(Prices::default().with_profile(&profile));
        price(direct, &call, &layout, 1 << 14).as_nanos()
    };
    let of_cpu = usual.work_ps[1] / 2;
    assert_eq!(at(of_cpu / 2), at(of_cpu), "the CPU takes longer");
    // Congestion costs a quarter more, and a third of the time adds to that of the CPUs.
    let of_network = (3 * call.count * call.data_type.bytes()) as u128 * 100 / 1000;
    let slower = at(of_cpu + 100) - at(of_cpu);
    assert!(slower.abs_diff(of_network * 5 / 4 / 3) <= 1, "{slower} of {of_network}");
}

#[test]
fn a_chain_of_a_scan_costs_more_where_ranks_are_dealt() {
    let call = call(Collective::Scan, 1 << 16);
    let chain = Algorithm::named(Collective::Scan, "chain").unwrap();
    let price_on = |hosts: &[u32]| price(chain, &call, &Layout::from_host_names(hosts), 1 << 14);
    let in_order = price_on(&[0, 0, 0, 0, 1, 1, 1, 1]);
    assert!(price_on(&[0, 1, 0, 1, 0, 1, 0, 1]) > in_order, "every step goes to another host");
}

/// A port of 400 Gbit/s passes a byte in less time than a link within a host. Where most messages
/// pass both, or go to partners on the host, the slower ones count.
#[test]
fn links_within_hosts_hold_up_fast_ports() {
    let call = call(Collective::AllReduce, 1 << 24);
    let price_of = |name, within_ps| {
        let mut profile = Profile::default();
        let own = LinkPrice { byte_ps: within_ps, ..LinkPrice::of(LinkClass::Sockets) };
        profile.set_link(LinkClass::Sockets, own);
        let rates = Rates { tcp_mbps: 0, rdma_gbps: 400 };
        let prices = Prices::default().with_rates(rates).with_profile(&profile);
        let layout = Layout::hosts_of(4, 8).with_rdma(true).with_prices(prices);
        let algorithm = Algorithm::named(Collective::AllReduce, name).unwrap();
        price(algorithm, &call, &layout, 1 << 14).as_nanos()
    };
    let bytes = call.count * call.data_type.bytes();
    // The bytes that a rank sends, and those of them that stay on the host, as parts of the buffer.
    for (name, [stays, all]) in [
        ("ring", [14, 8]),
        ("double_tree", [16, 8]),
        ("halving_doubling", [12, 8]),
        ("recursive_doubling", [16, 8]),
    ] {
        assert_eq!(price_of(name, 1), price_of(name, 20), "{name}: the ports hold it up");
        let longer = price_of(name, 300) - price_of(name, 200);
        let wanted = (bytes * stays / all * 100 / 1000) as u128;
        assert!(longer.abs_diff(wanted) <= wanted / 100, "{name}: {longer} of {wanted} ns");
    }
    let within_ps = 400;
    assert!(price_of("two_shot", within_ps) < price_of("ring", within_ps) / 2, "side by side");
}

//! By default a rank of a large job has links to few ranks on other hosts.

use ringfold_collectives::select::{Constraints, Measurements, select};
use ringfold_collectives::{Algorithm, ScheduleParams};
use ringfold_topology::prices::{Prices, Rates};
use ringfold_topology::{Layout, Path};
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Collective, DataType, Rank};

use crate::choices::call;

/// The most ranks on other hosts that a rank exchanges messages with in `call`.
fn most_away(algorithm: &Algorithm, call: Call, layout: &Layout) -> usize {
    // Peers do not depend on the chunk, and with one chunk schedules are short.
    let (chunk, window_bytes) = (call.count.max(1), LINK_BYTES_MIN);
    let away = |rank| {
        let schedule =
            (algorithm.schedule)(&ScheduleParams { call, layout, rank, chunk, window_bytes });
        schedule.peers().into_iter().filter(|peer| !layout.same_host(rank, *peer)).count()
    };
    // The root, and about a hundred ranks at all places of their hosts and rails.
    let step = (1 + layout.size() / 100) | 1;
    let some = (0..layout.size()).step_by(step).map(Rank::at);
    some.chain([call.root]).map(away).max().unwrap()
}

/// Checks the choices for all collectives from 4 B to 1 GiB. Returns the most links of a rank.
fn assert_few_connections(layout: &Layout) -> usize {
    let limit = 4 * layout.hosts().ilog2() as usize + 4;
    let mut most = 0;
    // The data of an all-to-all go from every rank to every other.
    for collective in Collective::ALL.into_iter().filter(|it| *it != Collective::AllToAll) {
        for data_type in [DataType::F32, DataType::Bf16] {
            let mut before = "";
            for bytes in [4, 256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 1 << 30] {
                let call = call(collective, data_type, bytes, layout.size());
                let free = Constraints::default();
                let chosen = select(&call, layout, &free, &Measurements::default());
                // The peers of flat algorithms do not depend on the length of a call.
                if chosen.name == before && !chosen.is_hierarchical() {
                    continue;
                }
                before = chosen.name;
                let away = most_away(chosen, call, layout);
                assert!(away <= limit, "{call} on {} hosts by {chosen}: {away}", layout.hosts());
                most = most.max(away);
            }
        }
    }
    most
}

fn assert_most(hosts: usize, ranks: usize) {
    let most = assert_few_connections(&Layout::hosts_of(ranks, hosts * ranks));
    assert!(most >= 6, "{hosts} hosts of {ranks}: {most} is too few to be true");
}

#[test]
fn large_jobs_take_few_connections() {
    for (hosts, ranks) in [(65, 1), (65, 4), (128, 1), (128, 2)] {
        assert_most(hosts, ranks);
    }
}

#[test]
#[ignore = "heavy: see tests/long"]
fn larger_jobs_take_few_connections() {
    for hosts in [128, 512, 1024] {
        for ranks in [1, 8] {
            assert_most(hosts, ranks);
        }
    }
    for (hosts, group, ranks) in [(512, 32, 1), (512, 32, 4), (1024, 32, 1), (1024, 32, 4)] {
        assert_few_in_groups(hosts, group, ranks);
    }
}

#[test]
fn large_jobs_take_few_connections_whatever_the_prices() {
    for (tcp_mbps, rdma_gbps) in [(100, 0), (100_000, 0), (0, 400)] {
        let prices = Prices::default().with_rates(Rates { tcp_mbps, rdma_gbps });
        for (hosts, ranks) in [(65, 1), (65, 4), (128, 2)] {
            let layout = Layout::hosts_of(ranks, hosts * ranks).with_prices(prices.clone());
            assert_few_connections(&layout.with_rdma(rdma_gbps > 0));
        }
    }
}

/// In a leaf group each carrier has links to all others.
fn assert_few_in_groups(hosts: usize, group: u32, ranks: usize) {
    let path = |host| Path { order: host, pod: 0, group: host / group, machine: host };
    let paths: Vec<Path> = (0..).take(hosts).map(path).collect();
    assert_few_connections(&Layout::hosts_of(ranks, hosts * ranks).with_paths(&paths));
}

#[test]
fn large_leaf_groups_take_few_connections() {
    for (hosts, group, ranks) in
        [(128, 64, 1), (128, 64, 2), (128, 16, 1), (128, 16, 2), (130, 65, 1), (130, 65, 2)]
    {
        assert_few_in_groups(hosts, group, ranks);
    }
}

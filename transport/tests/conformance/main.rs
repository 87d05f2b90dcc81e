//! Tests of the contract, which every transport must pass: one body of tests, instantiated per
//! transport. To add a transport, write a constructor `fn(ranks, lanes) -> Vec<Box<dyn Transport>>`
//! (connected endpoints, in rank order) and a `conformance!` line.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its seed"
)]

mod bodies;
mod leaving;
mod parking;
mod registered;
mod stress;
mod world;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ringfold_harness::Random;
use ringfold_lend::placement;
use ringfold_transport::layer::{Fault, Plan, Rate, Throttle, Watch, Watched};
use ringfold_transport::local::Local;
use ringfold_transport::rdma::{Config as Device, Rails, Rdma, Settings};
use ringfold_transport::shm::{Config as Here, Pending, Shm, SingleCopy};
use ringfold_transport::tcp::{Config, Listening, Liveness, Tcp};
use ringfold_transport::{Link, Transport};
use ringfold_types::Rank;

type Ends = Vec<Box<dyn Transport>>;

fn local(ranks: usize, _lanes: usize) -> Ends {
    let ends = Local::mesh(ranks).expect("descriptors for doorbells");
    ends.into_iter().map(|end| Box::new(end) as Box<dyn Transport>).collect()
}

fn tcp(ranks: usize, lanes: usize) -> Ends {
    let ends = tcp_ends(ranks, lanes);
    ends.map(|end| Box::new(end) as Box<dyn Transport>).collect()
}

fn tcp_ends(ranks: usize, lanes: usize) -> impl Iterator<Item = Tcp> {
    let listen = |rank| {
        let bind = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let (key, rank, liveness) = ([3; 32], Rank::at(rank), Liveness::default());
        let config = Config { key, rank, size: ranks, lanes, bind, ports: None, liveness };
        Tcp::listen(config).expect("a port")
    };
    let doors: Vec<_> = (0..ranks).map(listen).collect();
    let peers: Vec<_> =
        (0..).map(Rank).zip(doors.iter().map(|door| door.addresses().to_vec())).collect();
    let connect = move |door: Listening| door.connect(peers.clone()).expect("descriptors");
    doors.into_iter().map(connect)
}

fn rdma(ranks: usize, lanes: usize, queue_pairs: u8, is_adaptive: bool) -> Ends {
    let settings = || {
        let mut settings = Settings::default();
        settings.queue_pairs = queue_pairs;
        settings.adaptive_routing = Some(is_adaptive);
        settings
    };
    let connect = |(rank, tcp): (usize, Tcp)| {
        let rails = Rails::open(&settings(), None).expect("a device");
        let config = Device {
            key: [3; 32],
            rank: Rank::at(rank),
            lanes,
            settings: settings(),
            reaches: vec![true; ranks],
            may_use_tcp: false,
            placement: Some(placement()),
        };
        Rdma::new(rails, tcp, config).expect("descriptors")
    };
    let ends = tcp_ends(ranks, lanes).enumerate().map(connect);
    ends.map(|end| Box::new(end) as Box<dyn Transport>).collect()
}

/// One rank has no usable rail, so data goes by TCP.
fn rdma_without_rails(ranks: usize, lanes: usize) -> Ends {
    let connect = |(rank, tcp): (usize, Tcp)| {
        let config = Device {
            key: [3; 32],
            rank: Rank::at(rank),
            lanes,
            settings: Settings::default(),
            reaches: vec![true; ranks],
            may_use_tcp: true,
            placement: None,
        };
        Rdma::new(Rails::none(), tcp, config).expect("descriptors")
    };
    let ends = tcp_ends(ranks, lanes).enumerate().map(connect);
    ends.map(|end| Box::new(end) as Box<dyn Transport>).collect()
}

fn rdma_single(ranks: usize, lanes: usize) -> Ends {
    rdma(ranks, lanes, 1, false)
}

fn rdma_several(ranks: usize, lanes: usize) -> Ends {
    rdma(ranks, lanes, 3, false)
}

/// Long payloads are written before their announcements.
fn rdma_adaptive(ranks: usize, lanes: usize) -> Ends {
    rdma(ranks, lanes, 2, true)
}

/// Whether there is an RDMA device. If not, prints that, or fails if RINGFOLD_TEST_REQUIRE demands
/// one.
fn has_rdma() -> bool {
    static IS_THERE: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        !ringfold_harness::rdma::hosts(Rails::open(&Settings::default(), None)).is_empty()
    });
    *IS_THERE
}

fn shm(ranks: usize, lanes: usize) -> Ends {
    shm_ends(ranks, lanes, SingleCopy::Never)
}

/// Messages longer than `LINK_BYTES_MIN` go by rendezvous.
fn shm_rendezvous(ranks: usize, lanes: usize) -> Ends {
    shm_ends(ranks, lanes, SingleCopy::From(0))
}

fn shm_ends(ranks: usize, lanes: usize, offers: SingleCopy) -> Ends {
    let pending: Vec<_> = (0..ranks)
        .map(|rank| {
            let config = Here { key: [7; 32], rank: Rank::at(rank), lanes, offers };
            Shm::listen(config).expect("a socket to listen on")
        })
        .collect();
    let peers: Vec<_> =
        pending.iter().enumerate().map(|(rank, end)| (Rank::at(rank), end.address())).collect();
    let deadline = std::time::Instant::now() + world::TIMEOUT;
    let connect = |end: Pending| end.connect(&peers, deadline).unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = pending.into_iter().map(|end| scope.spawn(|| connect(end))).collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap());
        ends.map(|end| Box::new(end) as Box<dyn Transport>).collect()
    })
}

/// The endpoints of `around`, each in a layer.
fn layered<T: Transport + 'static>(around: Ends, wrap: impl Fn(Box<dyn Transport>) -> T) -> Ends {
    around.into_iter().map(|end| Box::new(wrap(end)) as Box<dyn Transport>).collect()
}

/// Checks that no bytes pass before they were shown.
#[derive(Debug, Default)]
struct Shown(BTreeMap<(Link, bool), usize>);

impl Watch for Shown {
    fn begin(&mut self, direction: (Link, bool), _tag: u32, front: &[u8]) {
        self.0.insert(direction, front.len());
    }

    fn pass(&mut self, direction: (Link, bool), bytes: usize) {
        let shown = self.0.remove(&direction).unwrap_or(0);
        assert!(bytes <= shown, "{bytes} of {shown} bytes passed");
    }
}

fn watched(ranks: usize, lanes: usize) -> Ends {
    layered(local(ranks, lanes), |end| Watched::new(end, Shown::default()))
}

fn throttled(ranks: usize, lanes: usize) -> Ends {
    let rate = Rate { bytes_per_second: 300_000_000, burst_bytes: 64 * 1024 };
    layered(local(ranks, lanes), |end| Throttle::new(end, rate).expect("descriptors"))
}

fn faulty(around: Ends) -> Ends {
    let mut random = Random::seeded();
    let mut plans = std::iter::repeat_with(|| Plan {
        seed: random.bits(),
        hide_per_mille: 200,
        shorten_per_mille: 200,
        ends: Vec::new(),
    });
    let wrap = |end| Box::new(Fault::new(end, plans.next().unwrap())) as Box<dyn Transport>;
    around.into_iter().map(wrap).collect()
}

fn faulty_local(ranks: usize, lanes: usize) -> Ends {
    faulty(local(ranks, lanes))
}

fn faulty_shm(ranks: usize, lanes: usize) -> Ends {
    faulty(shm(ranks, lanes))
}

fn faulty_shm_rendezvous(ranks: usize, lanes: usize) -> Ends {
    faulty(shm_rendezvous(ranks, lanes))
}

fn faulty_tcp(ranks: usize, lanes: usize) -> Ends {
    faulty(tcp(ranks, lanes))
}

/// One test per body and transport, as in `shm::order_content_tags`.
macro_rules! conformance {
    ($name:ident, $constructor:expr) => {
        conformance!($name, $constructor, true);
    };
    ($name:ident, $constructor:expr, $is_possible:expr) => {
        conformance!($name, $constructor, $is_possible,
            bodies: order_content_tags, short_messages_go_ahead,
                exchanges_mix_with_messages, an_exchange_takes_only_its_tag,
                equal_tags_concatenate, link_bytes_min, flow_control,
                readable_is_stable, recv_moves_only_its_tag, lanes_are_independent, many_peers;
            leaving: closed_after_the_rest, flushed_bytes_survive_their_sender,
                accepted_bytes_survive_a_late_answer, bytes_for_a_dead_peer_delay_no_drop,
                a_withdrawn_endpoint_drops_at_once;
            registered: sent_from_registered_memory, received_into_registered_memory,
                woken_in_registered_memory,
                a_parked_rank_has_sent,
                withdrawn_memory_is_not_read, withdrawn_memory_is_not_written;
            parking: woken_by_data, woken_by_credit, woken_by_the_end_of_a_peer, disarm_clears;
            stress: two_threads
        );
    };
    ($name:ident, $constructor:expr, $is_possible:expr, $($module:ident: $($body:ident),+);+) => {
        mod $name {
            $($(
                #[test]
                fn $body() {
                    if $is_possible {
                        crate::$module::$body(&$constructor);
                    }
                }
            )+)+
        }
    };
}

conformance!(local, crate::local);
conformance!(tcp, crate::tcp);
conformance!(shm, crate::shm);
conformance!(shm_rendezvous, crate::shm_rendezvous);
conformance!(watched, crate::watched);
conformance!(throttled, crate::throttled);
conformance!(faulty_local, crate::faulty_local);
conformance!(faulty_shm, crate::faulty_shm);
conformance!(faulty_shm_rendezvous, crate::faulty_shm_rendezvous);
conformance!(faulty_tcp, crate::faulty_tcp);
conformance!(rdma, crate::rdma_single, crate::has_rdma());
conformance!(rdma_several, crate::rdma_several, crate::has_rdma());
conformance!(rdma_adaptive, crate::rdma_adaptive, crate::has_rdma());
conformance!(rdma_without_rails, crate::rdma_without_rails);

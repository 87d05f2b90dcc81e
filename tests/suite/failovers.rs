//! Metrics of a rail that is lost, over RDMA devices that exist only in the test
//! (`tests/fake-verbs`).

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ringfold::{Communicator, ReduceOp};
use ringfold_harness::{fake_verbs, free_port, http_page};
use ringfold_transport::rdma::fake::{Device, Like};

use crate::via::Via;

/// Far beyond the time in which a lost rail is noticed.
const LONG: Duration = Duration::from_secs(60);

/// The failovers by this rail, as the metrics have them.
fn failovers(port: u16, rail: &str) -> Option<u64> {
    let page = http_page(port, "/metrics").unwrap();
    let labels = format!("transport=\"rdma\",rail=\"{rail}\"}} ");
    let mut samples = page.lines().filter(|line| line.starts_with("ringfold_failovers_total{"));
    samples.find_map(|line| line.split_once(&labels)?.1.parse().ok())
}

#[test]
fn a_lost_rail_is_counted() {
    let name = concat!(module_path!(), "::a_lost_rail_is_counted");
    fake_verbs::run_listed(name, "fake_h0r0 fake_h0r1 fake_h1r0 fake_h1r1", || {
        let add = |host: u8, rail: u8| {
            let gid = Ipv4Addr::new(10, 10 + rail, 0, 1 + host).to_ipv6_mapped().octets();
            let like = Like { is_infiniband: false, needs_grh: false, lid: 0, gid, gigabits: 200 };
            Device::add(&format!("fake_h{host}r{rail}"), like)
        };
        let [[_, lost], _] = [0, 1].map(|host| [0, 1].map(|rail| add(host, rail)));
        assert!(Via::Rdma.is_there());
        let port = free_port();
        let sum = |comm: &mut Communicator| {
            let mut buffer = vec![1.0_f32; 1 << 20];
            comm.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            assert!(buffer.iter().all(|element| *element == 2.0));
        };
        Via::Rdma.run(2, &[("RINGFOLD_METRICS", &port.to_string())], |comm| {
            sum(comm);
            if comm.rank().0 == 0 {
                assert_eq!([failovers(port, "0"), failovers(port, "1")], [Some(0); 2]);
                lost.die();
            }
            let begin = Instant::now();
            let mut is_counted = false;
            while !is_counted {
                sum(comm);
                let mut seen = [failovers(port, "1").unwrap_or(0)];
                comm.all_reduce(&mut seen, ReduceOp::Min).unwrap();
                is_counted = seen[0] > 0;
                assert!(begin.elapsed() < LONG, "the lost rail is not counted");
            }
            assert_eq!(failovers(port, "0"), Some(0));
        });
    });
}

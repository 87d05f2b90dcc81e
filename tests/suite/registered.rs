//! Buffers that are registered for many calls, over RDMA devices that exist only in the test
//! (`tests/fake-verbs`).

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use ringfold::{Communicator, ReduceOp};
use ringfold_bench::buffers::{CallBuffers, Kind};
use ringfold_harness::fake_verbs;
use ringfold_transport::rdma::fake::{Count, Device, Hook, Like, count};

use crate::via::Via;

const RANKS: usize = 2;
const ELEMENTS: usize = 1 << 20;
const BYTES: i64 = 4 << 20;

/// Runs ranks with a device each, as the test of that name. They have made a long call before.
fn ranks(name: &str, rank_main: impl Fn(&mut Communicator, Device) + Sync) {
    fake_verbs::run_listed(name, "fake_h0r0 fake_h1r0", || {
        let devices = [0, 1].map(|host| {
            let gid = Ipv4Addr::new(10, 10, 0, 1 + host).to_ipv6_mapped().octets();
            let (is_infiniband, needs_grh, lid, gigabits) = (false, false, 0, 200);
            let like = Like { is_infiniband, needs_grh, lid, gid, gigabits };
            Device::add(&format!("fake_h{host}r0"), like)
        });
        assert!(Via::Rdma.is_there());
        Via::Rdma.run(RANKS, &[], |comm| {
            sum(comm, &mut vec![0.0; ELEMENTS]);
            rank_main(comm, devices[comm.rank().index()]);
        });
    });
}

/// Checks a sum over the ranks.
fn sum(comm: &mut Communicator, buffer: &mut [f32]) {
    buffer.fill((comm.rank().0 + 1) as f32);
    comm.all_reduce(buffer, ReduceOp::Sum).unwrap();
    assert!(buffer.iter().all(|element| *element == 3.0));
}

/// Returns the registrations of the process, and their bytes, while no rank is in a call.
fn registered(comm: &mut Communicator) -> [i64; 2] {
    comm.barrier().unwrap();
    let all = [Count::Regions, Count::RegionBytes].map(count);
    comm.barrier().unwrap();
    all
}

#[test]
fn registrations_end_with_their_last_holder() {
    ranks(concat!(module_path!(), "::registrations_end_with_their_last_holder"), |comm, _| {
        let before = registered(comm);
        // Those of both ranks.
        let change = |comm: &mut Communicator| {
            let [regions, bytes] = registered(comm);
            [(regions - before[0]) / 2, (bytes - before[1]) / 2]
        };
        let mut own = vec![0.0; ELEMENTS];
        let mut buffer = comm.register(&mut own).unwrap();
        assert!(buffer.is_registered());
        assert_eq!(change(comm), [1, BYTES]);
        let again = comm.register(&mut buffer[..]).unwrap();
        assert_eq!(change(comm), [1, BYTES], "the same buffer");
        drop(again);
        let mut part = comm.register(&mut buffer[ELEMENTS / 2..]).unwrap();
        assert_eq!(change(comm), [2, BYTES + BYTES / 2]);
        sum(comm, &mut part);
        drop(part);
        for _ in 0..3 {
            sum(comm, &mut buffer);
            assert_eq!(change(comm), [1, BYTES]);
        }
        drop(buffer);
        assert_eq!(change(comm), [0, 0]);
        sum(comm, &mut own);
        assert_eq!(change(comm), [0, 0], "a lease of a call");
    });
}

/// Another thread ends the registration, as it can in C and Python.
#[test]
fn a_registration_may_end_during_a_call() {
    ranks(concat!(module_path!(), "::a_registration_may_end_during_a_call"), |comm, _| {
        let before = registered(comm);
        for round in 0..16 {
            let mut own = vec![0.0; ELEMENTS];
            let kept = comm.register(&mut own).unwrap().into_registration();
            assert!(kept.is_some());
            thread::scope(|scope| {
                scope.spawn(move || {
                    thread::sleep(Duration::from_micros(300) * round);
                    drop(kept);
                });
                sum(comm, &mut own);
            });
            assert_eq!(registered(comm), before);
        }
    });
}

/// The buffer is then used as any other.
#[test]
fn a_device_may_refuse_a_registration() {
    ranks(concat!(module_path!(), "::a_device_may_refuse_a_registration"), |comm, device| {
        let before = registered(comm);
        device.hook(Hook::RefuseRegistration(true));
        let mut own = vec![0.0; ELEMENTS];
        let mut buffer = comm.register(&mut own).unwrap();
        assert!(!buffer.is_registered());
        sum(comm, &mut buffer);
        assert_eq!(registered(comm), before);
        device.hook(Hook::RefuseRegistration(false));
    });
}

/// `-R 1` of `allreduce-perf` and its siblings.
#[test]
fn benchmarks_register_their_buffers() {
    ranks(concat!(module_path!(), "::benchmarks_register_their_buffers"), |comm, _| {
        let before = registered(comm);
        let buffers = CallBuffers::new(comm, Kind::Registered, 4 * ELEMENTS).unwrap();
        let [regions, bytes] = registered(comm);
        let each = [(regions - before[0]) / 2, (bytes - before[1]) / 2];
        assert_eq!(each, [2, 2 * BYTES], "input and output");
        drop(buffers);
        assert_eq!(registered(comm), before);
    });
}

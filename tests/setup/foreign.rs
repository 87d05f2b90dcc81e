//! Foreign processes of the host at the sockets of ranks.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use ringfold_harness::{Job, program};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, sendto, socket_with,
};

use crate::{DEADLINE, ringrun};

/// Threads that knock at once.
const FOREIGNERS: usize = 8;
/// Lines that foreign processes may add to the log of a job.
const LINES_MAX: usize = 10;

/// The names of all sockets of ranks in this network namespace.
fn names() -> Vec<SocketAddrUnix> {
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let names = table.lines().filter_map(|line| Some(line.split_once("@ringfold-")?.1.trim()));
    let name = |name| SocketAddrUnix::new_abstract_name(format!("ringfold-{name}").as_bytes());
    names.map(|it| name(it).unwrap()).collect()
}

/// Connects to the socket, and sends it a datagram.
fn knock(name: &SocketAddrUnix) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = |kind| socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    connect(open(SocketType::SEQPACKET), name).ok();
    sendto(open(SocketType::DGRAM), b"a foreign process", SendFlags::NOSIGNAL, name).ok();
}

#[test]
fn foreign_processes_of_the_host_neither_keep_ranks_out_nor_fill_the_log() {
    let (is_over, knocks) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..FOREIGNERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for name in names() {
                        knock(&name);
                        knocks.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut command: Command = ringrun(4);
        command.arg(program::binary("rank")).args(["again", "8"]).env("RINGFOLD_TRANSPORT", "shm");
        let job = Job::start(&mut command);
        let outcome = std::panic::catch_unwind(|| job.finish(DEADLINE));
        is_over.store(true, Ordering::Relaxed);
        let outcome = outcome.unwrap();
        assert!(outcome.status.success(), "{outcome:?}");
        assert_eq!(outcome.stdout, "done\n".repeat(4), "{outcome:?}");
        assert!(outcome.stderr.lines().count() <= LINES_MAX, "{}", outcome.stderr);
    });
    assert!(knocks.into_inner() > 100, "the foreign processes have hardly run");
}

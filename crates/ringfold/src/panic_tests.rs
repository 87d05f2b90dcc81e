//! Tests of the state after a panic inside a call.

use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringfold_transport::local::Local;
use ringfold_transport::{
    Fragment, Link, LinkError, Pages, RegisteredMemory, Registration, Transport, UserBuffer,
};
use ringfold_types::{Rank, ReduceOp};

use crate::communicator::Communicator;
use crate::config::Config;
use crate::error::Error;
use crate::local::communicators_over;
use crate::point_to_point::ANY_TAG;

/// A transport that panics at a chosen poll, and counts its withdrawals.
#[derive(Debug)]
struct Panicking {
    inner: Local,
    polls_left: Option<u32>,
    withdrawn: Arc<AtomicUsize>,
    /// Buffers that are lent now, and all that ever were.
    leases: [Arc<AtomicUsize>; 2],
}

impl Transport for Panicking {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.inner.send(link, tag, bytes)
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        self.inner.readable(link)
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        self.inner.consume(link, bytes);
    }

    fn withdraw(&mut self) {
        self.withdrawn.fetch_add(1, Ordering::Relaxed);
        self.inner.withdraw();
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        Some(self)
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        if let Some(left) = &mut self.polls_left {
            assert!(*left > 0, "on purpose");
            *left -= 1;
        }
        self.inner.poll()
    }

    fn is_flushed(&self) -> bool {
        self.inner.is_flushed()
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.inner.wake_fd()
    }

    fn arm(&mut self) {
        self.inner.arm();
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}

impl RegisteredMemory for Panicking {
    fn pages(&mut self, _: usize) -> io::Result<Pages> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn lease(&mut self, _: UserBuffer) {
        for count in &self.leases {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn release(&mut self) {
        self.leases[0].store(0, Ordering::Relaxed);
    }

    /// Each registration is a clone of the second counter.
    fn register(&mut self, _: UserBuffer) -> Option<Registration> {
        Some(Registration::new(Arc::clone(&self.leases[1])))
    }
}

/// Registrations belong to buffers: they outlive failures and communicators.
#[test]
fn buffers_stay_registered_as_long_as_their_owner_wants() {
    let registered: Arc<AtomicUsize> = Arc::default();
    let count = || Arc::strong_count(&registered) - 2;
    let mut ends = Local::mesh(2).unwrap().into_iter();
    let end = |inner| {
        let leases = [Arc::default(), Arc::clone(&registered)];
        let end = Panicking { inner, polls_left: None, withdrawn: Arc::default(), leases };
        Box::new(end) as Box<dyn Transport>
    };
    let plain = ends.next_back().map(|end| Box::new(end) as Box<dyn Transport>).unwrap();
    let both = communicators_over(&Config::default(), vec![end(ends.next().unwrap()), plain]);
    let mut both = both.unwrap();
    let (mut peer, mut own) = (both.pop().unwrap(), both.pop().unwrap());
    let (mut first, mut second, mut third) = ([1_u8; 64], [[2_u32; 2]; 9], [3.0_f64; 5]);
    let mut whole = own.register(&mut first).unwrap();
    assert!(whole.is_registered() && count() == 1);
    let part = own.register(&mut whole[3..17]).unwrap();
    assert_eq!((&part[..], count()), (&[1; 14][..], 2));
    drop(part);
    whole[0] = 7;
    let kept = own.register(&mut second).unwrap().into_registration();
    assert!(kept.is_some() && count() == 2);
    let nothing = own.register::<u64>(&mut []).unwrap();
    assert!(!nothing.is_registered() && count() == 2);
    // The peer has no devices.
    let unknown = peer.register(&mut third).unwrap();
    assert!(!unknown.is_registered() && unknown.into_registration().is_none());
    peer.abort("on purpose");
    assert!(own.barrier().is_err());
    assert!(matches!(own.register(&mut third), Err(Error::Failed(_))));
    assert_eq!(count(), 2);
    drop((own, peer));
    drop(kept);
    // The transport that had a third clone is gone.
    assert_eq!(Arc::strong_count(&registered), 2);
    drop(whole);
    assert_eq!((Arc::strong_count(&registered), first[0]), (1, 7));
}

/// Two ranks, of which the first counts what its transport gives up and is lent.
struct Pair {
    own: Communicator,
    peer: Communicator,
    withdrawn: Arc<AtomicUsize>,
    leases: [Arc<AtomicUsize>; 2],
}

/// Makes two ranks. The transport of the first panics after so many polls.
fn pair(config: &Config, polls_left: Option<u32>) -> Pair {
    let (withdrawn, leases): (Arc<AtomicUsize>, [Arc<AtomicUsize>; 2]) = Default::default();
    let mut counts = [Some((polls_left, Arc::clone(&withdrawn), leases.clone())), None].into_iter();
    let ends = Local::mesh(2).unwrap().into_iter().map(|inner| {
        let (polls_left, withdrawn, leases) = counts.next().flatten().unwrap_or_default();
        Box::new(Panicking { inner, polls_left, withdrawn, leases }) as Box<dyn Transport>
    });
    let mut both = communicators_over(config, ends.collect()).unwrap();
    let (peer, own) = (both.pop().unwrap(), both.pop().unwrap());
    Pair { own, peer, withdrawn, leases }
}

/// Checks that both ranks soon have the failure of rank 0. Returns the text of the peer's.
fn failure_of_rank_0(own: &mut Communicator, peer: &mut Communicator) -> String {
    let begin = Instant::now();
    let failures = [own, peer].map(|comm| match comm.barrier().unwrap_err() {
        Error::Failed(failure) => failure,
        other => panic!("{other}"),
    });
    assert!(begin.elapsed() < Duration::from_secs(20), "the peer did not wait for its timeout");
    assert_eq!(failures[0].cause, failures[1].cause);
    assert_eq!(failures[0].cause.culprits(), [Rank(0)]);
    failures[1].to_string()
}

#[test]
fn a_panic_withdraws_lent_memory_and_ends_the_call_of_every_rank() {
    let Pair { mut own, mut peer, withdrawn, leases } = pair(&Config::default(), Some(3));
    let mut buffer = vec![1.0_f32; 1 << 20];
    let call = || own.all_reduce(&mut buffer, ReduceOp::Sum);
    let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(withdrawn.load(Ordering::Relaxed), 1, "no peer uses the caller's memory any longer");
    assert_eq!(leases.map(|count| count.load(Ordering::Relaxed)), [0, 2], "lent and released");
    let text = failure_of_rank_0(&mut own, &mut peer);
    assert!(text.contains("allreduce [f32 x 1048576, sum] #1 panicked"), "{text}");
}

/// A panic in a thread that waits, while rank 0 has started a call.
#[test]
fn a_panic_in_a_wait_withdraws_the_memory_of_started_calls() {
    let Pair { mut own, mut peer, withdrawn, .. } = pair(&Config::default(), Some(40));
    let first = own.start_all_reduce(vec![1.0_f32; 1 << 20], ReduceOp::Sum).unwrap();
    let second = own.start_all_reduce(vec![1.0_f32; 7], ReduceOp::Sum).unwrap();
    // This thread or the helper thread panics, and the call ends in either case.
    drop(catch_unwind(AssertUnwindSafe(|| first.wait())));
    assert!(withdrawn.load(Ordering::Relaxed) > 0, "no peer uses the memory any longer");
    let failed = second.wait().unwrap_err();
    assert_eq!(failed.buffers, [1.0; 7]);
    failure_of_rank_0(&mut own, &mut peer);
}

/// A panic in the helper thread, while no thread waits for the call. A start makes three polls. The
/// helper makes the next one while it advances the call, and the one after that before it sleeps.
#[test]
fn a_panic_in_the_helper_thread_ends_started_calls() {
    for polls in [3, 4] {
        let Pair { mut own, mut peer, withdrawn, .. } = pair(&Config::default(), Some(polls));
        let started = own.start_all_reduce(vec![1.0_f32; 1 << 20], ReduceOp::Sum).unwrap();
        let begin = Instant::now();
        while withdrawn.load(Ordering::Relaxed) == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "the call did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(started.wait().unwrap_err().buffers.len(), 1 << 20);
        failure_of_rank_0(&mut own, &mut peer);
    }
}

/// A look for a message fails beside a started call, whose memory then comes back.
#[test]
fn a_probe_that_fails_withdraws_the_memory_of_started_calls() {
    let Pair { mut own, peer, withdrawn, .. } = pair(&Config::default(), None);
    let started = own.start_all_reduce(vec![1.0_f32; 1 << 20], ReduceOp::Sum).unwrap();
    peer.abort("on purpose");
    let begin = Instant::now();
    while own.probe(Rank(1), ANY_TAG).is_ok() {
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(started.wait().unwrap_err().buffers.len(), 1 << 20);
    assert!(withdrawn.load(Ordering::Relaxed) > 0, "no peer uses the memory any longer");
}

/// Long buffers are lent for the time of a call only, however it ends.
#[test]
fn buffers_are_released_when_a_call_returns() {
    let config = Config { timeout: Duration::from_millis(300), ..Config::default() };
    let Pair { mut own, mut peer, leases, .. } = pair(&config, None);
    let lent = || [0, 1].map(|at: usize| leases[at].load(Ordering::Relaxed));
    let there = std::thread::spawn(move || {
        let (mut long, mut short) = (vec![2.0_f32; 1 << 18], [0.0_f32; 4]);
        peer.all_reduce(&mut short, ReduceOp::Sum).unwrap();
        peer.all_reduce(&mut long, ReduceOp::Sum).unwrap();
        peer.send(&long, Rank(0), 7).unwrap();
        peer
    });
    let (mut long, mut short) = (vec![1.0_f32; 1 << 18], [0.0_f32; 4]);
    own.all_reduce(&mut short, ReduceOp::Sum).unwrap();
    assert_eq!(lent(), [0, 0], "a short one is copied");
    own.all_reduce(&mut long, ReduceOp::Sum).unwrap();
    assert_eq!(lent(), [0, 2], "the buffer and the scratch memory of the call");
    own.recv(&mut long, Rank(1), 7).unwrap();
    assert_eq!(lent(), [0, 3]);
    // The peer never performs this call, so it fails.
    let _peer = there.join().unwrap();
    assert!(own.all_reduce(&mut long, ReduceOp::Sum).is_err());
    assert_eq!(lent(), [0, 5]);
}

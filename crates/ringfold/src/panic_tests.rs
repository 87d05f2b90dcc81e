//! Tests of the state after a panic inside a call.

use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringfold_transport::local::Local;
use ringfold_transport::{Fragment, Link, LinkError, Transport};
use ringfold_types::{Rank, ReduceOp};

use crate::config::Config;
use crate::error::Error;
use crate::local::communicators_over;

/// A transport that panics at a chosen poll, and counts its withdrawals.
#[derive(Debug)]
struct Panicking {
    inner: Local,
    polls_left: Option<u32>,
    withdrawn: Arc<AtomicUsize>,
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

#[test]
fn a_panic_withdraws_lent_memory_and_ends_the_call_of_every_rank() {
    let withdrawn = Arc::new(AtomicUsize::new(0));
    let ends = Local::mesh(2).unwrap().into_iter().enumerate().map(|(rank, inner)| {
        let polls_left = (rank == 0).then_some(3);
        let count = if rank == 0 { Arc::clone(&withdrawn) } else { Arc::default() };
        Box::new(Panicking { inner, polls_left, withdrawn: count }) as Box<dyn Transport>
    });
    let mut both = communicators_over(&Config::default(), ends.collect()).unwrap();
    let mut peer = both.pop().unwrap();
    let mut own = both.pop().unwrap();
    let mut buffer = vec![1.0_f32; 1 << 20];
    let call = || own.all_reduce(&mut buffer, ReduceOp::Sum);
    let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(withdrawn.load(Ordering::Relaxed), 1, "no peer uses the caller's memory any longer");
    let begin = Instant::now();
    let failures = [&mut own, &mut peer].map(|comm| match comm.barrier().unwrap_err() {
        Error::Failed(failure) => failure,
        other => panic!("{other}"),
    });
    assert!(begin.elapsed() < Duration::from_secs(20), "the peer did not wait for its timeout");
    assert_eq!(failures[0].cause, failures[1].cause);
    assert_eq!(failures[0].cause.culprits(), [Rank(0)]);
    let text = failures[1].to_string();
    assert!(text.contains("allreduce [f32 x 1048576, sum] #1 panicked"), "{text}");
}

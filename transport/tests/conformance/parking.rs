//! `arm`, `wake_fd`, `disarm`: a caller that tries once more and then parks is woken by the event
//! that it waits for. A lost wake-up shows as a park that ends by its timeout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfold_harness::Random;
use ringfold_transport::Transport;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::world::{Constructor, Incoming, Outgoing, TIMEOUT, link, pair, until};

/// Whether the descriptor became readable within `timeout`.
fn park(end: &dyn Transport, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).unwrap();
    let fd = end.wake_fd();
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }
}

/// Calls `attempt` until it returns something, and parks between attempts as callers must.
pub(crate) fn parked<T>(
    what: &str,
    end: &mut dyn Transport,
    mut attempt: impl FnMut(&mut dyn Transport) -> Option<T>,
) -> T {
    until(what, || {
        end.poll().unwrap();
        if let Some(value) = attempt(end) {
            return Some(value);
        }
        end.arm();
        let moved = end.poll().unwrap();
        let value = attempt(end);
        if value.is_none() && !moved {
            assert!(park(end, TIMEOUT), "lost wake-up: {what}");
        }
        end.disarm();
        value
    })
}

fn dawdle(random: &mut Random) {
    for _ in 0..random.below(3000) {
        std::hint::spin_loop();
    }
    if random.below(8) == 0 {
        std::thread::yield_now();
    }
}

pub(crate) fn woken_by_data(make: &Constructor) {
    const ROUNDS: u32 = 2000;
    let (mut a, mut b) = pair(make, 1);
    let mut random = Random::seeded();
    let mut others = random.fork();
    let len = |tag: u32| if tag.is_multiple_of(3) { 1000 } else { 8 };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for tag in 0..ROUNDS {
                dawdle(&mut random);
                let mut out = Outgoing::new(link(1, 0), tag, len(tag));
                parked("room", &mut *a, |a| {
                    while !out.is_done() && out.offer(a).unwrap() > 0 {}
                    out.is_done().then_some(())
                });
                let mut echo = Incoming::new(link(1, 0), tag, len(tag));
                parked("the echo", &mut *a, |a| {
                    while !echo.is_done() && echo.take(a, |lent| lent).unwrap() > 0 {}
                    echo.is_done().then_some(())
                });
            }
        });
        for tag in 0..ROUNDS {
            dawdle(&mut others);
            let mut arrives = Incoming::new(link(0, 0), tag, len(tag));
            parked("data", &mut *b, |b| {
                while !arrives.is_done() && arrives.take(b, |lent| lent).unwrap() > 0 {}
                arrives.is_done().then_some(())
            });
            let mut echo = Outgoing::new(link(0, 0), tag, len(tag));
            parked("room for the echo", &mut *b, |b| {
                while !echo.is_done() && echo.offer(b).unwrap() > 0 {}
                echo.is_done().then_some(())
            });
        }
        until("the last echo leaves", || {
            b.poll().unwrap();
            b.is_flushed().then_some(())
        });
    });
}

/// The sender is faster than the receiver and parks for room; the receiver parks only when
/// everything is read.
pub(crate) fn woken_by_credit(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    let mut random = Random::seeded();
    let mut others = random.fork();
    let lens: Vec<usize> =
        (0..300).map(|at| if at % 2 == 0 { 1 + random.below(64) } else { 40_000 }).collect();
    let expected = lens.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (tag, len) in (0..).zip(lens) {
                let mut out = Outgoing::new(link(1, 0), tag, len);
                parked("room", &mut *a, |a| {
                    // The link may accept more, so only 0 is a reason to park.
                    while !out.is_done() && out.offer(a).unwrap() > 0 {}
                    out.is_done().then_some(())
                });
            }
            parked("flushed", &mut *a, |a| a.is_flushed().then_some(()));
        });
        for (tag, len) in (0..).zip(expected) {
            let mut arrives = Incoming::new(link(0, 0), tag, len);
            while !arrives.is_done() {
                dawdle(&mut others);
                parked("data", &mut *b, |b| {
                    (arrives.take(b, |lent| lent).unwrap() > 0).then_some(())
                });
            }
        }
    });
}

pub(crate) fn woken_by_the_end_of_a_peer(make: &Constructor) {
    let mut random = Random::seeded();
    for _ in 0..20 {
        let (mut a, mut b) = pair(make, 1);
        // Both ends are connected before one of them ends.
        let mut out = Outgoing::new(link(1, 0), 1, 8);
        let mut arrives = Incoming::new(link(0, 0), 1, 8);
        crate::world::carry(&mut *a, &mut *b, &mut out, &mut arrives);
        let mut timing = random.fork();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                dawdle(&mut timing);
                drop(a);
            });
            parked("the end of the peer", &mut *b, |b| b.readable(link(0, 0)).err());
        });
    }
}

/// After `disarm` the descriptor is not readable, despite earlier wake-ups; after the next `arm` it
/// works again.
pub(crate) fn disarm_clears(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    for round in 0..50 {
        b.arm();
        let mut out = Outgoing::new(link(1, 0), round, 8);
        let seen = AtomicBool::new(false);
        until("the wake-up", || {
            a.poll().unwrap();
            if !out.is_done() {
                out.offer(&mut *a).unwrap();
            }
            b.poll().unwrap();
            seen.fetch_or(park(&*b, Duration::ZERO), Ordering::Relaxed);
            (out.is_done() && (seen.load(Ordering::Relaxed))).then_some(())
        });
        let mut arrives = Incoming::new(link(0, 0), round, 8);
        until("the message", || {
            a.poll().unwrap();
            b.poll().unwrap();
            arrives.take(&mut *b, |lent| lent).unwrap();
            arrives.is_done().then_some(())
        });
        // A device may still report an earlier request, once for each queue.
        let tries = if b.name() == "rdma" { 8 } else { 1 };
        let mut is_quiet = || {
            b.disarm();
            !park(&*b, Duration::ZERO)
        };
        assert!((0..tries).any(|_| is_quiet()), "the descriptor is readable after disarm");
    }
}

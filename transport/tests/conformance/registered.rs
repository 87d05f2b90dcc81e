//! Messages from and to registered memory, which devices may read and write.

use std::time::Duration;

use ringfold_harness::Random;
use ringfold_transport::Transport;

use crate::parking::parked;
use crate::world::{
    Constructor, Incoming, Landing, Memory, Outgoing, carry, is_message, link, pair, until,
};

/// A message from registered memory arrives as it was sent, even if the caller changes the memory
/// after its acceptance. So does a later message from other memory.
pub(crate) fn sent_from_registered_memory(make: &Constructor) {
    let (mut a, mut b) = pair(make, 2);
    let sizes = [1, 31_999, 32_768, 32_769, 65_536, 65_537, 300_001, 3_500_001, 48, 1 << 20];
    for (tag, len) in (0..).zip(sizes) {
        for lane in [0, 1] {
            let mut there = Outgoing::registered(&mut *a, link(1, lane), tag, len);
            let mut arrives = Incoming::new(link(0, lane), tag, len);
            carry(&mut *a, &mut *b, &mut there, &mut arrives);
            let mut there = Outgoing::new(link(1, lane), tag + 100, len);
            let mut arrives = Incoming::new(link(0, lane), tag + 100, len);
            carry(&mut *a, &mut *b, &mut there, &mut arrives);
        }
    }
}

/// A withdrawn message in registered memory is not read any more: later contents of the memory do
/// not arrive.
pub(crate) fn withdrawn_memory_is_not_read(make: &Constructor) {
    for pause in [0, 0, 50, 200] {
        let (a, b) = pair(make, 1);
        withdraw_after(a, b, Duration::from_micros(pause));
    }
}

fn withdraw_after(mut a: Box<dyn Transport>, mut b: Box<dyn Transport>, pause: Duration) {
    let (mut first, mut arrives) =
        (Outgoing::new(link(1, 0), 1, 100), Incoming::new(link(0, 0), 1, 100));
    carry(&mut *a, &mut *b, &mut first, &mut arrives);
    let mut there = Outgoing::registered(&mut *a, link(1, 0), 2, 3_000_000);
    let accepted = there.offer(&mut *a).unwrap();
    // Only now may a device get the address.
    a.poll().unwrap();
    std::thread::sleep(pause);
    a.withdraw();
    if accepted == 0 && matches!(there.bytes, Memory::Registered(..)) {
        assert!(a.send(link(1, 0), 3, &[1]).is_err(), "more after what a device was reading");
    }
    there.bytes.fill(0x5a);
    let mut arrives = Incoming::new(link(0, 0), 2, 3_000_000);
    // Only a correct front of the message arrives, without its end; the link may fail.
    for _ in 0..2000 {
        a.poll().ok();
        if b.poll().is_err() || arrives.take(&mut *b, |lent| lent).is_err() {
            break;
        }
    }
    assert!(!arrives.is_done() || there.is_done());
}

/// Messages into registered memory arrive correctly from any memory, before or after the `recv`.
/// After a message has arrived, nothing more is written there.
pub(crate) fn received_into_registered_memory(make: &Constructor) {
    let (mut a, mut b) = pair(make, 2);
    let sizes = [1, 32_767, 32_768, 65_537, 300_001, 3_500_001];
    let cases = sizes.into_iter().flat_map(|len| (0..8).map(move |how| (len, how)));
    let mut before = Vec::new();
    for (tag, (len, how)) in (0..).zip(cases) {
        let [is_first, is_registered, is_late] = [1, 2, 4].map(|bit| how & bit != 0);
        let lane = usize::from(is_first);
        let mut there = if is_registered {
            Outgoing::registered(&mut *a, link(1, lane), tag, len)
        } else {
            Outgoing::new(link(1, lane), tag, len)
        };
        let mut arrives = Landing::registered(&mut *b, link(0, lane), tag, len);
        let mut waits = if is_late { 30 } else { 0 };
        until("a message received into registered memory", || {
            a.poll().unwrap();
            b.poll().unwrap();
            if waits == 0 && !arrives.is_done() {
                // Sometimes for a part only.
                let most = if len.is_multiple_of(2) { len } else { 1 + arrives.arrived + len / 3 };
                arrives.take(&mut *b, most).unwrap();
            }
            waits = u32::saturating_sub(waits, 1);
            if !there.is_done() {
                there.offer(&mut *a).unwrap();
            }
            (there.is_done() && arrives.is_done()).then_some(())
        });
        assert!(is_message(tag, 0, &arrives.bytes), "content of {tag}");
        arrives.bytes.fill(0x5c);
        before.push(arrives.bytes);
        if before.len() == 8 {
            let is_right = |it: Memory| it.iter().all(|byte| *byte == 0x5c);
            assert!(before.drain(..).all(is_right), "written again");
        }
    }
}

/// A message of which nothing was accepted arrives even while its sender is parked.
pub(crate) fn a_parked_rank_has_sent(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    let (mut out, mut arrives) = (Outgoing::new(link(1, 0), 1, 8), Incoming::new(link(0, 0), 1, 8));
    carry(&mut *a, &mut *b, &mut out, &mut arrives);
    for (tag, len) in (2..).zip([32_768, 40_000, 65_536]) {
        let mut there = Outgoing::registered(&mut *a, link(1, 0), tag, len);
        let mut arrives = Incoming::new(link(0, 0), tag, len);
        let is_registered = matches!(there.bytes, Memory::Registered(..));
        until("nothing moves", || {
            a.arm();
            let may_sleep = !a.poll().unwrap();
            if may_sleep && there.offer(&mut *a).unwrap() == 0 && is_registered {
                until("what a sleeper has sent", || {
                    b.poll().unwrap();
                    arrives.take(&mut *b, |lent| lent).unwrap();
                    arrives.is_done().then_some(())
                });
            }
            a.disarm();
            may_sleep.then_some(())
        });
        carry(&mut *a, &mut *b, &mut there, &mut arrives);
    }
}

/// A parked rank is woken by the event that it waits for, also by one of its own device. One end
/// only sends and the other only receives, from and to registered memory.
pub(crate) fn woken_in_registered_memory(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    let mut random = Random::seeded();
    let lens: Vec<usize> = (0..120)
        .map(|at| match at % 4 {
            0 => 1 + random.below(100_000),
            1 => 2_500_000,
            _ => 100_000 + random.below(200_000),
        })
        .collect();
    let expected = lens.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (tag, len) in (0..).zip(lens) {
                let mut there = Outgoing::registered(&mut *a, link(1, 0), tag, len);
                parked("room", &mut *a, |a| {
                    while !there.is_done() && there.offer(a).unwrap() > 0 {}
                    there.is_done().then_some(())
                });
            }
            parked("flushed", &mut *a, |a| a.is_flushed().then_some(()));
        });
        for (tag, len) in (0..).zip(expected) {
            let mut arrives = Landing::registered(&mut *b, link(0, 0), tag, len);
            parked("data", &mut *b, |b| {
                let mut before = usize::MAX;
                while !arrives.is_done()
                    && std::mem::replace(&mut before, arrives.arrived) != arrives.arrived
                {
                    arrives.take(b, len).unwrap();
                }
                arrives.is_done().then_some(())
            });
            assert!(is_message(tag, 0, &arrives.bytes), "content of {tag}");
        }
    });
}

/// After a receiver's `withdraw` no sender can write to its memory any more.
pub(crate) fn withdrawn_memory_is_not_written(make: &Constructor) {
    for pause in [0, 0, 50, 200] {
        let (mut a, mut b) = pair(make, 1);
        // Enough messages for the sender to expect a ready-to-receive (RTR) for the next one.
        for tag in 10..18 {
            let mut there = Outgoing::registered(&mut *a, link(1, 0), tag, 262_144);
            let mut arrives = Landing::registered(&mut *b, link(0, 0), tag, 262_144);
            until("what comes before has arrived", || {
                arrives.take(&mut *b, usize::MAX).unwrap();
                b.poll().unwrap();
                a.poll().unwrap();
                if !there.is_done() {
                    there.offer(&mut *a).unwrap();
                }
                (there.is_done() && arrives.is_done()).then_some(())
            });
        }
        let mut there = Outgoing::registered(&mut *a, link(1, 0), 2, 3_000_000);
        let mut arrives = Landing::registered(&mut *b, link(0, 0), 2, 3_000_000);
        for _ in 0..20 {
            arrives.take(&mut *b, usize::MAX).unwrap();
            b.poll().unwrap();
            a.poll().unwrap();
        }
        there.offer(&mut *a).unwrap();
        a.poll().unwrap();
        std::thread::sleep(Duration::from_micros(pause));
        b.withdraw();
        if matches!(arrives.bytes, Memory::Registered(..)) {
            assert!(b.send(link(0, 0), 3, &[1]).is_err(), "nobody was invited, or still may write");
        }
        arrives.bytes.fill(0x5a);
        for _ in 0..2000 {
            if a.poll().is_err() || b.poll().is_err() || there.offer(&mut *a).is_err() {
                break;
            }
            if there.is_done() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(2));
        assert!(arrives.bytes.iter().all(|byte| *byte == 0x5a), "written after it was given up");
    }
}

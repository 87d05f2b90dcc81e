//! The effect of each layer; the conformance suite tests that a layer keeps the contract.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Lane, Rank};

use super::*;
use crate::contract::{Link, LinkFault, Received, Transport};
use crate::local::Local;

fn pair() -> (Box<dyn Transport>, Box<dyn Transport>) {
    let mut ends = Local::mesh(2).unwrap().into_iter().map(|end| Box::new(end) as _);
    (ends.next().unwrap(), ends.next().unwrap())
}

fn to(peer: u32) -> Link {
    Link { peer: Rank(peer), lane: Lane(0) }
}

/// The traffic that a watch has seen: its direction, tag and bytes, and the number that passed.
type Seen = Arc<Mutex<Vec<(bool, u32, Vec<u8>, usize)>>>;

#[derive(Debug)]
struct Recorder(Seen);

impl Watch for Recorder {
    fn begin(&mut self, (_, is_sent): (Link, bool), tag: u32, front: &[u8]) {
        self.0.lock().unwrap().push((is_sent, tag, front.to_vec(), 0));
    }

    fn pass(&mut self, (_, is_sent): (Link, bool), bytes: usize) {
        let mut seen = self.0.lock().unwrap();
        let last = seen.last_mut().unwrap();
        assert_eq!(last.0, is_sent);
        last.3 += bytes;
    }
}

#[test]
fn both_ends_see_the_bytes_that_pass() {
    let (zero, one) = pair();
    let [of_zero, of_one] = [Seen::default(), Seen::default()];
    let mut zero = Watched::new(zero, Recorder(Arc::clone(&of_zero)));
    let mut one = Watched::new(one, Recorder(Arc::clone(&of_one)));
    let bytes: Vec<u8> = (0..48).collect();
    assert_eq!(zero.send(to(1), 1, &bytes).unwrap(), 48);
    one.poll().unwrap();
    one.consume(to(0), 16);
    assert_eq!(one.recv(to(0), 1, &mut [0; 48]).unwrap(), Some(Received { tag: 1, bytes: 32 }));
    assert_eq!(*of_zero.lock().unwrap(), [(true, 1, bytes.clone(), 48)]);
    let received = [(false, 1, bytes.clone(), 16), (false, 1, bytes[16..].to_vec(), 32)];
    assert_eq!(*of_one.lock().unwrap(), received);
}

#[test]
fn throttle_keeps_its_rate_in_injected_time() {
    let (zero, mut one) = pair();
    let now = Arc::new(AtomicU64::new(0));
    let time = Arc::clone(&now);
    let clock = Box::new(move || Duration::from_millis(time.load(Ordering::Relaxed)));
    let rate = Rate { bytes_per_second: 1_000_000, burst_bytes: 0 };
    let mut zero = Throttle::with_clock(zero, rate, clock).unwrap();
    let data = vec![0; 10 * LINK_BYTES_MIN];
    let mut sent = zero.send(to(1), 1, &data).unwrap();
    assert_eq!(sent, LINK_BYTES_MIN, "the burst");
    for millisecond in 1..=100 {
        assert_eq!(zero.send(to(1), 1, &data[sent..]).unwrap(), 0, "no time has passed");
        now.store(millisecond, Ordering::Relaxed);
        sent += zero.send(to(1), 1, &data[sent..]).unwrap();
        one.poll().unwrap();
        let arrived = one.readable(to(0)).unwrap().map_or(0, |it| it.bytes.len());
        one.consume(to(0), arrived);
    }
    let expected = LINK_BYTES_MIN + 100 * 1000;
    assert!((expected - 16..=expected).contains(&sent), "{sent} bytes in 100 ms");
}

#[test]
fn a_cut_is_an_error_and_silence_is_not() {
    let (zero, mut one) = pair();
    let ends = vec![End { link: to(1), after_bytes: 64, how: How::Cut }];
    let mut zero = Fault::new(zero, Plan { ends, ..Plan::default() });
    for _ in 0..4 {
        assert_eq!(zero.send(to(1), 1, &[0; 16]).unwrap(), 16);
    }
    let error = zero.send(to(1), 1, &[0; 16]).unwrap_err();
    assert!(matches!(error.fault, LinkFault::Closed), "{error}");
    assert!(zero.readable(to(1)).is_err());
    one.poll().unwrap();
    assert!(one.readable(to(0)).unwrap().is_some(), "what went before arrives");

    let (zero, mut one) = pair();
    let mut zero = Fault::new(zero, Plan::default());
    zero.end(to(1), How::Silent);
    assert_eq!(zero.send(to(1), 1, &[0; 100_000]).unwrap(), LINK_BYTES_MIN);
    assert_eq!(zero.send(to(1), 1, &[0; 100]).unwrap(), 0);
    one.poll().unwrap();
    assert!(one.readable(to(0)).unwrap().is_none());
}

#[test]
fn the_same_plan_gives_the_same_faults() {
    let run = |seed| {
        let (zero, mut one) = pair();
        let plan = Plan { seed, hide_per_mille: 300, shorten_per_mille: 500, ends: Vec::new() };
        let mut zero = Fault::new(zero, plan);
        let mut accepted = Vec::new();
        for _ in 0..50 {
            accepted.push(zero.send(to(1), 1, &[0; 1000]).unwrap());
            one.poll().unwrap();
        }
        accepted
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!(run(3).contains(&0) && run(3).contains(&1000) && run(3).contains(&16));
}

//! Two ranks in two threads: both directions and several lanes at once, with random sizes, tags,
//! partial reads and parks. The test prints its seed.

use ringfold_harness::Random;
use ringfold_transport::{Link, Received, Transport};

use crate::parking::parked;
use crate::world::{Constructor, Incoming, Outgoing, byte_at, link, pair, until};

const LANES: usize = 3;
const MESSAGES: usize = 1500;
/// Longer messages may lie in registered memory.
const LEND_BYTES: usize = 10_000;

pub(crate) fn two_threads(make: &Constructor) {
    let (a, b) = pair(make, LANES);
    let mut random = Random::seeded();
    let plans: Vec<Plan> = (0..2 * LANES).map(|_| plan(&mut random)).collect();
    let (there, back) = plans.split_at(LANES);
    let (first, second) = (random.fork(), random.fork());
    let met = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| run(a, 1, there, back, first, &met));
        run(b, 0, back, there, second, &met);
    });
}

/// The messages of one direction of one lane: tag and length.
type Plan = Vec<(u32, usize)>;

fn plan(random: &mut Random) -> Plan {
    (0..MESSAGES)
        .map(|at| {
            let len = match random.below(20) {
                0 => 1 + random.below(150_000),
                1..5 => 1 + random.below(3000),
                _ => 1 + random.below(70),
            };
            // Neighbours differ in their tags, so no fragment may join them.
            (u32::try_from(at).unwrap() * 2 + u32::from(random.below(2) == 0), len)
        })
        .collect()
}

struct Stream<'a> {
    link: Link,
    out: Box<dyn Iterator<Item = &'a (u32, usize)> + 'a>,
    into: Box<dyn Iterator<Item = &'a (u32, usize)> + 'a>,
    sending: Option<Outgoing>,
    expecting: Option<Incoming>,
}

fn run(
    mut end: Box<dyn Transport>,
    peer: usize,
    out: &[Plan],
    into: &[Plan],
    mut random: Random,
    met: &std::sync::Barrier,
) {
    let mut streams: Vec<Stream<'_>> = out
        .iter()
        .zip(into)
        .enumerate()
        .map(|(lane, (out, into))| Stream {
            link: link(peer, lane),
            out: Box::new(out.iter()),
            into: Box::new(into.iter()),
            sending: None,
            expecting: None,
        })
        .collect();
    parked("the streams", &mut *end, |end| {
        // Only when nothing moves on any lane may the caller park.
        loop {
            let mut moved = false;
            for stream in &mut streams {
                moved |= stream.push(end, &mut random);
                moved |= stream.pull(end, &mut random);
            }
            if !moved {
                break;
            }
        }
        let done = |stream: &Stream<'_>| stream.sending.is_none() && stream.expecting.is_none();
        (streams.iter().all(done) && end.is_flushed()).then_some(())
    });
    until("nothing is left over", || {
        end.poll().unwrap();
        streams.iter().all(|s| end.readable(s.link).unwrap().is_none()).then_some(())
    });
    met.wait();
}

impl Stream<'_> {
    fn push(&mut self, end: &mut dyn Transport, random: &mut Random) -> bool {
        if self.sending.is_none() {
            self.sending = self.out.next().map(|&(tag, len)| {
                if len > LEND_BYTES && random.below(2) == 0 {
                    Outgoing::registered(end, self.link, tag, len)
                } else {
                    Outgoing::new(self.link, tag, len)
                }
            });
        }
        let Some(sending) = &mut self.sending else { return false };
        let accepted = sending.offer(end).unwrap();
        if sending.is_done() {
            self.sending = None;
        }
        accepted > 0
    }

    fn pull(&mut self, end: &mut dyn Transport, random: &mut Random) -> bool {
        if self.expecting.is_none() {
            self.expecting = self.into.next().map(|&(tag, len)| Incoming::new(self.link, tag, len));
        }
        let Some(expecting) = &mut self.expecting else { return false };
        let taken = if random.below(2) == 0 {
            expecting.take(end, |lent| 1 + random.below(lent)).unwrap()
        } else {
            receive(expecting, end)
        };
        if expecting.is_done() {
            self.expecting = None;
        }
        taken > 0
    }
}

/// As `Incoming::take`, by `recv`.
fn receive(expecting: &mut Incoming, end: &mut dyn Transport) -> usize {
    let mut dst = [0; 5000];
    let room = dst.len().min(expecting.len - expecting.arrived);
    match end.recv(expecting.link, expecting.tag, &mut dst[..room]).unwrap() {
        None => 0,
        Some(Received { tag, bytes }) => {
            assert_eq!(tag, expecting.tag);
            for (at, byte) in dst[..bytes].iter().enumerate() {
                assert_eq!(*byte, byte_at(tag, expecting.arrived + at));
            }
            expecting.arrived += bytes;
            bytes
        }
    }
}

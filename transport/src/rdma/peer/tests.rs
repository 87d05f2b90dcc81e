//! Two ranks that talk without a device between them: data by TCP, and false messages.

use std::sync::Arc;
use std::time::Instant;

use ringfold_harness::Random;
use ringfold_types::Rank;
use ringfold_types::limits::{LANES_MAX, LINK_BYTES_MIN, PATHS_MAX, RAILS_MAX};

use super::cable::Cable;
use super::{Fault, Own, Peer};
use crate::rdma::budget::Budget;
use crate::rdma::card::RailCard;
use crate::rdma::message::{Arrivals, Grant, Message, TcpFragment};
use crate::rdma::path::{Arrived, Path};
use crate::rdma::path_label::PathLabel;
use crate::rdma::rail::Rails;
use crate::rdma::registry::Registry;
use crate::rdma::ring::layout::Immediate;
use crate::rdma::settings::Settings;
use crate::rdma::sys::{GidKind, Target};

const LANES: usize = 2;

/// Returns one of the values that false messages try.
fn long(random: &mut Random) -> u64 {
    let any = random.bits();
    random.pick(&[0, 1, 2, 63, 64, 65, 127, 128, 1 << 19, 1 << 40, u64::MAX, any])
}

fn word(random: &mut Random) -> u32 {
    u32::try_from(long(random) & 0xffff_ffff).unwrap()
}

/// One rank, and its view of the other.
struct End {
    peer: Peer,
    rank: Rank,
    settings: Settings,
    rails: Rails,
    budget: Budget,
    registry: Registry,
}

impl End {
    fn new(rank: usize, may_use_tcp: bool) -> Self {
        let peer = Peer::new(Rank::at(1 - rank), LANES, may_use_tcp);
        let (settings, rails) = (Settings::default(), Rails::none());
        let budget = Budget::new(Arc::default(), &settings, LANES);
        let registry = Registry::new(Arc::default(), None);
        Self { peer, rank: Rank::at(rank), settings, rails, budget, registry }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Peer, &mut Own<'_>) -> T) -> T {
        let Self { peer, rank, settings, rails, budget, registry } = self;
        let mut own = Own { rank: *rank, lanes: LANES, settings, rails, budget, registry };
        let result = act(peer, &mut own);
        peer.report_arrivals(&own);
        result
    }

    fn handle(&mut self, message: Message) -> Result<(), Fault> {
        self.with(|peer, own| peer.handle(message, own))
    }

    /// Delivers all queued messages. Returns whether there were any.
    fn deliver(&mut self, to: &mut Self) -> bool {
        let mut any = false;
        while let Some(message) = self.peer.next_message() {
            if let Message::TcpFragment(fragment) = message {
                to.peer.store(fragment, 0, self.peer.image(fragment, 0)).unwrap();
            }
            to.handle(message).unwrap();
            any = true;
        }
        any
    }
}

/// Two ends that have no rail in common.
fn ends(may_use_tcp: bool) -> [End; 2] {
    let [mut one, mut other] = [End::new(0, may_use_tcp), End::new(1, may_use_tcp)];
    one.with(|peer, own| peer.greet(own));
    while one.deliver(&mut other) | other.deliver(&mut one) {}
    [one, other]
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0]
}

/// Fragments and credit arrive whole and in order, however little is consumed at a time.
#[test]
fn without_a_path_everything_goes_by_tcp() {
    const BYTES: usize = 3_000_000;
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let [mut one, mut other] = ends(true);
        let (mut sent, mut arrived) = (0, 0);
        while arrived < BYTES {
            if sent < BYTES {
                let wanted = 1 + random.below(100_000).min(BYTES - sent - 1);
                let bytes: Vec<u8> = (sent..sent + wanted).map(byte).collect();
                one.peer.want(1);
                sent += one.with(|peer, own| peer.send(1, 7, &bytes, true, own)).unwrap();
            }
            one.peer.flush();
            other.peer.flush();
            one.deliver(&mut other);
            other.deliver(&mut one);
            while let Some(front) = other.peer.readable(1).unwrap() {
                let length = 1 + random.below(front.bytes.len());
                let is_right = |(at, it): (usize, &u8)| *it == byte(arrived + at);
                assert!(front.bytes[..length].iter().enumerate().all(is_right), "{seed}");
                other.peer.consume(1, length);
                arrived += length;
                if random.below(3) == 0 {
                    break;
                }
            }
        }
        assert_eq!((sent, arrived), (BYTES, BYTES));
        one.peer.part();
        one.deliver(&mut other);
        other.peer.leave();
        assert_eq!(other.peer.readable(1), Err(Fault::Closed), "all has arrived");
    }
}

#[test]
fn a_link_without_tcp_is_unreachable() {
    let [one, other] = ends(false);
    for end in [one, other] {
        assert!(matches!(end.peer.fault(), Some(Fault::Unreachable(_))), "{:?}", end.peer.fault());
    }
}

/// A rank waits for a peer that promised more than came, but not for ever.
#[test]
fn promises_are_not_waited_for_without_end() {
    let [mut one, mut other] = ends(true);
    one.peer.want(0);
    while one.deliver(&mut other) | other.deliver(&mut one) {}
    let mut fragments = [0; LANES_MAX];
    fragments[0] = 3;
    other.handle(Message::Bye { fragments }).unwrap();
    other.peer.leave();
    assert_eq!(other.peer.readable(0), Ok(None));
    assert_eq!(other.peer.readable(1), Err(Fault::Closed), "nothing was promised there");
    let patience = other.peer.deadline().expect("it wakes who is parked");
    std::thread::sleep(patience.saturating_duration_since(Instant::now()));
    assert_eq!(other.peer.readable(0), Err(Fault::Closed));
}

/// A peer that has said goodbye wants none of the held bytes, and its later messages are ignored.
#[test]
fn nothing_is_held_for_a_peer_that_says_goodbye() {
    let [mut one, mut other] = ends(true);
    one.peer.want(0);
    other.peer.want(0);
    while one.deliver(&mut other) | other.deliver(&mut one) {}
    one.with(|peer, own| peer.send(0, 1, &[5; 3 << 20], true, own)).unwrap();
    other.with(|peer, own| peer.send(0, 1, &[5; 3 << 20], true, own)).unwrap();
    other.deliver(&mut one);
    one.peer.fallback.end();
    while let Some(front) = one.peer.readable(0).unwrap() {
        let bytes = front.bytes.len();
        one.peer.consume(0, bytes);
    }
    assert!(!one.peer.is_flushed() && one.peer.owes());
    one.handle(Message::Bye { fragments: [0; LANES_MAX] }).unwrap_err();
    let fragments = std::array::from_fn(|lane| if lane == 0 { 64 } else { 0 });
    one.handle(Message::Bye { fragments }).unwrap();
    assert!(one.peer.is_flushed() && !one.peer.owes());
    one.handle(Message::Arrivals { path: 0, lanes: [Arrivals::default(); LANES_MAX] }).unwrap();
}

#[test]
fn false_messages_are_refused() {
    let rail = RailCard { gid: [7; 16], mtu: 5, kind: GidKind::RoceV2, ..RailCard::default() };
    let grant = Grant { address: 0, keys: [0; RAILS_MAX] };
    let fragment = |lane| TcpFragment { lane, sequence: 9, lines: 0, at: 0, bytes: 16 };
    let mut more = [0; LANES_MAX];
    more[0] = 65;
    for message in [
        Message::Rails { rails: vec![], queue_pairs: 1 },
        Message::Offer {
            path: 0,
            target: Target::default(),
            gigabits: 100,
            rail,
            path_label: PathLabel::default(),
        },
        Message::Ready { path: 0 },
        Message::PathDown { path: PATHS_MAX - 1, returns: true },
        Message::Arrivals { path: 0, lanes: [Arrivals::default(); LANES_MAX] },
        Message::WantRing { lane: 0, mailbox: Grant::default() },
        Message::WantRing { lane: LANES, mailbox: Grant::default() },
        Message::GrantRing { lane: 0, grant },
        Message::GrantRing { lane: LANES, grant },
        Message::TcpFragment(fragment(0)),
        Message::TcpFragment(fragment(1)),
        Message::Credit { lane: 0, total: 1 },
        Message::Credit { lane: 0, total: u64::MAX },
        Message::Credit { lane: 1, total: 0 },
        Message::Bye { fragments: more },
        Message::Bye { fragments: [1; LANES_MAX] },
        Message::Bye { fragments: [u64::MAX; LANES_MAX] },
    ] {
        let [mut one, mut other] = ends(true);
        one.peer.want(0);
        other.peer.want(0);
        while one.deliver(&mut other) | other.deliver(&mut one) {}
        assert!(matches!(one.handle(message.clone()), Err(Fault::Protocol(_))), "{message:?}");
    }
}

/// No message does more harm than to end the link, in whatever order.
#[test]
fn false_messages_do_no_harm() {
    let mut ended = 0;
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let [mut one, mut other] = ends(true);
        one.peer.want(0);
        other.peer.want(0);
        while one.deliver(&mut other) | other.deliver(&mut one) {}
        let theirs =
            RailCard { gid: [7; 16], mtu: 5, kind: GidKind::RoceV2, ..RailCard::default() };
        for path in 0..2 {
            let cable = Cable::new(0, "none".to_owned(), false, theirs, path == 1);
            let cable = one.peer.routes.add_cable(cable);
            one.peer.routes.add_path(Path::new(Rank(1), path, cable));
        }
        one.with(|peer, own| peer.send(0, 1, &[5; LINK_BYTES_MIN], true, own)).unwrap();
        for _ in 0..20 {
            let (path, lane) = (random.below(3), random.below(LANES + 1));
            let mut lanes = [Arrivals::default(); LANES_MAX];
            lanes.fill_with(|| Arrivals { next: long(&mut random), early: random.bits() });
            let grant = Grant { address: long(&mut random), keys: [word(&mut random); RAILS_MAX] };
            let message = match random.below(10) {
                0 => Message::Rails { rails: vec![theirs], queue_pairs: 1 },
                1 => {
                    let target = Target { number: word(&mut random), ..Target::default() };
                    let (gigabits, path_label) = (word(&mut random), PathLabel::default());
                    Message::Offer { path, target, gigabits, rail: theirs, path_label }
                }
                2 => Message::Ready { path },
                3 => Message::PathDown { path, returns: random.below(2) == 0 },
                4 => Message::Arrivals { path, lanes },
                5 => Message::WantRing { lane, mailbox: grant },
                6 => Message::GrantRing { lane, grant },
                7 => {
                    let sequence = long(&mut random).to_le_bytes()[0];
                    let fragment =
                        TcpFragment { lane, sequence, lines: word(&mut random), at: 0, bytes: 100 };
                    if one.peer.store(fragment, 0, &[1; 100]).is_err() {
                        break;
                    }
                    Message::TcpFragment(fragment)
                }
                8 => Message::Credit { lane, total: long(&mut random) },
                _ => Message::Bye { fragments: [long(&mut random); LANES_MAX] },
            };
            if let Err(fault) = one.handle(message) {
                one.peer.end(fault);
                ended += 1;
                break;
            }
            one.with(|peer, own| peer.expire(Instant::now(), own));
            one.peer.flush();
            let number = word(&mut random);
            one.peer.arrive(path, 0, Arrived::Immediate(number)).ok();
            // The message arrives as if that path were connected.
            let taken = one.peer.lanes.take(Immediate::decode(number));
            taken.map_or_else(|fault| one.peer.end(fault), |_| ());
            one.peer.arrive(path, 0, Arrived::Message { slot: number, bytes: 4 }).ok();
            one.peer.done(path, 0, word(&mut random), random.below(2) == 0);
            one.peer.established(path, 0);
            one.peer.route_resolved(path, 0);
            one.peer.flushed(path, 0, true);
            if let Ok(Some(front)) = one.peer.readable(0) {
                let bytes = front.bytes.len();
                one.peer.consume(0, bytes);
            }
            while one.peer.next_message().is_some() {}
        }
        one.peer.deadline();
        one.peer.is_settled();
    }
    assert!(ended > 1000, "{ended}");
}

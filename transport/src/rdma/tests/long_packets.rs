//! Paths on which short packets pass and long ones are lost, as behind a switch of a smaller MTU.

use std::time::{Duration, Instant};

use super::long::pattern;
use super::{DEADLINE, Settings, TAG, World, fake_test, roce};
use crate::contract::{LinkFault, Transport as _};
use crate::rdma::sys::fake::Hook;

/// The longest packets that pass, less than the MTU.
const SHORT: u32 = 1024;
/// A length that all packets have.
const ANY: u32 = 4096;

/// Devices that give up soon, so paths fail often.
fn hasty() -> Settings {
    Settings { timeout: 14, retries: 3, ..Settings::default() }
}

fn world(rails: usize, may_use_tcp: bool) -> World {
    let ports = [0, 1].map(|host| [roce(host, 0), roce(host, 1)]);
    World::new([&ports[0][..rails], &ports[1][..rails]], &hasty(), may_use_tcp)
}

impl World {
    /// Loses packets that are longer on a rail, in both directions.
    fn lose_longer(&self, rail: usize, than: u32) {
        self.devices.iter().for_each(|devices| devices[rail].hook(Hook::LoseLonger(than)));
    }

    fn carries(&self, rail: usize) -> bool {
        self.ends.iter().any(|end| end.carries(rail))
    }

    /// Streams checked messages for a while. Returns how often a rail begins to carry data.
    /// `changed` is told when it begins and ends.
    fn stream(&mut self, rail: usize, time: Duration, changed: impl Fn(&Self, bool)) -> usize {
        let (bytes, end, mut begun) = (pattern(1 << 20), Instant::now() + time, 0);
        let mut found = vec![0; bytes.len()];
        let mut was_carrying = self.carries(rail);
        while Instant::now() < end {
            let (mut gone, mut here) = (0, 0);
            found.fill(0);
            self.until("a message arrives", |world| {
                gone += world.ends[0].send(Self::link(0), TAG, &bytes[gone..]).unwrap();
                let some = world.ends[1].recv(Self::link(1), TAG, &mut found[here..]).unwrap();
                here += some.map_or(0, |some| some.bytes);
                let carries = world.carries(rail);
                if carries != was_carrying {
                    begun += usize::from(carries);
                    changed(world, carries);
                }
                was_carrying = carries;
                here == bytes.len()
            });
            assert!(found == bytes, "other bytes arrived");
        }
        begun
    }
}

fake_test! {
    /// A path that was never proven stalls nothing. A proven one stalls until its device gives up.
    fn a_rail_that_loses_long_packets_is_left_to_the_other() {
        for is_late in [false, true] {
            let mut world = world(2, false);
            if is_late {
                world.meet();
                world.until("both rails", |world| (0..2).all(|rail| world.carries(rail)));
            }
            world.lose_longer(1, SHORT);
            world.meet();
            let begun = world.stream(1, Duration::from_secs(6), |_, _| ());
            assert_eq!(begun, 0, "the rail carried data again, and so stalled the call");
            world.lose_longer(1, ANY);
            world.until("it carries data again", |world| world.carries(1));
            world.stream(1, Duration::from_millis(200), |_, _| ());
        }
    }
}

fake_test! {
    fn the_only_rail_that_loses_long_packets_is_left_to_tcp() {
        for is_late in [false, true] {
            let mut world = world(1, true);
            if is_late {
                world.meet();
            }
            world.lose_longer(0, SHORT);
            let begun = world.stream(0, Duration::from_secs(6), |_, _| ());
            assert_eq!(begun, 0, "the rail carried data again, and so stalled the call");
            assert!(world.ends.iter().all(|end| end.by_tcp() == 1));
            world.lose_longer(0, ANY);
            world.until("by rdma", |world| world.ends.iter().all(|end| end.by_tcp() == 0));
            world.stream(0, Duration::from_millis(200), |_, _| ());
        }
    }
}

fake_test! {
    /// Each proof passes, and then long packets are lost. The pauses grow all the same.
    fn a_rail_that_passes_every_proof_and_fails_is_tried_ever_more_rarely() {
        for (rails, may_use_tcp) in [(2, false), (1, true)] {
            let mut world = world(rails, may_use_tcp);
            world.meet();
            let rail = rails - 1;
            world.until("the rail", |world| world.ends.iter().all(|end| end.carries(rail)));
            world.lose_longer(rail, SHORT);
            let begun = world.stream(rail, Duration::from_secs(7), |world, carries| {
                world.lose_longer(rail, if carries { SHORT } else { ANY });
            });
            assert!((1..=3).contains(&begun), "{begun} attempts in 7 s");
        }
    }
}

fake_test! {
    fn without_another_way_the_error_names_the_packets_and_both_ports() {
        let mut world = world(1, false);
        world.lose_longer(0, SHORT);
        world.offer(b"short");
        let until = Instant::now() + DEADLINE;
        let mut polls = (0..).take_while(|_| Instant::now() < until);
        let error = polls.find_map(|at: usize| world.ends[at % 2].poll().err()).unwrap();
        let (LinkFault::Io(why) | LinkFault::Unreachable(why)) = &error.fault else {
            panic!("{error:?}")
        };
        let (why, theirs) = (why.to_string(), error.link.peer.index());
        let ours = 1 - theirs;
        let ports = format!("fake0_h{ours}r0:1 and rank {theirs} (fake0_h{theirs}r0:1, ");
        for part in [
            &format!("packets of 4096 bytes do not pass between {ports}")[..],
            "check the MTU of the switches",
            "RINGFOLD_TRANSPORT leaves no other way",
        ] {
            assert!(why.contains(part), "{why}");
        }
    }
}

//! Faults of paths, one after another, in random order. Bytes arrive right and soon, and no device
//! that works is given up.

use std::time::{Duration, Instant};

use ringfold_harness::Random;

use super::{DEADLINE, Settings, TAG, World, fake_test, roce, seed};
use crate::contract::{RegisteredMemory as _, Transport as _};
use crate::rdma::diagnostics;
use crate::rdma::sys::Pages;
use crate::rdma::sys::fake::{Device, Hook, placement};

/// Devices that give up soon.
const TIMEOUT: u8 = 13;
const RETRIES: u8 = 1;
/// The status of work whose retries are exhausted.
const EXHAUSTED: i32 = 12;
/// Bytes in a millisecond, by a healthy port and by one that has trained down.
const PACES: [u32; 2] = [400_000, 50_000];
/// Faults that the ranks of one world meet.
const FAULTS_EACH: u32 = 5;
/// The longest time before a path that has failed is made again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest message in bytes.
const LONGEST: usize = 1 << 20;
/// The time that a turn of both ranks may count. A turn takes longer where the machine has other
/// work, which is no stall.
const TURN: Duration = Duration::from_millis(2);
/// The time without progress that is no stall.
const MOMENT: Duration = Duration::from_millis(10);

/// Messages from one rank to the other, in ordinary memory and in registered memory.
struct Flow {
    from: usize,
    random: Random,
    pages: [Pages; 2],
    memory: [Vec<u8>; 2],
    /// Whether the memory is registered, at the sender and at the receiver.
    registered: [bool; 2],
    bytes: usize,
    gone: usize,
    here: usize,
    carried: usize,
}

impl Flow {
    fn new(world: &mut World, from: usize, seed: u64) -> Self {
        let pages = [from, 1 - from].map(|rank| world.ends[rank].pages(LONGEST).unwrap());
        let memory = [0, 1].map(|_| vec![0; LONGEST]);
        let random = Random::new(seed);
        let (registered, bytes) = ([false; 2], 0);
        let mut it =
            Self { from, random, pages, memory, registered, bytes, gone: 0, here: 0, carried: 0 };
        it.begin();
        it
    }

    fn side(&mut self, side: usize) -> &mut [u8] {
        if self.registered[side] {
            self.pages[side].front_mut(self.bytes)
        } else {
            &mut self.memory[side][..self.bytes]
        }
    }

    /// Begins another message, of other bytes.
    fn begin(&mut self) {
        (self.gone, self.here) = (0, 0);
        let most = LONGEST >> self.random.below(16);
        self.bytes = 1 + self.random.below(most);
        self.registered = [0, 1].map(|_| self.random.below(2) == 1);
        let first = self.random.below(251);
        for (at, byte) in self.side(0).iter_mut().enumerate() {
            *byte = u8::try_from((first + at) % 251).unwrap();
        }
        self.side(1).fill(255);
    }

    /// Sends and receives on. Returns whether anything has moved.
    fn step(&mut self, world: &mut World) -> bool {
        let (from, gone, here) = (self.from, self.gone, self.here);
        if gone < self.bytes {
            let rest = &self.side(0)[gone..];
            self.gone += world.ends[from].send(World::link(from), TAG, rest).unwrap();
        }
        if here < self.bytes {
            let room = &mut self.side(1)[here..];
            let some = world.ends[1 - from].recv(World::link(1 - from), TAG, room).unwrap();
            self.here += some.map_or(0, |some| some.bytes);
        }
        let has_moved = (self.gone, self.here) != (gone, here);
        if (self.gone, self.here) == (self.bytes, self.bytes) {
            let sent = self.side(0).to_vec();
            assert!(self.side(1) == sent, "other bytes arrived");
            self.carried += self.bytes;
            self.begin();
        }
        has_moved
    }
}

/// Faults of a path. Each begins, lasts, and ends.
#[derive(Clone, Copy, Debug)]
enum Fault {
    LongPackets,
    Flap,
    LateFlush,
    RefusedReady,
    RefusedError,
    TrainedDown,
    LostReplies,
    Held,
}

impl Fault {
    const ALL: [Self; 8] = [
        Self::LongPackets,
        Self::Flap,
        Self::LateFlush,
        Self::RefusedReady,
        Self::RefusedError,
        Self::TrainedDown,
        Self::LostReplies,
        Self::Held,
    ];

    fn set(self, device: Device, is_there: bool, silence: Duration) {
        match self {
            Self::LongPackets => device.hook(Hook::LoseLonger(if is_there { 1024 } else { 0 })),
            Self::Flap => device.port(!is_there),
            Self::LateFlush => {
                device.hook(Hook::Flush(if is_there { silence / 2 } else { Duration::ZERO }));
            }
            Self::RefusedReady => device.hook(Hook::RefuseReady(is_there)),
            Self::RefusedError => device.hook(Hook::RefuseError(is_there)),
            Self::TrainedDown => {
                device.train(if is_there { 25 } else { 200 });
                device.hook(Hook::Pace(Some(PACES[usize::from(is_there)])));
            }
            Self::LostReplies => device.hook(Hook::LoseReplies(is_there)),
            Self::Held if is_there => device.hook(Hook::Hold),
            Self::Held => drop(device.release()),
        }
        let breaks = matches!(self, Self::LateFlush | Self::RefusedReady | Self::RefusedError);
        if breaks && is_there {
            device.break_queue_pairs(EXHAUSTED);
        }
    }

    /// The time that the fault lasts. A path whose long packets are lost is made again meanwhile.
    fn lasts(self, random: &mut Random, silence: Duration) -> Duration {
        match self {
            Self::LongPackets => Duration::from_millis(2500),
            _ => (3 * silence).mul_f64(random.below(1000) as f64 / 1000.0),
        }
    }
}

/// Two ranks, and their messages in both directions.
struct Job {
    world: World,
    flows: [Flow; 2],
}

impl Job {
    /// Lets messages pass for that time. Returns the time in which a direction stood still, but for
    /// moments.
    fn pass(&mut self, time: Duration) -> Duration {
        let (end, mut stalls) = (Instant::now() + time, [Duration::ZERO; 2]);
        let (mut quiet, mut turn) = (stalls, Instant::now());
        while Instant::now() < end {
            let moved = self.step();
            let took = std::mem::replace(&mut turn, Instant::now()).elapsed().min(TURN);
            for ((quiet, stall), moved) in quiet.iter_mut().zip(&mut stalls).zip(moved) {
                if moved && *quiet > MOMENT {
                    *stall += *quiet;
                }
                *quiet = if moved { Duration::ZERO } else { *quiet + took };
            }
        }
        stalls.into_iter().zip(quiet).map(|(stall, quiet)| stall + quiet).max().unwrap()
    }

    /// Returns whether each direction has moved.
    fn step(&mut self) -> [bool; 2] {
        let moved = self.flows.each_mut().map(|flow| flow.step(&mut self.world));
        self.world.poll();
        moved
    }

    fn carries(&self, rail: usize) -> bool {
        self.world.ends.iter().all(|end| end.carries(rail))
    }
}

/// Lets ranks meet so many faults. The bound of their stalls is tight only where no other work
/// holds the ranks up.
fn faults(count: u32, is_alone: bool) {
    let settings = Settings { timeout: TIMEOUT, retries: RETRIES, ..Settings::default() };
    let silence = diagnostics::silence(TIMEOUT, RETRIES);
    let (seed, mut carried, mut longest) = (seed(), 0, Duration::ZERO);
    let mut random = Random::new(seed.get());
    for first in (0..count).step_by(FAULTS_EACH as usize) {
        let rails = 2 + random.below(3);
        let ports = [0, 1].map(|host| Vec::from_iter((0..4).map(|rail| roce(host, rail))));
        let ports = [&ports[0][..rails], &ports[1][..rails]];
        let mut world = World::placing(ports, &settings, true, Some(placement()));
        world.meet();
        for device in world.devices.iter().flatten() {
            device.hook(Hook::Pace(Some(PACES[0])));
        }
        let flows = [0, 1].map(|from| Flow::new(&mut world, from, random.bits()));
        let mut job = Job { world, flows };
        job.pass(silence);
        let mut was_faulty = vec![false; rails];
        for at in first..count.min(first + FAULTS_EACH) {
            let (host, rail) = (random.below(2), random.below(rails));
            let fault = Fault::ALL[random.below(Fault::ALL.len())];
            was_faulty[rail] = true;
            let device = job.world.devices[host][rail];
            fault.set(device, true, silence);
            let mut stalled = job.pass(fault.lasts(&mut random, silence));
            fault.set(device, false, silence);
            stalled += job.pass(silence);
            let what = format!("fault {at}, {fault:?} of rail {rail} of {rails} at host {host}");
            println!("{what}: {stalled:?}");
            longest = longest.max(stalled);
            let bound = if is_alone { 2 * silence } else { 20 * silence };
            assert!(stalled <= bound, "{what}: nothing moved for {stalled:?} in all");
            for rail in (0..rails).filter(|rail| !was_faulty[*rail]) {
                assert!(job.carries(rail), "{what}: rail {rail} was given up");
            }
        }
        let deadline = Instant::now() + LONGEST_PAUSE + DEADLINE;
        while !(0..rails).all(|rail| job.carries(rail)) {
            assert!(Instant::now() < deadline, "a rail that works was given up");
            job.step();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(job.world.ends.iter().all(|end| end.by_tcp() == 0));
        carried += job.flows.iter().map(|flow| flow.carried).sum::<usize>();
    }
    let silence = silence.as_millis();
    println!(
        "{count} faults by seed {seed}, {carried} right bytes, devices that try for {silence} ms"
    );
    println!("the longest stall of a fault in all: {} ms", longest.as_millis());
}

fake_test! {
    fn thirty_faults_of_paths_cost_no_byte_and_no_device() {
        faults(30, false);
    }
}

fake_test! {
    #[ignore = "minutes: see tests/long"]
    fn a_thousand_faults_of_paths_cost_no_byte_and_no_device() {
        faults(1000, true);
    }
}

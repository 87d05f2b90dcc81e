//! Started calls under random interleavings: the caller, the helper and a thread that waits, on
//! each of several ranks, over links with random windows and delays. The engines, slots and helpers
//! are the real ones. A rank may die, or abort.
//!
//! A failure prints its seed. With that as the seed of the test, its interleaving is the first.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake};
use std::thread;
use std::time::Duration;

use ringfold_bootstrap::Aborter;
use ringfold_harness::Random;
use ringfold_harness::random::seed;
use ringfold_topology::Occupancy;
use ringfold_transport::{Fragment, Link, LinkError, LinkFault, Transport, Waker};
use ringfold_types::limits::{FRAGMENT_ALIGN, LANES_MAX, LINK_BYTES_MIN};
use ringfold_types::{Call, Collective, DataType, Lane, Rank, ReduceOp, Wire};

use super::{Failed, Request, Started, progress};
use crate::communicator::Communicator;
use crate::config::Config;
use crate::error::Error;
use crate::interleave::{self, Act};
use crate::setup::ThreadGroups;

/// Seeds of the ordinary test.
const SEEDS: usize = 10_000;

/// Bytes between two ranks.
enum Parcel {
    Bytes(u32, Vec<u8>),
    /// The receiver has consumed this many.
    Credit(usize),
}

/// The bytes and tags of one link that have arrived.
type Inbox = VecDeque<(u32, Vec<u8>)>;

/// All links.
struct Net {
    size: usize,
    window: usize,
    /// By sender, receiver and lane: parcels that have not arrived. Credit travels like bytes.
    under_way: Vec<VecDeque<Parcel>>,
    /// By receiver, sender and lane: parcels that have arrived since its last poll.
    inboxes: Vec<Vec<Inbox>>,
    /// By sender, receiver and lane: bytes that were accepted and not consumed.
    used: Vec<usize>,
    armed: Vec<bool>,
    wakers: Vec<Arc<Waker>>,
    dead: Option<usize>,
    random: Random,
}

impl Net {
    fn at(&self, from: usize, to: usize, lane: Lane) -> usize {
        (from * self.size + to) * LANES_MAX + lane.index()
    }

    fn wake(&self, rank: usize) {
        if self.armed[rank] {
            self.wakers[rank].wake();
            interleave::changed(rank);
        }
    }

    /// Delivers one parcel of any link.
    fn deliver(&mut self) {
        let all: Vec<_> =
            (0..self.under_way.len()).filter(|at| !self.under_way[*at].is_empty()).collect();
        if all.is_empty() {
            return;
        }
        let at = self.random.pick(&all);
        let (pair, lane) = (at / LANES_MAX, at % LANES_MAX);
        let (from, to) = (pair / self.size, pair % self.size);
        match self.under_way[at].pop_front().unwrap() {
            Parcel::Bytes(tag, bytes) => {
                self.inboxes[to][from * LANES_MAX + lane].push_back((tag, bytes));
            }
            Parcel::Credit(bytes) => {
                let back = (to * self.size + from) * LANES_MAX + lane;
                self.used[back] -= bytes;
            }
        }
        self.wake(to);
    }

    fn kill(&mut self, rank: usize) {
        self.dead = Some(rank);
        (0..self.size).for_each(|rank| self.wake(rank));
    }
}

/// The end of one rank.
struct End {
    net: Arc<Mutex<Net>>,
    waker: Arc<Waker>,
    rank: usize,
    arrived: Vec<VecDeque<(u32, Vec<u8>, usize)>>,
    is_dead: Vec<bool>,
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("End")
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl End {
    fn died(&self, link: Link) -> LinkError {
        LinkError { link, transport: self.name(), fault: LinkFault::Died }
    }
}

impl Transport for End {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        interleave::point();
        let mut net = locked(&self.net);
        if net.dead.is_some_and(|dead| dead == self.rank || dead == link.peer.index()) {
            return Err(self.died(link));
        }
        let at = net.at(self.rank, link.peer.index(), link.lane);
        let room = net.window - net.used[at];
        let most = if net.random.chance(70) { room } else { net.random.below(room + 1) };
        // A link accepts the least window as a whole.
        let most = most.max(LINK_BYTES_MIN.saturating_sub(net.used[at]));
        let accepted = match bytes.len().min(most) {
            all if all == bytes.len() => all,
            part => part - part % FRAGMENT_ALIGN,
        };
        if accepted > 0 {
            net.used[at] += accepted;
            net.under_way[at].push_back(Parcel::Bytes(tag, bytes[..accepted].to_vec()));
            interleave::changed(net.size);
        }
        Ok(accepted)
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        match self.arrived[link.peer.index() * LANES_MAX + link.lane.index()].front() {
            Some((tag, bytes, consumed)) => {
                Ok(Some(Fragment { tag: *tag, bytes: &bytes[*consumed..] }))
            }
            None if self.is_dead[link.peer.index()] => Err(self.died(link)),
            None => Ok(None),
        }
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let queue = &mut self.arrived[link.peer.index() * LANES_MAX + link.lane.index()];
        let front = queue.front_mut().unwrap();
        front.2 += bytes;
        if front.2 == front.1.len() {
            queue.pop_front();
        }
        let mut net = locked(&self.net);
        let back = net.at(self.rank, link.peer.index(), link.lane);
        net.under_way[back].push_back(Parcel::Credit(bytes));
        interleave::changed(net.size);
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        interleave::point();
        let mut net = locked(&self.net);
        let mut has_moved = false;
        let inbox = &mut net.inboxes[self.rank];
        for (arrived, new) in self.arrived.iter_mut().zip(inbox) {
            has_moved |= !new.is_empty();
            arrived.extend(new.drain(..).map(|(tag, bytes)| (tag, bytes, 0)));
        }
        if let Some(dead) = net.dead {
            for peer in 0..net.size {
                let is_dead = peer == dead || self.rank == dead;
                has_moved |= is_dead && !std::mem::replace(&mut self.is_dead[peer], is_dead);
            }
        }
        Ok(has_moved)
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    fn arm(&mut self) {
        locked(&self.net).armed[self.rank] = true;
        interleave::point();
    }

    fn disarm(&mut self) {
        interleave::point();
        let mut net = locked(&self.net);
        net.armed[self.rank] = false;
        self.waker.clear();
    }
}

/// The ends of a mesh with random windows.
fn mesh(size: usize, random: &mut Random) -> (Arc<Mutex<Net>>, Vec<Box<dyn Transport>>) {
    let links = size * size * LANES_MAX;
    let net = Net {
        size,
        window: random.between(1, 4) * LINK_BYTES_MIN,
        under_way: (0..links).map(|_| VecDeque::new()).collect(),
        inboxes: (0..size)
            .map(|_| (0..size * LANES_MAX).map(|_| VecDeque::new()).collect())
            .collect(),
        used: vec![0; links],
        armed: vec![false; size],
        wakers: (0..size).map(|_| Arc::new(Waker::new().unwrap())).collect(),
        dead: None,
        random: random.fork(),
    };
    let wakers = net.wakers.clone();
    let net = Arc::new(Mutex::new(net));
    let end = |(rank, waker)| {
        let end = End {
            net: Arc::clone(&net),
            waker,
            rank,
            arrived: (0..size * LANES_MAX).map(|_| VecDeque::new()).collect(),
            is_dead: vec![false; size],
        };
        Box::new(end) as Box<dyn Transport>
    };
    let ends = wakers.into_iter().enumerate().map(end).collect();
    (net, ends)
}

/// A call that all ranks make. A message is between two of them.
#[derive(Clone, Copy, Debug)]
enum Op {
    AllReduce {
        len: usize,
    },
    Broadcast {
        len: usize,
        root: usize,
    },
    Gather {
        len: usize,
    },
    Barrier,
    Message {
        from: usize,
        to: usize,
        len: usize,
    },
    /// An all-reduce, and a message to a rank that begins it only after the message. The sender
    /// starts it before.
    Crossed {
        from: usize,
        to: usize,
        len: usize,
    },
}

fn any_op(size: usize, random: &mut Random) -> Op {
    // Several windows, or less than one.
    let len = if random.chance(30) { random.below(40_000) } else { random.below(500) };
    match random.below(7) {
        0 | 1 => Op::AllReduce { len },
        2 => Op::Broadcast { len, root: random.below(size) },
        3 => Op::Gather { len: len / size },
        4 => Op::Barrier,
        kind => {
            let from = random.below(size);
            let to = (from + random.between(1, size - 1)) % size;
            if kind == 5 { Op::Message { from, to, len } } else { Op::Crossed { from, to, len } }
        }
    }
}

/// An element of a rank's input.
fn input(rank: usize, call: usize, at: usize) -> u32 {
    u32::try_from(rank * 1_000_003 + call * 10_007 + at % 89).unwrap()
}

/// The oracle: the buffer of a rank after a call.
fn expected(op: Op, call: usize, size: usize) -> Vec<u32> {
    match op {
        Op::AllReduce { len } | Op::Crossed { len, .. } => {
            (0..len).map(|at| (0..size).map(|rank| input(rank, call, at)).sum()).collect()
        }
        Op::Broadcast { len, root: from } | Op::Message { from, len, .. } => {
            (0..len).map(|at| input(from, call, at)).collect()
        }
        Op::Gather { len } => {
            (0..size).flat_map(|rank| (0..len).map(move |at| input(rank, call, at))).collect()
        }
        Op::Barrier => Vec::new(),
    }
}

/// A buffer that counts.
struct Counted(Vec<u32>, #[expect(dead_code, reason = "counted")] Arc<()>);

impl AsMut<[u32]> for Counted {
    fn as_mut(&mut self) -> &mut [u32] {
        &mut self.0
    }
}

/// A request with the result that its buffer gets.
type Begun = (Request<Counted>, Vec<u32>);

/// The plan of a run.
#[derive(Debug)]
struct Plan {
    size: usize,
    ops: Vec<Op>,
    /// The rank that dies or aborts, if one does.
    fails: Option<usize>,
    is_abort: bool,
    /// Whether another thread of each rank waits for some requests.
    has_waiter: bool,
}

/// One rank of a run.
struct Caller<'p> {
    plan: &'p Plan,
    rank: usize,
    random: Random,
    count: Arc<()>,
    begun: VecDeque<Begun>,
    /// Requests for the other thread. `None` ends it.
    given: &'p Mutex<VecDeque<Option<Begun>>>,
    causes: BTreeSet<String>,
}

impl Waking {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(false)))
    }
}

struct Waking(AtomicBool);

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Waits for a request. Returns the cause of its failure.
fn finished((mut request, expected): Begun, random: &mut Random) -> Option<String> {
    let ended = match random.below(4) {
        // Nobody drives the call but the helper.
        0 | 1 => {
            let waking = Waking::new();
            let waker = Arc::clone(&waking).into();
            let mut context = Context::from_waker(&waker);
            loop {
                if let Poll::Ready(ended) = Pin::new(&mut request).poll(&mut context) {
                    break ended;
                }
                interleave::block(None, || waking.0.swap(false, Ordering::SeqCst));
            }
        }
        2 => {
            request.test();
            request.wait()
        }
        _ => request.wait(),
    };
    match ended {
        Ok(buffer) => {
            assert_eq!(buffer.0, expected);
            None
        }
        Err(Failed { error, buffers }) => {
            assert_eq!(buffers.0.len(), expected.len());
            Some(cause(error))
        }
    }
}

fn cause(error: Error) -> String {
    match error {
        Error::Failed(failure) => failure.cause.to_string(),
        other => panic!("{other}"),
    }
}

impl Caller<'_> {
    fn run(mut self, mut comm: Communicator) -> (BTreeSet<String>, Option<String>) {
        let ops = self.plan.ops.clone();
        for (call, op) in ops.into_iter().enumerate() {
            if self.plan.is_abort && self.plan.fails == Some(self.rank) && call > 0 {
                comm.abort("on purpose");
            }
            self.perform(&mut comm, call, op);
            interleave::point();
            if self.random.chance(20) {
                self.finish_one();
            }
        }
        while !self.begun.is_empty() {
            self.finish_one();
        }
        let last = comm.barrier().err().map(cause);
        locked(self.given).push_back(None);
        interleave::point();
        self.causes.extend(last.clone());
        (self.causes, last)
    }

    fn finish_one(&mut self) {
        let Some(begun) = self.begun.pop_front() else { return };
        if self.plan.has_waiter && self.random.chance(50) {
            locked(self.given).push_back(Some(begun));
        } else {
            self.causes.extend(finished(begun, &mut self.random));
        }
    }

    fn perform(&mut self, comm: &mut Communicator, call: usize, op: Op) {
        let Op::Crossed { from, to, len } = op else { return self.perform_one(comm, call, op) };
        let (message, sum) = (Op::Message { from, to, len }, Op::AllReduce { len });
        if self.rank == to {
            self.perform_one(comm, call, message);
        }
        if self.rank == from {
            let own: Vec<u32> = (0..len).map(|at| input(self.rank, call, at)).collect();
            let buffer = Counted(own, Arc::clone(&self.count));
            let started = comm.start_all_reduce(buffer, ReduceOp::Sum);
            self.keep(started, expected(sum, call, self.plan.size));
            if self.plan.has_waiter {
                self.give_all();
            }
            self.perform_one(comm, call, message);
        } else {
            self.perform_one(comm, call, sum);
        }
    }

    fn perform_one(&mut self, comm: &mut Communicator, call: usize, op: Op) {
        let (rank, size) = (self.rank, self.plan.size);
        let mut expected = expected(op, call, size);
        let own: Vec<u32> = (0..expected.len()).map(|at| input(rank, call, at)).collect();
        if let Op::Message { from, to, .. } = op {
            let mut buffer = own;
            let done = match (rank == from, rank == to) {
                (true, _) => comm.send(&buffer, Rank::at(to), 5),
                (_, true) => comm.recv(&mut buffer, Rank::at(from), 5).map(drop),
                _ => return,
            };
            return self.ended(done, &buffer, &expected);
        }
        let len = if let Op::Gather { len } = op { len } else { 0 };
        if self.random.chance(20) {
            let mut buffer = own.clone();
            let done = match op {
                Op::Broadcast { root, .. } => comm.broadcast(&mut buffer, Rank::at(root)),
                Op::Gather { .. } => comm.all_gather_into(&own[..len], &mut buffer),
                Op::Barrier => comm.barrier(),
                _ => comm.all_reduce(&mut buffer, ReduceOp::Sum),
            };
            return self.ended(done, &buffer, &expected);
        }
        let mut buffer = Counted(own, Arc::clone(&self.count));
        let started = match op {
            Op::Broadcast { root, .. } => comm.start_broadcast(buffer, Rank::at(root)),
            Op::Gather { .. } => {
                // In place, the input is this rank's block of the output.
                let own: Vec<u32> = (0..len).map(|at| input(rank, call, at)).collect();
                buffer.0[rank * len..(rank + 1) * len].copy_from_slice(&own);
                let call = call_of(Collective::AllGather, len, DataType::U32);
                comm.start(&call, buffer, |it| (None, bytemuck::cast_slice_mut(&mut it.0)))
            }
            Op::Barrier => {
                expected.clear();
                let call = call_of(Collective::Barrier, 0, DataType::U8);
                comm.start(&call, buffer, |_| (Some(&[]), &mut []))
            }
            _ => comm.start_all_reduce(buffer, ReduceOp::Sum),
        };
        self.keep(started, expected);
    }

    /// Takes the end of a blocking operation.
    fn ended(&mut self, done: Result<(), Error>, buffer: &[u32], expected: &[u32]) {
        match done {
            Ok(()) => assert_eq!(buffer, expected),
            Err(error) => drop(self.causes.insert(cause(error))),
        }
    }

    /// Takes a started call, or drops it.
    fn keep(&mut self, started: Started<Counted>, expected: Vec<u32>) {
        match started {
            Ok(request) if self.random.chance(15) => drop(request),
            Ok(request) => self.begun.push_back((request, expected)),
            Err(failed) => drop(self.causes.insert(cause(failed.error))),
        }
    }

    fn give_all(&mut self) {
        locked(self.given).extend(self.begun.drain(..).map(Some));
    }
}

fn call_of(collective: Collective, count: usize, data_type: DataType) -> Call {
    let (op, root, wire) = (ReduceOp::Sum, Rank(0), Wire::default());
    Call { collective, count, data_type, op, root, wire }
}

/// The thread that waits for the requests of another.
fn wait_for_given(given: &Mutex<VecDeque<Option<Begun>>>, mut random: Random) -> BTreeSet<String> {
    let mut causes = BTreeSet::new();
    loop {
        interleave::block(None, || !locked(given).is_empty());
        let next = locked(given).pop_front();
        match next {
            Some(Some(begun)) => causes.extend(finished(begun, &mut random)),
            Some(None) => return causes,
            None => {}
        }
    }
}

/// The death of a rank, by numbers of deliveries.
struct Death {
    rank: usize,
    after: usize,
    /// When all ranks are told. Without that they find out by their links, in real time.
    news_after: Option<usize>,
}

/// Delivers what is under way, as long as the run lasts.
fn deliver_all(net: &Mutex<Net>, aborters: &[Aborter], death: Option<Death>) {
    let (mut dies, mut news) = (death.as_ref().map(|it| it.after), None);
    loop {
        if let (Some(0), Some(death)) = (dies, &death) {
            locked(net).kill(death.rank);
            (dies, news) = (None, death.news_after);
        }
        if let (Some(0), Some(death)) = (news, &death) {
            aborters[death.rank].abort("its process is gone");
            (0..aborters.len()).for_each(interleave::changed);
            news = None;
        }
        let is_busy = || locked(net).under_way.iter().any(|queue| !queue.is_empty());
        interleave::block(None, || news.is_some() || is_busy());
        locked(net).deliver();
        (dies, news) = (dies.map(|more| more - 1), news.map(|more| more - 1));
        interleave::point();
    }
}

/// Runs one plan. Returns whether it failed as planned.
fn play(seed: u64) -> Result<bool, String> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let size = random.between(2, 3);
    let plan = Plan {
        size,
        ops: (0..random.between(1, 6)).map(|_| any_op(size, random)).collect(),
        fails: random.chance(25).then(|| random.below(size)),
        is_abort: random.chance(30),
        has_waiter: random.chance(50),
    };
    // Small chunks make long programs, on which a helper works in several slices.
    let chunk_bytes = random.pick(&[None, None, Some(1024)]);
    let timeout = Duration::from_secs(1000);
    let config = Config { timeout, chunk_bytes, ..Config::default() }.bounded();
    let (net, ends) = mesh(size, random);
    let crowded = Occupancy { ranks: 64, cpus: 1 };
    let parts = ThreadGroups::new(crowded, random.between(1, 2)).parts(ends).unwrap();
    let aborters: Vec<_> = parts.iter().map(|parts| parts.control.aborter()).collect();
    let comms = parts.into_iter().map(|parts| Communicator::new(&config, parts));
    let count = Arc::new(());
    let given: Vec<_> = (0..size).map(|_| Mutex::new(VecDeque::new())).collect();
    let death = plan.fails.filter(|_| !plan.is_abort).map(|rank| Death {
        rank,
        after: random.below(40),
        news_after: random.chance(98).then(|| random.below(40)),
    });

    let mut mains: Vec<Act<'_, (BTreeSet<String>, Option<String>)>> = Vec::new();
    let mut others: Vec<Act<'_, ()>> = Vec::new();
    for (rank, comm) in comms.enumerate() {
        let caller = Caller {
            plan: &plan,
            rank,
            random: random.fork(),
            count: Arc::clone(&count),
            begun: VecDeque::new(),
            given: &given[rank],
            causes: BTreeSet::new(),
        };
        mains.push((rank, Box::new(move || caller.run(comm))));
        if plan.has_waiter {
            let (given, random) = (&given[rank], random.fork());
            mains.push((rank, Box::new(move || (wait_for_given(given, random), None))));
        }
        others.push((rank, Box::new(progress::help)));
    }
    others.push((size, Box::new(move || deliver_all(&net, &aborters, death))));
    let ends =
        interleave::run(random.bits(), mains, others).map_err(|why| format!("{why}, {plan:?}"))?;
    let causes: BTreeSet<&String> = ends.iter().flat_map(|(causes, _)| causes).collect();
    match (causes.len(), plan.fails) {
        (0, _) | (1, Some(_)) => {}
        _ => return Err(format!("several causes: {causes:?}")),
    }
    match Arc::strong_count(&count) {
        1 => Ok(!causes.is_empty()),
        left => Err(format!("{} buffers did not come back", left - 1)),
    }
}

/// Runs `count` plans, of which `seed` is the first. Returns the number of those in which a rank
/// failed.
fn play_some(mut seed: u64, count: usize) -> usize {
    let (mut random, mut failures) = (Random::new(seed), 0);
    for _ in 0..count {
        match play(seed) {
            Ok(has_failed) => failures += usize::from(has_failed),
            Err(why) => panic!("interleaving of seed {seed}: {why}"),
        }
        seed = random.bits();
    }
    failures
}

fn play_all(seeds: usize) {
    let seed = seed();
    let mut random = Random::new(seed);
    let workers = thread::available_parallelism().unwrap().get();
    let first = (0..workers).map(|worker| if worker == 0 { seed } else { random.bits() });
    let failures: usize = thread::scope(|scope| {
        let begin = |first| scope.spawn(move || play_some(first, seeds.div_ceil(workers)));
        let workers: Vec<_> = first.map(begin).collect();
        workers.into_iter().map(|it| it.join().unwrap()).sum()
    });
    println!("{seeds} interleavings, {failures} of them with a failure of a rank");
}

#[test]
fn calls_end_in_every_order_of_events() {
    play_all(SEEDS);
}

#[test]
#[ignore = "minutes: see tests/long"]
fn calls_end_in_a_million_orders_of_events() {
    play_all(1_000_000);
}

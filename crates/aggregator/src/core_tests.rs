//! Every interleaving of three children, four chunks and a window of two, with a restart: at the
//! root of a tree, and below a parent.

use std::collections::HashSet;

use ringfold_types::{DataType, ReduceOp};

use super::*;

const CHILDREN: usize = 3;
const CHUNKS: u64 = 4;
const WINDOW: u64 = 2;

fn shape() -> Shape {
    Shape {
        first: 0,
        members: vec![1; CHILDREN],
        ranks: CHILDREN,
        window: 2,
        chunk_bytes_max: 8,
        is_top: true,
    }
}

fn header(child: usize, epoch: u32, chunk: u64) -> Header {
    let plain = Header::plain(Kind::AllReduce, 0, epoch, 1);
    let slot = u8::try_from(chunk % (2 * WINDOW)).unwrap();
    let child = u8::try_from(child).unwrap();
    Header { child, slot, chunk, tag: 7, data_type: DataType::U8, ..plain }
}

/// The part of a child in one chunk of the call. Sums of parts differ from chunk to chunk.
fn part(child: usize, chunk: u64) -> u8 {
    (1 << child) + 10 * u8::try_from(chunk).unwrap()
}

fn sum(chunk: u64) -> u8 {
    (0..CHILDREN).map(|child| part(child, chunk)).sum()
}

/// The result that the parent makes of a partial one.
const fn finished(partial: u8) -> u8 {
    partial ^ 0x80
}

/// A child, as it is after some of its actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Member {
    epoch: u32,
    /// Chunks handed over and results taken, in this epoch.
    posted: u64,
    taken: u64,
    /// Whether the header of a chunk has arrived, and its bytes have not.
    begun: bool,
}

#[derive(Clone)]
struct World {
    group: Group,
    members: [Member; CHILDREN],
    /// The parts of which only the headers have arrived.
    parts: [Vec<u8>; CHILDREN],
    /// The first chunk of each epoch, once it has begun: the members agree on the least number of
    /// results that one of them has.
    base: [Option<u64>; 2],
    /// Results that the parent has given in this epoch.
    answered: u64,
}

impl World {
    fn new(is_top: bool) -> Self {
        let mut group = Group::new(Shape { is_top, ..shape() }, None);
        for child in 0..CHILDREN {
            assert_eq!(group.attach(child, 1), Ok(child == 0));
        }
        let member = Member { epoch: 1, posted: 0, taken: 0, begun: false };
        let parts = [const { Vec::new() }; CHILDREN];
        Self { group, members: [member; CHILDREN], parts, base: [Some(0), None], answered: 0 }
    }

    fn base(&self, child: usize) -> u64 {
        self.base[self.members[child].epoch as usize - 1].unwrap()
    }

    /// Hands over a header or, if it is there, the bytes. Returns false if the child may not.
    fn post(&mut self, child: usize) -> bool {
        let base = self.base(child);
        let member = &mut self.members[child];
        let chunk = member.posted;
        let is_stale = member.epoch < self.group.epoch();
        let header = header(child, member.epoch, chunk);
        if member.begun {
            let part = std::mem::take(&mut self.parts[child]);
            let finished = self.group.finish(child, &header, part);
            assert_eq!(matches!(finished, Err(Fault::Stale { .. })), is_stale);
            assert!(is_stale || finished.is_ok(), "{finished:?}");
            member.begun = false;
            // A child that learns of the restart does nothing but attach again.
            member.posted += u64::from(!is_stale);
            return !is_stale;
        }
        if base + chunk == CHUNKS || chunk == member.taken + WINDOW {
            return false;
        }
        match self.group.begin(child, &header) {
            Ok(mut bytes) => {
                assert!(!is_stale);
                bytes[0] = part(child, base + chunk);
                self.parts[child] = bytes;
                member.begun = true;
                true
            }
            Err(fault) => {
                assert_eq!(fault, Fault::Stale { told: 1, now: 2 });
                false
            }
        }
    }

    fn take(&mut self, child: usize) -> bool {
        let base = self.base(child);
        let member = &mut self.members[child];
        let Some((header, bytes)) = self.group.result(child) else { return false };
        if member.epoch < self.group.epoch() {
            return false;
        }
        let chunk = member.taken;
        assert_eq!((header.kind, header.chunk, header.tag), (Kind::Result, chunk, 7));
        assert_eq!(u64::from(header.slot), chunk % (2 * WINDOW));
        let partial = sum(base + chunk);
        let is_top = self.group.shape().is_top;
        assert_eq!(bytes, [if is_top { partial } else { finished(partial) }]);
        self.group.deliver(child);
        member.taken += 1;
        // The result of chunk c + window proves that all have taken result c.
        let epoch = member.epoch;
        for other in self.members.iter().filter(|_| chunk >= WINDOW) {
            assert!(other.epoch > epoch || other.taken > chunk - WINDOW);
        }
        true
    }

    /// Attaches a child in the second epoch.
    fn restart(&mut self, child: usize) -> bool {
        if self.members[child].epoch == 2 {
            return false;
        }
        let least = self.members.iter().map(|member| member.taken).min().unwrap();
        let is_first = self.base[1].is_none();
        self.base[1].get_or_insert(least);
        self.answered = if is_first { 0 } else { self.answered };
        assert_eq!(self.group.attach(child, 2), Ok(is_first));
        self.members[child] = Member { epoch: 2, posted: 0, taken: 0, begun: false };
        true
    }

    /// Lets the parent finish the oldest partial result. Nothing remains to do at the root.
    fn finish(&mut self) -> bool {
        let Some((header, bytes)) = self.group.partial(self.answered) else { return false };
        let base = self.base[self.group.epoch() as usize - 1].unwrap();
        assert_eq!((header.chunk, header.tag), (self.answered, 7));
        assert_eq!(bytes, [sum(base + self.answered)]);
        assert_eq!(self.group.awaited(), 0, "the parent is late, and no child");
        let result = finished(bytes[0]);
        self.group.take_result(&[result]);
        self.answered += 1;
        true
    }
}

#[test]
fn every_interleaving_gives_the_right_sums() {
    explore(true);
}

#[test]
fn every_interleaving_below_a_parent_gives_the_right_sums() {
    explore(false);
}

fn explore(is_top: bool) {
    let mut seen = HashSet::new();
    let mut open = vec![World::new(is_top)];
    let mut ends = 0;
    while let Some(world) = open.pop() {
        if !seen.insert((world.members, world.base, world.answered)) {
            continue;
        }
        let is_done = |child: usize| world.base(child) + world.members[child].taken == CHUNKS;
        ends += usize::from((0..CHILDREN).all(is_done));
        let is_idle = (0..CHILDREN).all(|child| !world.group.is_waiting(child));
        let mut next = world.clone();
        let mut moved = next.finish();
        if moved {
            open.push(next);
        }
        for child in 0..CHILDREN {
            for act in [World::post, World::take, World::restart] {
                let mut next = world.clone();
                if act(&mut next, child) {
                    moved = true;
                    open.push(next);
                }
            }
        }
        // Without a move, all are in the second epoch and have all results: nobody is stuck.
        assert!(moved || (is_idle && (0..CHILDREN).all(is_done)));
    }
    assert!(ends > 1 && seen.len() > 10_000, "{ends} ends, {} states", seen.len());
}

fn attached() -> Group {
    let mut group = Group::new(shape(), None);
    (0..CHILDREN).for_each(|child| assert_eq!(group.attach(child, 1), Ok(child == 0)));
    group
}

fn post(group: &mut Group, child: usize, header: &Header) -> Result<(), Fault> {
    let part = group.begin(child, header)?;
    group.finish(child, header, part)
}

#[test]
fn a_false_message_is_refused_before_memory_is_used() {
    let right = header(1, 1, 0);
    for wrong in [
        Header { chunk: 1, slot: 1, ..right },
        Header { slot: 2, ..right },
        Header { child: 0, ..right },
        Header { epoch: 2, ..right },
        Header { bytes: 9, ..right },
        Header { bytes: 3, data_type: DataType::F32, ..right },
        Header { kind: Kind::Barrier, ..right },
        Header { bytes: 4, data_type: DataType::F32, op: ReduceOp::BitXor, ..right },
        Header { kind: Kind::Result, ..right },
        Header { epoch: 0, ..right },
    ] {
        assert!(attached().begin(1, &wrong).is_err(), "{wrong:?}");
    }
    let mut group = attached();
    post(&mut group, 1, &right).unwrap();
    assert!(post(&mut group, 1, &right).is_err(), "replayed");
    post(&mut group, 1, &header(1, 1, 1)).unwrap();
    assert!(post(&mut group, 1, &header(1, 1, 2)).is_err(), "beyond the window");
    assert_eq!(group.awaited(), 0b101);
    assert!(group.is_waiting(1) && !group.is_waiting(0));
    assert!(matches!(group.attach(1, 1), Err(Fault::Wrong { child: 1, .. })));
    assert!(group.attach(CHILDREN, 1).is_err());
}

#[test]
fn children_that_differ_are_named_with_the_chunk() {
    let second = header(2, 1, 0);
    for second in [
        Header { tag: 8, ..second },
        Header { op: ReduceOp::Max, ..second },
        Header { bytes: 2, ..second },
        Header { kind: Kind::Reduce, ..second },
    ] {
        let mut group = attached();
        post(&mut group, 1, &header(1, 1, 0)).unwrap();
        let fault = post(&mut group, 2, &second).unwrap_err();
        assert_eq!(fault, Fault::Different { first: 1, second: 2, chunk: 0 });
        // The same if the header came before the other child's part was whole.
        let mut group = attached();
        let part = group.begin(2, &second).unwrap();
        let first = header(1, 1, 0);
        let other = group.begin(1, &first).unwrap();
        group.finish(1, &first, other).unwrap();
        assert_eq!(group.finish(2, &second, part), Err(fault));
    }
}

#[test]
fn the_result_of_a_reduce_goes_to_its_root_and_a_parent_finishes_an_average() {
    let shape = Shape { first: 5, is_top: false, ranks: 12, ..shape() };
    let mut group = Group::new(shape, None);
    for child in 0..CHILDREN {
        group.attach(child, 1).unwrap();
        let header =
            Header { kind: Kind::Reduce, op: ReduceOp::Avg, root: 6, ..header(child, 1, 0) };
        let mut part = group.begin(child, &header).unwrap();
        part[0] = 40;
        group.finish(child, &header, part).unwrap();
    }
    assert_eq!(group.partial(0).unwrap().1, [120], "undivided");
    assert_eq!(group.partial(1), None);
    assert_eq!(group.result(1), None, "the parent has the last word");
    group.take_result(&[30]);
    for child in 0..CHILDREN {
        let wanted: &[u8] = if child == 1 { &[30] } else { &[] };
        assert_eq!(group.result(child).unwrap().1, wanted);
    }
}

/// Children that say anything at all: every header is refused or has a result, without a panic, and
/// the memory stays within the shape's.
#[test]
fn no_header_makes_a_group_panic_or_grow() {
    let mut state = 1_u64;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    };
    let small = |value: u64| u8::try_from(value).unwrap();
    let (mut accepted, mut results) = (0, 0);
    for _ in 0..2_000 {
        let mut group = Group::new(Shape { is_top: below(2) == 0, ..shape() }, None);
        (0..CHILDREN).for_each(|child| assert!(group.attach(child, 1).is_ok()));
        let [kind, data_type, op] = [5 + below(3), below(12), below(12)].map(small);
        for _ in 0..60 {
            let child = usize::try_from(below(CHILDREN as u64)).unwrap();
            let mut bytes = header(child, 1, group.children[child].posted).encode();
            (bytes[0], bytes[28], bytes[29]) = (kind, data_type, op);
            bytes[12] = small(8 * below(2));
            if below(8) == 0 {
                bytes[usize::try_from(below(32)).unwrap()] = small(below(256));
            }
            let Ok(said) = Header::decode(&bytes) else { continue };
            let Ok(part) = group.begin(child, &said) else { continue };
            accepted += 1;
            if group.finish(child, &said, part).is_err() {
                break;
            }
            let partial = group.partial(group.results).map(|(_, bytes)| bytes.to_vec());
            if let Some(partial) = partial {
                group.take_result(&partial);
            }
            while group.result(child).is_some() {
                group.deliver(child);
                results += 1;
            }
        }
        let parts = group.slots.iter().flat_map(|slot| slot.parts.iter().chain([&slot.result]));
        let used: usize = parts.map(Vec::capacity).sum();
        assert!(used <= (CHILDREN + 1) * 2 * 8, "{used} bytes");
    }
    assert!(accepted > 10_000 && results > 1_000, "{accepted} accepted, {results} results");
}

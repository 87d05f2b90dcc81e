//! Every interleaving of three children, four chunks and a window of two: at the root of a tree,
//! and below a parent.

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

fn header(chunk: u64) -> Header {
    Header { chunk, tag: 7, data_type: DataType::U8, ..Header::plain(Kind::AllReduce, 1) }
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
    /// Chunks handed over and results taken.
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
    /// Results that the parent has given.
    answered: u64,
}

impl World {
    fn new(is_top: bool) -> Self {
        let group = Group::new(Shape { is_top, ..shape() }, None);
        let member = Member { posted: 0, taken: 0, begun: false };
        let parts = [const { Vec::new() }; CHILDREN];
        Self { group, members: [member; CHILDREN], parts, answered: 0 }
    }

    /// Hands over a header or, if it is there, the bytes. Returns false if the child may not.
    fn post(&mut self, child: usize) -> bool {
        let member = &mut self.members[child];
        let chunk = member.posted;
        if member.begun {
            let part = std::mem::take(&mut self.parts[child]);
            self.group.finish(child, &header(chunk), part).unwrap();
            member.begun = false;
            member.posted += 1;
            return true;
        }
        if chunk == CHUNKS || chunk == member.taken + WINDOW {
            return false;
        }
        let mut bytes = self.group.begin(child, &header(chunk)).unwrap();
        bytes[0] = part(child, chunk);
        self.parts[child] = bytes;
        member.begun = true;
        true
    }

    fn take(&mut self, child: usize) -> bool {
        let Some((header, bytes)) = self.group.result(child) else { return false };
        let chunk = self.members[child].taken;
        assert_eq!((header.kind, header.chunk, header.tag), (Kind::Result, chunk, 7));
        let partial = sum(chunk);
        let is_top = self.group.shape().is_top;
        assert_eq!(bytes, [if is_top { partial } else { finished(partial) }]);
        self.group.deliver(child);
        self.members[child].taken += 1;
        // The result of chunk c + window proves that all have taken result c.
        let has_taken = |other: &Member| other.taken + WINDOW > chunk;
        assert!(self.members.iter().all(has_taken));
        true
    }

    /// Lets the parent finish the oldest partial result. Nothing remains to do at the root.
    fn finish(&mut self) -> bool {
        let Some((header, bytes)) = self.group.partial(self.answered) else { return false };
        assert_eq!((header.chunk, header.tag), (self.answered, 7));
        assert_eq!(bytes, [sum(self.answered)]);
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
        if !seen.insert((world.members, world.answered)) {
            continue;
        }
        let is_done = |child: usize| world.members[child].taken == CHUNKS;
        ends += usize::from((0..CHILDREN).all(is_done));
        let is_idle = (0..CHILDREN).all(|child| !world.group.is_waiting(child));
        let mut next = world.clone();
        let mut moved = next.finish();
        if moved {
            open.push(next);
        }
        for child in 0..CHILDREN {
            for act in [World::post, World::take] {
                let mut next = world.clone();
                if act(&mut next, child) {
                    moved = true;
                    open.push(next);
                }
            }
        }
        // Without a move, all have all results: nobody is stuck.
        assert!(moved || (is_idle && (0..CHILDREN).all(is_done)));
    }
    assert!(ends == 1 && seen.len() > 1_000, "{ends} ends, {} states", seen.len());
}

fn new_group() -> Group {
    Group::new(shape(), None)
}

fn post(group: &mut Group, child: usize, header: &Header) -> Result<(), Fault> {
    let part = group.begin(child, header)?;
    group.finish(child, header, part)
}

#[test]
fn a_false_message_is_refused_before_memory_is_used() {
    let right = header(0);
    for wrong in [
        Header { chunk: 1, ..right },
        Header { bytes: 9, ..right },
        Header { bytes: 3, data_type: DataType::F32, ..right },
        Header { kind: Kind::Barrier, ..right },
        Header { bytes: 4, data_type: DataType::F32, op: ReduceOp::BitXor, ..right },
        Header { kind: Kind::Result, ..right },
    ] {
        assert!(new_group().begin(1, &wrong).is_err(), "{wrong:?}");
    }
    let mut group = new_group();
    post(&mut group, 1, &right).unwrap();
    assert!(post(&mut group, 1, &right).is_err(), "replayed");
    post(&mut group, 1, &header(1)).unwrap();
    assert!(post(&mut group, 1, &header(2)).is_err(), "beyond the window");
    assert_eq!(group.awaited(), 0b101);
    assert!(group.is_waiting(1) && !group.is_waiting(0));
}

#[test]
fn children_that_differ_are_named_with_the_chunk() {
    let second = header(0);
    for second in [
        Header { tag: 8, ..second },
        Header { op: ReduceOp::Max, ..second },
        Header { bytes: 2, ..second },
        Header { kind: Kind::Reduce, ..second },
    ] {
        let mut group = new_group();
        post(&mut group, 1, &header(0)).unwrap();
        let fault = post(&mut group, 2, &second).unwrap_err();
        assert_eq!(fault, Fault::Different { first: 1, second: 2, chunk: 0 });
        // The same if the header came before the other child's part was whole.
        let mut group = new_group();
        let part = group.begin(2, &second).unwrap();
        let first = header(0);
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
        let header = Header { kind: Kind::Reduce, op: ReduceOp::Avg, root: 6, ..header(0) };
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
        let [kind, data_type, op] = [3 + below(3), below(12), below(12)].map(small);
        for _ in 0..60 {
            let child = usize::try_from(below(CHILDREN as u64)).unwrap();
            let mut bytes = header(group.children[child].posted).encode();
            (bytes[0], bytes[2], bytes[3]) = (kind, data_type, op);
            bytes[4] = small(8 * below(2));
            if below(8) == 0 {
                bytes[usize::try_from(below(24)).unwrap()] = small(below(256));
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

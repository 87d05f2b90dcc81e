//! Records that are read while they are written, after bursts of calls, and after damage.

#![expect(clippy::host_endian_bytes, reason = "records have the byte order of their host")]
#![expect(clippy::cast_possible_truncation, reason = "the numbers of the tests are small")]

use std::sync::atomic::AtomicU64;

use proptest::prelude::*;
use ringfold_harness::Folder;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire, limits};
use rustix::time::ClockId;

use super::clock::nanoseconds;
use super::counters::{CountedCalls, open_counters};
use super::format::CALL_WORDS;
use super::read::{AwaitedMessage, Record, read_record, state_of};
use super::*;
use crate::arbiter::call_log::{CallLog, CallName, Finished, Logged};

fn clock() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

fn bytes(words: &[AtomicU64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
}

fn read(words: &[AtomicU64]) -> Record {
    read_record(&bytes(words), &bytes(words)).unwrap()
}

fn log(number: u64) -> CallLog {
    CallLog::recorded(GroupFacts { id: number.into(), rank: 3, size: 8, name: "a job" })
}

fn call(count: usize) -> Call {
    Call {
        collective: Collective::AllReduce,
        count,
        data_type: DataType::F32,
        op: ReduceOp::Sum,
        root: Rank(0),
        wire: Wire::default(),
    }
}

fn name(count: usize) -> CallName {
    CallName::new(&call(count), 2)
}

/// Calls without a time count by their number, also while they run, and once their kind has ended.
fn counts_calls(words: &[AtomicU64], calls: &CallLog, folder: &Folder) {
    let path = folder.at("counted.record");
    let count = || {
        std::fs::write(&path, bytes(words)).unwrap();
        open_counters(path.as_ref()).unwrap().unwrap()
    };
    let untimed = || {
        let counters = count();
        let of = |kind: &CountedCalls| (kind.untimed, kind.durations.iter().sum::<u64>());
        (counters.calls.iter().map(of).collect::<Vec<_>>(), counters.traffic[0][0])
    };
    calls.finished(4096, Finished::Exchange);
    assert_eq!(untimed(), (vec![], 0), "their kind was not named");
    calls.begins_kind(4097, &name(2));
    for seq in 4097..4107 {
        calls.entered(seq, &name(2), clock());
        calls.finished(
            seq,
            match seq {
                4104.. => Finished::At(clock() + 5000),
                4101.. => Finished::Short,
                _ => Finished::Exchange,
            },
        );
    }
    assert_eq!(untimed(), (vec![(7, 3)], 4 * 8));
    calls.begins_kind(4107, &name(2));
    assert_eq!(untimed(), (vec![(7, 3)], 4 * 8), "the same kind");
    calls.begins_kind(4107, &name(1000));
    assert_eq!(untimed(), (vec![(7, 3)], 4 * 8), "another one");
    calls.entered(4107, &name(1000), clock());
    calls.finished(4107, Finished::Exchange);
    assert_eq!(untimed(), (vec![(7, 3), (1, 0)], 4 * 8 + 4000));
    calls.begins_kind(4108, &name(2));
    assert_eq!(untimed(), (vec![(7, 3), (1, 0)], 4 * 8 + 4000));
    let mut later = count();
    later.calls[0].untimed = 3;
    later.raise_to(&count());
    assert_eq!(later, count(), "counters never go down");
    assert_eq!(later.calls[1].kind.map(|kind| kind.size()), Some("4KiB"));
    for other in 0..=u8::MAX {
        calls.begins_kind(4108, &CallName::new(&call(5), other));
        calls.entered(4108, &name(5), clock());
        calls.finished(4108, Finished::At(clock()));
    }
    let kinds = count().calls;
    assert_eq!((kinds.len(), kinds.last().unwrap().kind), (limits::CALL_KINDS_MAX, None));
    let timed = kinds.iter().flat_map(|kind| kind.durations).sum::<u64>();
    assert_eq!(timed, 3 + 256, "none is lost");
    let begun = words[at::BEGUN].fetch_add(1, Ordering::Relaxed);
    std::fs::write(&path, bytes(words)).unwrap();
    assert_eq!(open_counters(path.as_ref()).unwrap(), None, "of a process that has ended");
    words[at::BEGUN].store(begun, Ordering::Relaxed);
}

/// The part of the test that waits for messages.
fn waits_are_recorded(words: &[AtomicU64], calls: &CallLog) {
    let message = AwaitedMessage { is_sent: true, peer: Some(u32::MAX), tag: None };
    calls.waits(message, Some(1000));
    let group = &read(words).groups[0];
    assert_eq!((group.awaited, group.message_ended), (Some((message, 1000)), None));
    calls.waited(1640);
    calls.waits(AwaitedMessage { is_sent: false, peer: None, tag: Some(0) }, Some(2000));
    calls.waited(2001);
    calls.message_ended(2002);
    let group = &read(words).groups[0];
    assert_eq!((group.awaited, group.message_ended, group.longest_wait), (None, Some(2002), 630));
    calls.waits(message, None);
    assert_eq!(read(words).groups[0].awaited, Some((message, 2000)), "the wait goes on");
}

/// The part of the test that looks from outside.
fn looks_show_no_keys(words: &[AtomicU64], calls: &CallLog) {
    for address in ["[fe80::1]:7", "10.0.0.1:65535"] {
        let port = LookPort { address: address.parse().unwrap(), key: [0x51; 32] };
        calls.set_look(port);
        assert_eq!(read(words).groups[0].look, Some(port));
        assert!(!format!("{port:?}").contains("81"), "{port:?}");
    }
    let (_, seen) = folder::Here::look(calls.group_id());
    let [(packed, Some(_))] = &seen[..] else { panic!("{} records", seen.len()) };
    let unpacked = packed.unpack().unwrap();
    assert_eq!(unpacked.groups[0].look, None);
    assert_eq!(unpacked.groups[0].calls, read(words).groups[0].calls);
    assert!(folder::Here::look([1, 2]).1.is_empty(), "another group");
}

/// The part of the test that changes one copy.
fn torn_parts_are_left_out(words: &[AtomicU64]) {
    // A word that changes between two copies is being written. A call may end meanwhile.
    let differ = |place: usize| {
        let mut second = bytes(words);
        second[8 * place] ^= 2;
        read_record(&bytes(words), &second).unwrap()
    };
    let places = [FAILURES, LINKS].map(|ring| ring.entry(0).start + EVENT_HEAD_WORDS);
    assert!(differ(places[0]).failures.is_empty() && differ(places[1]).links.is_empty());
    let entry = group_at(0).start + group::CALLS + 4096 % limits::CALLS_REMEMBERED * CALL_WORDS;
    for (word, left) in [(0, 63), (2, 63), (CALL_WORDS - 2, 63), (CALL_WORDS - 1, 64)] {
        assert_eq!(differ(entry + word).groups[0].calls.len(), left, "word {word}");
    }
    let wait = differ(group_at(0).start + group::WAIT_BEGUN);
    assert!(wait.groups[0].awaited.is_none() && wait.groups[0].calls.len() == 64);
    assert!(differ(group_at(0).start + group::STATE).groups.is_empty(), "another group");
}

/// One test, since a process has one record.
#[test]
fn the_record_of_a_process() {
    let folder = Folder::new();
    let words: Vec<AtomicU64> = (0..RECORD_WORDS).map(|_| AtomicU64::new(0)).collect();
    let words: &'static [AtomicU64] = Box::leak(words.into_boxed_slice());
    let facts = RecordFacts {
        host: "a/host".to_owned(),
        clock: (clock, false),
        dump: Some(folder.at("dump").into()),
        folder: None,
        tracer: None,
    };
    start_record(words, facts);
    assert!(has_record() && read(words).groups.is_empty());

    record_event("rank 1 by tcp");
    let calls = log(7);
    calls.failed(&"rank 5 died\u{1b}[2J");
    for seq in 0..4096 {
        calls.entered(seq, &name(2), clock());
        calls.finished(seq, Finished::Exchange);
    }
    calls.entered(4096, &name(9), clock());
    let found = read(words);
    let [failure, event] = [&found.failures, &found.links].map(|events| &*events[0].text);
    assert_eq!((failure, event), ("rank 5 died?[2J", "rank 1 by tcp"), "calls push out neither");
    assert_eq!((found.rank, found.size, &*found.name), (3, 8, "a job"));
    assert!(state_of(&found).is_some(), "this process runs");
    let group = &found.groups[0];
    assert_eq!((group.failure, found.failures[0].number), (1, 1));
    assert_eq!((group.calls.len(), group.finished), (limits::CALLS_REMEMBERED, 4096));
    let last = group.calls.last().unwrap();
    assert_eq!((last.seq, last.is_finished, last.end), (4096, false, None));
    assert!(Logged::from(last).text().contains("allreduce [f32 x 9"));
    waits_are_recorded(words, &calls);
    looks_show_no_keys(words, &calls);
    let (now, begun) = ([clock(), clock()], last.begin);
    assert!(nanoseconds(ClockId::Realtime).abs_diff(found.time_of(begun, now)) < 60_000_000_000);

    torn_parts_are_left_out(words);

    counts_calls(words, &calls, &folder);

    let copied = std::fs::read(folder.at(&format!("dump/a_host-{}.record", found.pid))).unwrap();
    let copied = read_record(&copied, &copied).unwrap();
    assert!(copied.copied_at().is_some() && copied.failures == found.failures);

    let groups: Vec<CallLog> = (0..GROUPS as u64).map(log).collect();
    assert_eq!(read(words).unrecorded, 1, "a group is there already");
    drop(groups);
    assert_eq!(read(words).groups.iter().filter(|group| !group.is_left).count(), 1);

    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for seq in 4109..60_000 {
                calls.entered(seq, &name(seq as usize), seq);
                calls.finished(seq, Finished::At(seq));
            }
        });
        let mut whole = 0;
        while !writer.is_finished() {
            let found = read_record(&bytes(words), &bytes(words)).unwrap();
            let group = found.groups.iter().find(|group| !group.is_left).unwrap();
            for call in group.calls.iter().filter(|call| call.seq > 4108) {
                assert_eq!((call.words[1], call.begin), (call.seq, call.seq));
                whole += 1;
            }
        }
        println!("{whole} whole calls");
    });
}

#[test]
fn the_state_of_a_process_is_after_its_name() {
    let stat = "7 (a) b) R) T 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
    assert_eq!(process_stat_of(stat), Some(('T', 4711)));
    for wrong in ["", "7 (a", "7 (a)", "7 (a) T 1 2"] {
        assert_eq!(process_stat_of(wrong), None, "{wrong}");
    }
}

fn process_stat_of(stat: &str) -> Option<(char, u64)> {
    read::process_stat(stat)
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(
        words in prop::collection::vec(
            prop_oneof![Just(1_u64), 0..9_u64, any::<u64>()],
            RECORD_WORDS,
        ),
        cut in 0..limits::RECORD_BYTES,
        changed in prop::collection::vec((0..RECORD_WORDS, any::<u64>()), 0..20),
    ) {
        let mut words = words;
        (words[at::MAGIC], words[at::VERSION]) = (MAGIC, VERSION);
        let of = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let first = of(&words);
        prop_assert!(read_record(&first[..cut], &first[..cut]).is_err());
        changed.into_iter().for_each(|(at, word)| words[at] = word);
        if let Ok(record) = read_record(&first, &of(&words)) {
            let calls = record.groups.iter().flat_map(|group| &group.calls);
            for call in calls {
                let text = Logged::from(call).text();
                prop_assert!(!text.is_empty() && !text.contains('\n'));
                let _ = record.time_of(call.begin, [call.begin, u64::MAX]);
            }
        }
    }
}

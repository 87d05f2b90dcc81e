//! Traces of jobs on one host and on several, of jobs that fail, and on disks without room.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use ringfold_harness::{Folder, Job, Outcome, Ranks, needed, program};
use serde_json::{Value, json};

use crate::LONG;
use crate::hosts::Hosts;

/// A track: a process and its number there.
type Track = (u64, u64);

/// The events of a trace that has passed the checks of its format.
pub(crate) struct Trace(Vec<Value>);

/// A time in nanoseconds.
#[expect(clippy::cast_possible_truncation, reason = "the times of a trace are small")]
fn nanoseconds(micros: &Value) -> i64 {
    (micros.as_f64().unwrap_or_else(|| panic!("{micros}")) * 1000.0).round() as i64
}

fn number(event: &Value, field: &str) -> u64 {
    event[field].as_u64().unwrap_or_else(|| panic!("{field} of {event}"))
}

fn track(event: &Value) -> Track {
    (number(event, "pid"), number(event, "tid"))
}

impl Trace {
    /// Reads a trace, and checks all events by the rules of Chrome's format.
    fn read(path: &str) -> Self {
        Self::check(&fs::read_to_string(path).unwrap())
    }

    /// As `read`, for the text of a trace.
    pub(crate) fn check(text: &str) -> Self {
        let all: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(all["displayTimeUnit"], "ns");
        let trace = Self(all["traceEvents"].as_array().unwrap().clone());
        trace.0.iter().for_each(check_event);
        let named: BTreeSet<u64> =
            trace.named("process_name").map(|event| number(event, "pid")).collect();
        let tracks: BTreeSet<Track> = trace.named("thread_name").map(track).collect();
        for event in trace.0.iter().filter(|it| it["ph"] != "M") {
            assert!(named.contains(&number(event, "pid")), "no process: {event}");
            assert!(tracks.contains(&track(event)), "no track: {event}");
        }
        trace.check_nesting();
        trace
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |it| it["name"] == name)
    }

    /// The events with a duration of this category, in the process of this rank.
    fn of_rank<'a>(&'a self, cat: &'a str, rank: u64) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |it| it["cat"] == cat && it["pid"] == rank + 1)
    }

    /// Events of a track follow each other or lie within each other, and the ends of arrows lie
    /// within an event.
    fn check_nesting(&self) {
        let mut tracks = BTreeMap::<Track, Vec<(i64, i64)>>::new();
        for event in self.0.iter().filter(|it| it["ph"] == "X") {
            let since = nanoseconds(&event["ts"]);
            let bounds = (since, since + nanoseconds(&event["dur"]));
            tracks.entry(track(event)).or_default().push(bounds);
        }
        for events in tracks.values_mut() {
            events.sort_unstable_by_key(|(since, until)| (*since, -until));
            let mut open = Vec::<i64>::new();
            for (since, until) in events {
                open.retain(|end| *end > *since);
                assert!(open.iter().all(|end| *end >= *until), "{since} to {until} of {open:?}");
                open.push(*until);
            }
        }
        for end in self.0.iter().filter(|it| it["ph"] == "s" || it["ph"] == "f") {
            let at = nanoseconds(&end["ts"]);
            let events = &tracks[&track(end)];
            let last = events.partition_point(|(since, _)| *since <= at);
            let encloses = |(since, until): &(i64, i64)| *since <= at && at < *until;
            assert!(events[..last].iter().rev().any(encloses), "no event around {end}");
        }
    }

    /// The arrows: the process and the time of each end.
    fn arrows(&self) -> Vec<[(u64, i64); 2]> {
        let ends = |kind: &str| {
            let mut ends = BTreeMap::new();
            for end in self.0.iter().filter(|it| it["ph"] == kind) {
                let at = (number(end, "pid"), nanoseconds(&end["ts"]));
                assert!(ends.insert(end["id"].as_str().unwrap(), at).is_none(), "twice: {end}");
            }
            ends
        };
        let (begins, ends) = (ends("s"), ends("f"));
        assert!(begins.keys().eq(ends.keys()), "{} begin, {} end", begins.len(), ends.len());
        begins.values().zip(ends.values()).map(|(begin, end)| [*begin, *end]).collect()
    }
}

/// Checks that an event has the fields of its kind.
fn check_event(event: &Value) {
    let is_text = |value: &Value| value.as_str().is_some_and(|it| !it.is_empty());
    assert!(is_text(&event["name"]), "{event}");
    number(event, "pid");
    let args = &event["args"];
    if event["ph"] == "M" {
        match event["name"].as_str().unwrap() {
            "process_name" => assert!(is_text(&args["name"]), "{event}"),
            "thread_name" => assert!(is_text(&args["name"]) && event["tid"].is_u64(), "{event}"),
            "process_sort_index" => assert!(args["sort_index"].is_u64(), "{event}"),
            _ => panic!("{event}"),
        }
        return;
    }
    assert!(is_text(&event["cat"]) && nanoseconds(&event["ts"]) > 0, "{event}");
    track(event);
    match (event["ph"].as_str().unwrap(), event["cat"].as_str().unwrap()) {
        ("X", cat) => {
            assert!(nanoseconds(&event["dur"]) >= 0, "{event}");
            match cat {
                "call" => assert!(is_text(&args["call"]) && args["seq"].is_u64(), "{event}"),
                "message" => {
                    assert!(["peer", "tag", "bytes"].iter().all(|it| args[*it].is_u64()), "{event}")
                }
                "wait" => {}
                _ => panic!("{event}"),
            }
        }
        ("s" | "f", "arrow") => {
            let id = event["id"].as_str().and_then(|id| id.strip_prefix("0x"));
            assert!(id.is_some_and(|id| u64::from_str_radix(id, 16).is_ok()), "{event}");
            assert_eq!(event.get("bp"), (event["ph"] == "f").then_some(&json!("e")), "{event}");
        }
        ("i", "lost") => assert!(event["s"] == "p" && args["events"].is_u64(), "{event}"),
        _ => panic!("{event}"),
    }
}

#[test]
fn a_trace_has_the_calls_and_messages_of_all_ranks() {
    for (transport, size) in [("shm", 4_u64), ("tcp", 4), ("shm", 2)] {
        let folder = Folder::new();
        // An old trace goes.
        let path = folder.file("trace.json", "{\"traceEvents\":[{\"ph\":\"an old one\"},\n");
        let ranks = Ranks::start(usize::try_from(size).unwrap(), |_, command| {
            command.args(["traced", "100", "500"]).env("RINGFOLD_TRACE", &path);
            command.env("RINGFOLD_TRANSPORT", transport);
        });
        let pids: Vec<u32> = ranks.0.iter().map(Job::id).collect();
        for outcome in ranks.finish(LONG) {
            assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
        }
        let trace = Trace::read(&path);
        assert_eq!(trace.named("process_name").count() as u64, size);
        assert_eq!(trace.named("lost events").count(), 0);
        // A rank that is always the last one has nothing to wait for.
        let mut waits = false;
        for (rank, pid) in (0..size).zip(pids) {
            let mut named = trace.named("process_name").filter(|it| it["pid"] == rank + 1);
            let title = named.next().unwrap()["args"]["name"].as_str().unwrap();
            assert!(title.starts_with(&format!("rank {rank} of {size} (")), "{title}");
            assert!(title.ends_with(&format!(", PID {pid})")), "{title}");
            let calls: Vec<&Value> = trace.of_rank("call", rank).collect();
            let tracks: BTreeSet<Track> = calls.iter().map(|call| track(call)).collect();
            assert_eq!((calls.len(), tracks.len()), (101, 1), "one track has all calls");
            for (seq, call) in (1..).zip(&calls) {
                let args = &call["args"];
                let (name, bytes) = if seq == 1 { ("barrier", 0) } else { ("allreduce", 4000) };
                assert!(args["seq"] == seq && call["name"] == name, "{call}");
                assert!(args["bytes"] == bytes && args.get("failed").is_none(), "{call}");
                assert!(args["algorithm"].is_string(), "{call}");
            }
            let within = |wait: &Value| {
                let at = nanoseconds(&wait["ts"]);
                calls.iter().any(|call| {
                    let since = nanoseconds(&call["ts"]);
                    since <= at && at < since + nanoseconds(&call["dur"])
                })
            };
            waits |= trace.of_rank("wait", rank).any(within);
            for (name, peer) in [("send", (rank + 1) % size), ("receive", (rank + size - 1) % size)]
            {
                let messages = trace.of_rank("message", rank).filter(|it| it["name"] == name);
                let bytes: Vec<u64> = messages
                    .inspect(|it| assert!(it["args"]["peer"] == peer && it["args"]["tag"] == 7))
                    .map(|it| number(&it["args"], "bytes"))
                    .collect();
                let sent = |it: u64| if it % 100 == 99 { 100_000 } else { it % 100 };
                assert!(bytes.into_iter().eq((0..500).map(sent)), "rank {rank}: {name}");
            }
        }
        assert!(waits, "no call of any rank waits");
        let arrows = trace.arrows();
        assert!(arrows.iter().all(|[begin, end]| begin.1 <= end.1), "before it was sent");
        let of_messages = 500 * size;
        let of_calls = arrows.len() as u64 - of_messages;
        // Over TCP the first bytes of each call between two ranks are an arrow too.
        assert!(transport == "shm" || of_calls >= 100 * size, "{of_calls} arrows of calls");
    }
}

#[test]
fn clocks_of_hosts_are_aligned() {
    const AHEAD: &str = "1000";
    let probe = ["unshare", "-T", "--monotonic", AHEAD, "true"];
    if !needed::succeeds("time namespaces", &probe) {
        return;
    }
    let Some(hosts) = Hosts::new("10.77.5", Some(AHEAD)) else { return };
    let folder = Folder::new();
    let path = folder.at("trace.json");
    let start = |rank| {
        let mut command = hosts.start("10.77.5.1", rank, &["traced", "100", "2500"]);
        Job::start(command.env("RINGFOLD_TRACE", &path))
    };
    let ranks = Ranks((0..4).map(start).collect());
    let outcomes = ranks.finish(LONG);
    assert!(outcomes.iter().all(|it| it.status.success()), "{outcomes:?}");
    let trace = Trace::read(&path);
    let arrows = trace.arrows();
    assert!(arrows.len() >= 10_000, "{} arrows", arrows.len());
    let between = |hosts: [bool; 2]| {
        let is_between = |it: &&[(u64, i64); 2]| it.map(|(pid, _)| pid > 2) == hosts;
        let times = arrows.iter().filter(is_between).map(|[begin, end]| end.1 - begin.1);
        let times: Vec<i64> = times.collect();
        (times.len(), times.iter().min().copied().unwrap())
    };
    let ways = [[false, true], [true, false], [false, false], [true, true]].map(between);
    println!("messages, and the nanoseconds of the fastest: {ways:?}");
    assert!(ways.iter().all(|(messages, _)| *messages >= 2500), "{ways:?}");
    assert!(ways.iter().all(|(_, fastest)| *fastest >= 0), "before it was sent: {ways:?}");
}

#[test]
fn a_call_that_fails_is_in_the_trace() {
    let folder = Folder::new();
    let path = folder.at("trace.json");
    let ranks = Ranks::start(2, |_, command| {
        command.arg("exit").env("RINGFOLD_TRACE", &path);
    });
    drop(ranks.causes(1));
    drop(ranks.finish(LONG));
    let trace = Trace::read(&path);
    let calls: Vec<&Value> = trace.of_rank("call", 0).collect();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls[0]["args"].get("failed").is_none(), "{calls:?}");
    assert!(calls[1]["args"]["failed"] == true && calls[1]["args"]["seq"] == 2, "{calls:?}");
    // A process that exits without leaving has written its calls.
    assert_eq!(trace.of_rank("call", 1).count(), 1);
}

#[test]
fn wrong_places_are_refused_before_any_rank_joins() {
    let folder = Folder::new();
    for wrong in [&folder.at("."), &folder.at("no/folder/trace.json"), "/dev/full"] {
        let mut command = Command::new(program::own("rank"));
        command.args(["rich", "8"]).env("RINGFOLD_TRACE", wrong);
        let outcome = Job::start(&mut command).finish(LONG);
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!outcome.status.success() && text.contains("RINGFOLD_TRACE"), "{outcome:?}");
    }
}

#[test]
fn a_trace_on_some_ranks_is_refused() {
    let folder = Folder::new();
    let path = folder.at("trace.json");
    let ranks = Ranks::start(2, |rank, command| {
        let value = if rank == 0 { path.as_str() } else { "" };
        command.args(["rich", "8"]).env("RINGFOLD_TRACE", value);
    });
    for outcome in ranks.finish(LONG) {
        let differ = "ranks differ in RINGFOLD_TRACE: rank 0 has set, rank 1 has unset";
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!outcome.status.success() && text.contains(differ), "{outcome:?}");
    }
}

/// Two ranks that send more than the file takes warn once each at most, and end well. The file is
/// whole, and the later events are missing.
fn ends_well(outcomes: &[Outcome], trace: &Trace) {
    assert!(outcomes.iter().all(|it| it.status.success()), "{outcomes:?}");
    let warning = "lacks events of this process, and the job goes on";
    let warned: Vec<usize> = outcomes.iter().map(|it| it.stderr.matches(warning).count()).collect();
    assert!(warned.iter().sum::<usize>() >= 1, "{outcomes:?}");
    let messages = trace.0.iter().filter(|it| it["cat"] == "message").count();
    assert!(messages < 20_000, "all {messages} are there");
}

#[test]
fn a_file_that_may_not_grow_stops_no_job() {
    let folder = Folder::new();
    let path = folder.at("trace.json");
    let rank = program::own("rank");
    // In blocks of 512 bytes. More would kill the process by a signal.
    let script = format!("ulimit -f 800; exec {} traced 10 5000", rank.display());
    let ranks = Ranks::of("sh", 2, |_, command| {
        command.args(["-c", &script]).env("RINGFOLD_TRACE", &path).env("RINGFOLD_DEBUG", "WARN");
        command.env("RINGFOLD_TRANSPORT", "tcp");
    });
    let outcomes = ranks.finish(LONG);
    assert!(fs::metadata(&path).unwrap().len() <= 800 * 512);
    ends_well(&outcomes, &Trace::read(&path));
    assert!(outcomes.iter().any(|it| it.stderr.contains("ulimit -f")), "{outcomes:?}");
}

#[test]
fn a_limit_without_room_for_any_file_kills_no_process() {
    let folder = Folder::new();
    let script = format!("ulimit -f 0; exec {} rich 8", program::own("rank").display());
    for (name, is_refused) in
        [("RINGFOLD_TRACE", true), ("RINGFOLD_METRICS", true), ("RINGFOLD_DUMP", false)]
    {
        let ranks = Ranks::of("sh", 2, |_, command| {
            command.args(["-c", &script]).env(name, folder.at("there"));
            command.env("RINGFOLD_DEBUG", "WARN").env("RINGFOLD_TRANSPORT", "tcp");
        });
        for outcome in ranks.finish(LONG) {
            let text = format!("{}{}", outcome.stdout, outcome.stderr);
            // A panic of the program has another status, and a signal has none.
            assert_eq!(outcome.status.code(), Some(if is_refused { 3 } else { 0 }), "{outcome:?}");
            assert!(text.contains(name) && text.contains("raise `ulimit -f`"), "{outcome:?}");
        }
    }
}

#[test]
fn a_later_job_keeps_the_events_of_one_that_runs() {
    let folder = Folder::new();
    let [path, stop] = ["trace.json", "stop"].map(|name| folder.at(name));
    let start = |args: &[&str]| {
        Ranks::start(2, |_, command| {
            command.args(args).env("RINGFOLD_TRACE", &path).env("RINGFOLD_TRANSPORT", "tcp");
        })
    };
    let first = start(&["counted", "1000", "20", &stop]);
    first.wait_for("counted");
    let second = start(&["traced", "10", "10"]);
    let pids: Vec<u32> = second.0.iter().map(Job::id).collect();
    for outcome in second.finish(LONG) {
        assert!(outcome.status.success(), "{outcome:?}");
    }
    fs::write(&stop, "").unwrap();
    drop(first.finish(LONG));
    let trace = Trace::read(&path);
    let calls = |rank: u64| trace.of_rank("call", rank).count();
    assert_eq!([calls(0), calls(1)], [21, 21], "of the first job");
    for pid in pids {
        // Its ranks are in the file already.
        let place = ringfold_types::limits::RANKS_MAX as u64 + u64::from(pid);
        assert_eq!(calls(place - 1), 11, "of process {pid}");
    }
    // A job that begins when no process writes the file replaces it.
    drop(start(&["traced", "10", "10"]).finish(LONG));
    assert_eq!(Trace::read(&path).of_rank("call", 0).count(), 11);
}

#[test]
fn a_disk_that_fills_stops_no_job() {
    if !needed::is_root("mounts") {
        return;
    }
    let folder = Folder::new();
    let (disk, copy) = (folder.at("disk"), folder.at("copy"));
    fs::create_dir(&disk).unwrap();
    let [run, rank] = [program::binary("ringrun"), program::own("rank")];
    let [run, rank] = [run.display(), rank.display()];
    let script = format!(
        "mount -t tmpfs -o size=400k tmpfs {disk} || exit 9\n\
         RINGFOLD_TRACE={disk}/trace.json {run} -n 2 {rank} traced 10 5000 || exit 8\n\
         cat {disk}/trace.json > {copy}"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).env("RINGFOLD_DEBUG", "WARN");
    let outcome = Job::start(&mut command).finish(LONG);
    if outcome.code() == 9 && !needed::skipped("mounts", "mount -t tmpfs") {
        return;
    }
    ends_well(&[outcome], &Trace::read(&copy));
}

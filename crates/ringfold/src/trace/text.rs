//! The events of a process as JSON, in tracks.
//!
//! The process is a rank. Each group has a track with its calls, which have the waits inside, and
//! further tracks with its messages. Events of a track follow each other or lie within each other:
//! an event that would overlap its predecessor begins later, or takes another track.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use ringfold_bootstrap::Logged;
use ringfold_collectives::Algorithm;
use ringfold_types::Call;

use super::event::{Arrow, Event, GroupId, Owner, Passed, What};
use super::file::SEPARATOR;

/// The ends of calls of a group that a later wait may have outlasted.
const ENDS_KEPT: usize = 4096;

/// The groups whose tracks go on. A group that was left alone while others came has new tracks
/// later.
const GROUPS_KEPT: usize = 256;

/// The tracks of a process.
#[derive(Debug)]
pub(super) struct Tracks {
    owner: Owner,
    groups: BTreeMap<GroupId, Group>,
    /// The number of the latest track.
    last: u32,
    /// The time of the latest event.
    latest: u64,
    is_named: bool,
}

/// The tracks of a group.
#[derive(Debug)]
struct Group {
    name: String,
    /// The time of the latest event.
    latest: u64,
    /// The number of the track of calls.
    calls: u32,
    /// The ends of the latest calls, in their order.
    ends: Vec<u64>,
    /// The latest wait.
    wait: (u64, u64),
    /// The tracks of messages, and the end of the last one on each.
    messages: Vec<(u32, u64)>,
    is_named: bool,
}

/// A time in microseconds, as the format has it.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// The content of a JSON text.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '"' | '\\' => write!(f, "\\{character}"),
            it if it.is_control() => f.write_char('?'),
            it => f.write_char(it),
        })
    }
}

impl Tracks {
    pub(super) const fn new(owner: Owner) -> Self {
        Self { owner, groups: BTreeMap::new(), last: 0, latest: 0, is_named: false }
    }

    /// The events as JSON objects, each behind a separator, with the names of new tracks. `names`
    /// has those of the groups of all events.
    pub(super) fn text(
        &mut self,
        events: &[Event],
        lost: u64,
        names: &BTreeMap<GroupId, String>,
    ) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, events, lost, names);
        self.keep_latest();
        text
    }

    /// Removes the groups with the oldest events, if there are too many.
    fn keep_latest(&mut self) {
        if self.groups.len() > GROUPS_KEPT {
            let mut times: Vec<u64> = self.groups.values().map(|group| group.latest).collect();
            times.sort_unstable();
            let oldest = times[times.len() - GROUPS_KEPT / 2];
            self.groups.retain(|_, group| group.latest >= oldest);
        }
    }

    /// Whether the file has the name of the process.
    pub(super) const fn is_named(&self) -> bool {
        self.is_named
    }

    /// Has the next text name all tracks again.
    pub(super) fn forget(&mut self) {
        self.is_named = false;
        self.groups.values_mut().for_each(|group| {
            group.is_named = false;
            group.messages.clear();
        });
    }

    fn write(
        &mut self,
        out: &mut String,
        events: &[Event],
        lost: u64,
        names: &BTreeMap<GroupId, String>,
    ) -> fmt::Result {
        let Self { owner, groups, last, latest, is_named } = self;
        let pid = owner.pid;
        if !std::mem::replace(is_named, true) {
            let title = Escaped(&owner.title);
            write!(out, "{SEPARATOR}{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},")?;
            write!(out, "\"args\":{{\"name\":\"{title}\"}}}}")?;
            write!(out, "{SEPARATOR}{{\"ph\":\"M\",\"name\":\"process_sort_index\",")?;
            write!(out, "\"pid\":{pid},\"args\":{{\"sort_index\":{pid}}}}}")?;
        }
        for event in events {
            let group = groups.entry(event.group).or_insert_with(|| {
                *last += 1;
                Group::new(names.get(&event.group).cloned().unwrap_or_default(), *last)
            });
            if !std::mem::replace(&mut group.is_named, true) {
                name_track(out, pid, group.calls, &group.name)?;
            }
            *latest = event.until.max(*latest);
            group.latest = event.until.max(group.latest);
            match event.what {
                What::Call(call) => {
                    let since = group.begin_of_call(event.since, event.until);
                    head(out, owner, group.calls, since)?;
                    write_call(out, (since, event.until), &Logged::from(&call))?;
                }
                What::Wait => {
                    let (since, until) = group.bounds_of_wait(event.since, event.until);
                    if since < until {
                        head(out, owner, group.calls, since)?;
                        let took = Micros(until - since);
                        write!(out, "\"ph\":\"X\",\"dur\":{took},\"cat\":\"wait\",")?;
                        write!(out, "\"name\":\"wait\"}}")?;
                    }
                }
                What::Message(message) => {
                    // A viewer ties an arrow to an event that lasts.
                    let (since, until) = (event.since, event.until.max(event.since + 1));
                    let track = group.track_of_message(since, until, || {
                        *last += 1;
                        *last
                    });
                    let (track, is_new) = track;
                    if is_new {
                        name_track(out, pid, track, &format!("{} messages", group.name))?;
                    }
                    head(out, owner, track, since)?;
                    write_message(out, (since, until), message)?;
                    head(out, owner, track, since)?;
                    write_arrow(out, message.arrow)?;
                }
                What::Bytes(arrow) => {
                    head(out, owner, group.calls, event.since)?;
                    write_arrow(out, arrow)?;
                }
            }
        }
        // Events that were lost had a group.
        if lost > 0
            && let Some(group) = groups.values_mut().next()
        {
            if !std::mem::replace(&mut group.is_named, true) {
                name_track(out, pid, group.calls, &group.name)?;
            }
            head(out, owner, group.calls, *latest)?;
            write!(out, "\"ph\":\"i\",\"s\":\"p\",\"cat\":\"lost\",\"name\":\"lost events\",")?;
            write!(out, "\"args\":{{\"events\":{lost}}}}}")?;
        }
        Ok(())
    }
}

impl Group {
    const fn new(name: String, calls: u32) -> Self {
        Self {
            name,
            latest: 0,
            calls,
            ends: Vec::new(),
            wait: (0, 0),
            messages: Vec::new(),
            is_named: false,
        }
    }

    /// Notes a call, and returns the time at which its track has it begin.
    fn begin_of_call(&mut self, since: u64, until: u64) -> u64 {
        let (waited_since, waited_until) = self.wait;
        let is_cut = waited_since < since && since < waited_until && waited_until < until;
        let since = if is_cut { waited_until } else { since };
        if self.ends.len() == 2 * ENDS_KEPT {
            self.ends.drain(..ENDS_KEPT);
        }
        let since = since.max(self.ends.last().copied().unwrap_or(0)).min(until);
        self.ends.push(until);
        since
    }

    /// Notes a wait, and returns the times for which its track has it. A wait that outlasts a call
    /// ends with it.
    fn bounds_of_wait(&mut self, since: u64, until: u64) -> (u64, u64) {
        let since = since.max(self.wait.1);
        let ended = self.ends.get(self.ends.partition_point(|end| *end <= since));
        let until = ended.map_or(until, |end| until.min(*end));
        if since < until {
            self.wait = (since, until);
        }
        (since, until)
    }

    /// The first track with room for a message, and whether it is new.
    fn track_of_message(
        &mut self,
        since: u64,
        until: u64,
        next: impl FnOnce() -> u32,
    ) -> (u32, bool) {
        if let Some((track, end)) = self.messages.iter_mut().find(|(_, end)| *end <= since) {
            *end = until;
            return (*track, false);
        }
        let track = next();
        self.messages.push((track, until));
        (track, true)
    }
}

fn name_track(out: &mut String, pid: u64, track: u32, name: &str) -> fmt::Result {
    let name = if name.is_empty() { "other groups" } else { name };
    write!(out, "{SEPARATOR}{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},")?;
    write!(out, "\"tid\":{track},\"args\":{{\"name\":\"{}\"}}}}", Escaped(name))
}

/// The beginning of an event of this time.
fn head(out: &mut String, owner: &Owner, track: u32, at: u64) -> fmt::Result {
    let (pid, at) = (owner.pid, Micros(at.saturating_add_signed(owner.clock_offset)));
    write!(out, "{SEPARATOR}{{\"pid\":{pid},\"tid\":{track},\"ts\":{at},")
}

fn write_call(out: &mut String, (since, until): (u64, u64), call: &Logged) -> fmt::Result {
    let (text, took) = (call.text(), Micros(until - since));
    let name = text.split(' ').next().unwrap_or_default();
    write!(out, "\"ph\":\"X\",\"dur\":{took},\"cat\":\"call\",\"name\":\"{}\",", Escaped(name))?;
    write!(out, "\"args\":{{\"call\":\"{}\",\"seq\":{}", Escaped(&text), call.seq)?;
    let [kinds, count, root, ..] = call.words;
    if let Ok(plain) = Call::from_words([kinds, count, root]) {
        let bytes = (plain.count as u64).saturating_mul(plain.data_type.bytes() as u64);
        write!(out, ",\"bytes\":{bytes}")?;
        if let Some(algorithm) = Algorithm::of(plain.collective).get(usize::from(call.algorithm)) {
            write!(out, ",\"algorithm\":\"{}\"", algorithm.name)?;
        }
    }
    if !call.finished {
        write!(out, ",\"failed\":true")?;
    }
    write!(out, "}}}}")
}

fn write_message(out: &mut String, (since, until): (u64, u64), message: Passed) -> fmt::Result {
    let Passed { peer, tag, bytes, arrow } = message;
    let (name, took) = (if arrow.is_sent { "send" } else { "receive" }, Micros(until - since));
    write!(out, "\"ph\":\"X\",\"dur\":{took},\"cat\":\"message\",\"name\":\"{name}\",")?;
    write!(out, "\"args\":{{\"peer\":{peer},\"tag\":{tag},\"bytes\":{bytes}}}}}")
}

fn write_arrow(out: &mut String, Arrow { id, is_sent }: Arrow) -> fmt::Result {
    let end = if is_sent { "\"ph\":\"s\"" } else { "\"ph\":\"f\",\"bp\":\"e\"" };
    write!(out, "{end},\"cat\":\"arrow\",\"name\":\"arrow\",\"id\":\"{id:#x}\"}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_track_do_not_overlap() {
        let mut group = Group::new(String::new(), 1);
        assert_eq!(group.bounds_of_wait(12, 15), (12, 15));
        assert_eq!(group.begin_of_call(10, 20), 10);
        // It began within that call, and a later call ended meanwhile too.
        assert_eq!(group.begin_of_call(20, 25), 20);
        assert_eq!(group.bounds_of_wait(18, 30), (18, 20));
        // It began before a call that goes on.
        assert_eq!(group.bounds_of_wait(32, 40), (32, 40));
        assert_eq!(group.begin_of_call(35, 50), 40);
        let mut next = 1;
        let mut track = |since, until| {
            group.track_of_message(since, until, || {
                next += 1;
                next
            })
        };
        assert_eq!(
            [track(0, 10), track(10, 12), track(11, 13)],
            [(2, true), (2, false), (3, true)]
        );
        assert_eq!([track(12, 14), track(13, 15)], [(2, false), (3, false)]);
    }

    #[test]
    fn lost_events_are_counted() {
        let owner = Owner { pid: 3, title: "rank 2".to_owned(), clock_offset: 0 };
        let mut tracks = Tracks::new(owner);
        let text = tracks.text(&[], 0, &BTreeMap::new());
        assert!(text.contains("\"rank 2\"") && !text.contains("lost"), "{text}");
        assert_eq!(tracks.text(&[], 0, &BTreeMap::new()), "");
        let wait = Event { group: [0; 2], since: 5, until: 9, what: What::Wait };
        assert!(tracks.text(&[wait], 0, &BTreeMap::new()).contains("\"thread_name\""));
        // That text found no room.
        tracks.forget();
        let text = tracks.text(&[], 7, &BTreeMap::new());
        assert!(text.contains("\"lost events\",\"args\":{\"events\":7}"), "{text}");
        assert!(text.contains("\"rank 2\"") && text.contains("\"thread_name\""), "{text}");
    }

    #[test]
    fn groups_that_come_and_go_take_bounded_memory() {
        let owner = Owner { pid: 3, title: "rank 2".to_owned(), clock_offset: 0 };
        let mut tracks = Tracks::new(owner);
        for number in 0..100 * GROUPS_KEPT as u64 {
            // The first group lives on.
            let groups = [[0; 2], [number + 1, 0]];
            let names = groups.map(|group| (group, format!("group {}", group[0])));
            let events = groups.map(|group| {
                let (since, until) = (10 * number, 10 * number + 5);
                Event { group, since, until, what: What::Wait }
            });
            let text = tracks.text(&events, 0, &BTreeMap::from(names));
            assert!(text.contains(&format!("\"group {}\"", number + 1)), "{text}");
            assert_eq!(text.contains("\"group 0\""), number == 0, "it keeps its track: {text}");
            assert!(tracks.groups.len() <= GROUPS_KEPT);
        }
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(Escaped("a\"b\\c\nd\u{e9}").to_string(), "a\\\"b\\\\c?d\u{e9}");
        assert_eq!(Micros(1_002_003).to_string(), "1002.003");
    }
}

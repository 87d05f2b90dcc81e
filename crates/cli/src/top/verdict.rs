//! The verdict on a group after one look: whether it moves, computes, is slow, or hangs, and which
//! rank the others wait for. It has no I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfold_bootstrap::AwaitedMessage;

use crate::records::{State, described_message};

/// A job whose ranks wait for less time than this is healthy.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// A job whose ranks wait for more time than this hangs, if their wait is also unusual.
const HUNG_AFTER: Duration = Duration::from_secs(5);
/// A wait is unusual from this multiple of the longest time that the late rank computed before.
const UNUSUAL: u32 = 10;
/// A wait is long from this multiple.
const LONG: u32 = 3;

/// The judgement, from best to worst, with its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    /// Calls end.
    Healthy = 0,
    /// No rank waits.
    Computing = 10,
    /// Ranks wait for long.
    Slow = 11,
    /// Ranks wait for one that does not come.
    Hung = 12,
}

impl Health {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Computing => "computing",
            Self::Slow => "slow",
            Self::Hung => "hung",
        }
    }
}

/// A verdict with its sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) health: Health,
    pub(crate) sentence: String,
    /// The ranks that the others wait for.
    pub(crate) ranks: Vec<u64>,
    /// Whether a rank that the others wait for waits itself, in another group.
    pub(crate) is_indirect: bool,
}

impl Verdict {
    /// A verdict that names no rank.
    pub(crate) const fn of(health: Health, sentence: String) -> Self {
        Self { health, sentence, ranks: Vec::new(), is_indirect: false }
    }
}

/// A message for which a rank waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub(crate) message: AwaitedMessage,
    /// The time since the wait began.
    pub(crate) age: Duration,
}

/// A rank of a group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) rank: u64,
    /// The name of the host, if there are several.
    pub(crate) host: Option<String>,
    pub(crate) pid: u64,
    pub(crate) state: State,
    /// The number of the call in which it is, or of its next one.
    pub(crate) seq: u64,
    /// The operation in which it is, as in `allreduce`.
    pub(crate) inside: Option<String>,
    /// The time since the call began, or since the last call or message ended.
    pub(crate) age: Duration,
    /// The longest time that it spent between two calls before.
    pub(crate) usual: Duration,
    /// The message for which it waits.
    pub(crate) awaited: Option<Awaited>,
    /// The longest time that it waited for a message before.
    pub(crate) longest_wait: Duration,
    /// Whether it entered or ended a call or a message during the look.
    pub(crate) has_moved: bool,
    /// The call of another group in which it is.
    pub(crate) elsewhere: Option<String>,
    /// The latest failure of the group that it knows.
    pub(crate) failure: Option<String>,
}

/// Judges a group of `size` ranks by those that are seen. The `silent` ranks are on hosts that do
/// not answer.
pub(crate) fn judge(members: &[Member], size: u64, silent: &[u64]) -> Verdict {
    if let Some(verdict) = ended(members).or_else(|| stopped(members)) {
        return verdict;
    }
    let found = mismatched(members).or_else(|| awaiting(members)).or_else(|| late(members));
    if let Some(verdict) = found {
        return verdict;
    }
    let seq = members.iter().map(|it| it.seq).max().unwrap_or(0);
    let calling = members.iter().filter(|it| it.inside.is_some());
    let (count, has_moved) = (calling.clone().count(), members.iter().any(|it| it.has_moved));
    let (oldest, youngest) =
        (members.iter().map(|it| it.age).max(), members.iter().map(|it| it.age));
    let (oldest, youngest) = (oldest.unwrap_or_default(), youngest.min().unwrap_or_default());
    if count == members.len() && !has_moved && !silent.is_empty() && oldest >= SLOW_AFTER {
        let health = if oldest >= HUNG_AFTER { Health::Hung } else { Health::Slow };
        let operation = calling.clone().find_map(|it| it.inside.clone()).unwrap_or_default();
        let sentence = format!(
            "{} not seen, on hosts that do not answer; {} in {operation} #{seq} for {}",
            plural(silent.len()),
            plural(count),
            seconds(oldest)
        );
        return Verdict { ranks: silent.to_vec(), ..verdict(health, sentence, &[]) };
    }
    if count == members.len() && !has_moved && oldest >= HUNG_AFTER {
        let operation = calling.clone().find_map(|it| it.inside.clone()).unwrap_or_default();
        let others = match size.saturating_sub(members.len() as u64) {
            0 => String::new(),
            others => format!("; {others} ranks are not seen"),
        };
        let (count, age) = (plural(count), seconds(oldest));
        let sentence = format!("{count} in {operation} #{seq} for {age}{others}");
        return verdict(Health::Slow, sentence, &[]);
    }
    let awaits = members.iter().any(|it| it.awaited.is_some());
    if has_moved || count > 0 || awaits || youngest < SLOW_AFTER {
        let sentence = format!("calls go on at #{seq}; no rank has waited for long");
        return verdict(Health::Healthy, sentence, &[]);
    }
    let sentence = format!("all ranks compute; the last call ended {} ago", seconds(youngest));
    verdict(Health::Computing, sentence, &[])
}

/// A rank has ended without leaving, or the group has failed.
fn ended(members: &[Member]) -> Option<Verdict> {
    let living: Vec<_> = members.iter().filter(|it| it.state != State::Gone).collect();
    let known = living.iter().find_map(|it| it.failure.clone());
    if let Some(cause) = known {
        return Some(verdict(Health::Hung, format!("the group has failed: {cause}"), &[]));
    }
    let gone: Vec<_> = members.iter().filter(|it| it.state == State::Gone).collect();
    let first = gone.first()?;
    let why = first.failure.as_ref().map_or_else(String::new, |cause| format!(" after {cause}"));
    let sentence =
        format!("{} ended without leaving{why}; {}", named(&gone), waiters_of(&living, &gone));
    Some(verdict(Health::Hung, sentence, &gone))
}

fn stopped(members: &[Member]) -> Option<Verdict> {
    let (stopped, others): (Vec<_>, Vec<_>) =
        members.iter().partition(|it| it.state == State::Stopped);
    stopped.first()?;
    let verb = if stopped.len() == 1 { "is" } else { "are" };
    let sentence = format!(
        "{} {verb} stopped by a signal; {}",
        named(&stopped),
        waiters_of(&others, &stopped)
    );
    Some(verdict(Health::Hung, sentence, &stopped))
}

/// Ranks are in different operations of the same number.
fn mismatched(members: &[Member]) -> Option<Verdict> {
    let still = members.iter().filter(|it| !it.has_moved && it.age >= SLOW_AFTER);
    let mut calls = BTreeMap::<_, Vec<&Member>>::new();
    for member in still {
        let Some(operation) = &member.inside else { continue };
        calls.entry((member.seq, operation)).or_default().push(member);
    }
    let seq = calls
        .keys()
        .map(|(seq, _)| *seq)
        .find(|seq| calls.keys().filter(|(other, _)| other == seq).count() > 1)?;
    let mut sides: Vec<_> = calls.iter().filter(|((other, _), _)| *other == seq).collect();
    sides.sort_by_key(|(_, members)| members.len());
    let (((_, odd), few), ((_, common), many)) = (sides[0], sides[sides.len() - 1]);
    let verb = if few.len() == 1 { "is" } else { "are" };
    let sentence = format!(
        "{} {verb} in {odd} #{seq}, while {} in {common} #{seq}",
        named(few),
        plural(many.len())
    );
    Some(verdict(Health::Hung, sentence, few))
}

/// A rank that others wait for, at the end of a chain of awaited messages.
struct Root<'m> {
    /// The rank that waits for the last message of the chain.
    waiter: &'m Member,
    awaited: Awaited,
    /// The sender or receiver of that message, if it is seen and named.
    peer: Option<&'m Member>,
    /// The ranks that are late: the peer if it waits for nobody, or those that wait for each other,
    /// or the waiter.
    late: Vec<&'m Member>,
}

/// Follows the chain of messages for which a rank waits. Returns `None` if it moves.
fn root_of<'m>(members: &'m [Member], first: &'m Member) -> Option<Root<'m>> {
    let mut chain = vec![first];
    loop {
        let waiter = *chain.last()?;
        let awaited = waiter.awaited.filter(|_| !waiter.has_moved)?;
        let rank = awaited.message.peer.map(u64::from);
        let peer = members.iter().find(|it| Some(it.rank) == rank);
        let late = match peer {
            Some(peer) if peer.has_moved => return None,
            Some(peer) if peer.inside.is_none() && peer.awaited.is_none() => vec![peer],
            Some(peer) if peer.inside.is_none() => {
                match chain.iter().position(|it| it.rank == peer.rank) {
                    Some(at) => chain.split_off(at),
                    None => {
                        chain.push(peer);
                        continue;
                    }
                }
            }
            // The peer is in a collective, or is not seen, or any rank may send.
            _ => vec![waiter],
        };
        return Some(Root { waiter, awaited, peer, late });
    }
}

/// Ranks wait for messages.
fn awaiting(members: &[Member]) -> Option<Verdict> {
    let is_idle = |it: &Member| it.inside.is_none() && it.awaited.is_none();
    let mut roots: Vec<_> = members
        .iter()
        .filter(|it| it.awaited.is_some())
        .filter_map(|it| Some((it, root_of(members, it)?)))
        .collect();
    let has_idle = |root: &Root<'_>| root.late.iter().any(|it| is_idle(it));
    let first = members.iter().map(|it| it.seq).min()?;
    // Ranks in a collective wait for those that are outside, which explain more than messages.
    let is_late = |it: &Member| is_idle(it) && it.seq == first && !it.has_moved;
    let calls = members.iter().any(|it| it.inside.is_some());
    if calls && members.iter().any(is_late) && !roots.iter().any(|(_, root)| has_idle(root)) {
        return None;
    }
    if roots.iter().any(|(_, root)| has_idle(root)) {
        roots.retain(|(_, root)| has_idle(root));
    }
    // The longest wait comes first.
    roots.sort_by_key(|(waiter, _)| std::cmp::Reverse(waiter.awaited.map(|it| it.age)));
    let mut late = Vec::<&Member>::new();
    for member in roots.iter().flat_map(|(_, root)| &root.late) {
        if !late.iter().any(|it| it.rank == member.rank) {
            late.push(member);
        }
    }
    late.sort_by_key(|it| it.rank);
    let (waiter, root) = roots.first()?;
    let in_calls = members.iter().filter(|it| it.inside.is_some() && !it.has_moved);
    let of_calls = in_calls.filter(|it| late.iter().all(|late| late.seq <= it.seq));
    let wait = of_calls.map(|it| it.age).chain(waiter.awaited.map(|it| it.age)).max()?;
    let usual = late.iter().map(|it| it.usual);
    let usual = usual.chain(roots.iter().map(|(waiter, _)| waiter.longest_wait)).max()?;
    let health = health_of(wait, usual)?;
    let Root { waiter, awaited, peer, .. } = root;
    let place = match peer {
        None if awaited.message.peer.is_some() => ", which is not seen".to_owned(),
        None => String::new(),
        Some(Member { inside: Some(operation), seq, .. }) => {
            format!(", which is in {operation} #{seq}")
        }
        Some(Member { awaited: Some(other), .. }) => {
            format!(", which waits for {}", described_message(other.message))
        }
        Some(Member { elsewhere: Some(call), .. }) => format!(", which has been in {call}"),
        Some(Member { age, .. }) => {
            format!(", which has been outside ringfold for {}", seconds(*age))
        }
    };
    let others: Vec<_> = members.iter().collect();
    let others = match waiting(&others, late.first()?.seq, &[]) {
        Some(others) => format!("; {others}"),
        None if roots.len() > 1 => format!("; {} ranks wait for messages", roots.len()),
        None => String::new(),
    };
    let (waiter, age, message) =
        (named(&[waiter]), seconds(awaited.age), described_message(awaited.message));
    let sentence = format!("{waiter} waits {age} for {message}{place}{others}");
    Some(verdict(health, sentence, &late))
}

/// The judgement on a wait of ranks, where one usually lasts for this time at most. `None` if it is
/// not long.
fn health_of(wait: Duration, usual: Duration) -> Option<Health> {
    if wait >= HUNG_AFTER.max(usual * UNUSUAL) {
        Some(Health::Hung)
    } else {
        (wait >= SLOW_AFTER.max(usual * LONG)).then_some(Health::Slow)
    }
}

/// Ranks wait in a call that others have not begun.
fn late(members: &[Member]) -> Option<Verdict> {
    let first = members.iter().map(|it| it.seq).min()?;
    let late: Vec<_> = members.iter().filter(|it| it.seq == first && it.inside.is_none()).collect();
    let late: Vec<_> = late.into_iter().filter(|it| !it.has_moved).collect();
    let waits = |it: &&Member| it.inside.is_some() && !it.has_moved;
    let waiters: Vec<_> = members.iter().filter(waits).collect();
    let is_within = members.iter().any(|it| it.seq == first && it.inside.is_some() && it.has_moved);
    let (usual, out) = (late.iter().map(|it| it.usual).max()?, late.iter().map(|it| it.age).max()?);
    // Ranks that wait in this call for longer than the late one is outside began it before.
    let wait = waiters.iter().map(|it| it.age).max()?;
    let health = health_of(wait, usual).filter(|_| !is_within)?;
    let verb = if late.len() == 1 { "has" } else { "have" };
    let place = match late.iter().find_map(|it| it.elsewhere.as_ref()) {
        Some(call) if late.len() == 1 => format!("has been in {call}"),
        _ => format!("{verb} been outside ringfold for {}", seconds(out)),
    };
    let sentence = format!("{} {place}; {}", named(&late), waiters_of(&waiters, &late));
    Some(verdict(health, sentence, &late))
}

fn verdict(health: Health, sentence: String, ranks: &[&Member]) -> Verdict {
    let is_indirect = !ranks.is_empty() && ranks.iter().all(|it| it.elsewhere.is_some());
    Verdict { health, sentence, ranks: ranks.iter().map(|it| it.rank).collect(), is_indirect }
}

/// The ranks that wait for these `late` ones.
fn waiters_of(members: &[&Member], late: &[&Member]) -> String {
    let first = late.iter().map(|it| it.seq).min().unwrap_or(0);
    waiting(members, first, late).unwrap_or_else(|| "no rank waits for it yet".to_owned())
}

/// The ranks that are in call `seq` or a later one. If there are none, a rank that waits for a
/// message of one of these `peers`.
fn waiting(members: &[&Member], seq: u64, peers: &[&Member]) -> Option<String> {
    let waiters: Vec<_> =
        members.iter().filter(|it| it.seq >= seq && it.inside.is_some()).collect();
    let Some(first) = waiters.iter().min_by_key(|it| it.seq) else {
        let is_peer = |rank: u32| peers.iter().any(|it| it.rank == u64::from(rank));
        let waits = |it: &&&Member| {
            it.awaited.is_some_and(|awaited| awaited.message.peer.is_some_and(is_peer))
        };
        let waiter = members.iter().filter(waits).max_by_key(|it| it.awaited.map(|it| it.age))?;
        let Awaited { message, age } = waiter.awaited?;
        let (age, message) = (seconds(age), described_message(message));
        return Some(format!("{} waits {age} for {message}", named(&[waiter])));
    };
    let (operation, seq) = (first.inside.as_deref().unwrap_or_default(), first.seq);
    let verb = if waiters.len() == 1 { "rank waits" } else { "ranks wait" };
    Some(format!("{} {verb} for it in {operation} #{seq}", waiters.len()))
}

/// These ranks, as in `rank 3 (PID 4711)` or `ranks 3 5 7`.
fn named(members: &[&Member]) -> String {
    match members {
        [Member { rank, pid, host: None, .. }] => format!("rank {rank} (PID {pid})"),
        [Member { rank, pid, host: Some(host), .. }] => {
            format!("rank {rank} (PID {pid} on {host})")
        }
        many => {
            let ranks: Vec<_> = many.iter().take(8).map(|it| it.rank.to_string()).collect();
            let rest = if many.len() > 8 { " and others" } else { "" };
            format!("ranks {}{rest}", ranks.join(" "))
        }
    }
}

fn plural(count: usize) -> String {
    if count == 1 { "1 rank is".to_owned() } else { format!("{count} ranks are") }
}

/// A time as text.
pub(crate) fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        1..10 => format!("{:.1} s", time.as_secs_f64()),
        many => format!("{many} s"),
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;

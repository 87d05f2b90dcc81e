//! A group's task: its endpoints, its children, and the core between them. One task does all I/O
//! of a group, so the core needs no lock. Groups run beside each other.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::RdmaDevices;
use crate::wire::header::{Header, Kind};
use ringfold_types::limits;
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::core::Group;
use super::links::Endpoint;
use super::record::Record;
use super::uplink::{Parent, Uplink};

const BEAT: Duration = Duration::from_millis(limits::OFFLOAD_BEAT_MS);
const ATTACH: Duration = Duration::from_millis(limits::AGGREGATOR_ATTACH_MS);
/// The time in which a group that ends sends its children the reason, and in which late children
/// may come. The group keeps its memory until then.
const FAREWELL: Duration = Duration::from_millis(500);
/// Rounds after which a busy group lets others run.
const ROUNDS_MAX: usize = 64;

/// A group's task.
pub(crate) struct Session {
    core: Group,
    /// The endpoint for TCP, and behind it that for RDMA if there is one.
    ends: Vec<Endpoint>,
    record: Record,
    children: Vec<Child>,
    /// The link to the group above.
    uplink: Option<Uplink>,
    /// Bytes that children have handed over.
    bytes: u64,
    /// The time for which chunks have waited for others, without the wait that goes on.
    waited: Duration,
    /// The begin of the wait that goes on.
    waits_since: Option<Instant>,
    beat: Interval,
    /// The time since which no child is connected.
    empty_since: Option<Instant>,
    /// The end of the group, after it has failed.
    end: Option<End>,
}

/// The end of a group that has failed.
struct End {
    /// The time until which children are told the reason.
    at: Instant,
    reason: String,
}

/// A child, as far as its link is concerned.
#[derive(Debug, Default)]
struct Child {
    state: State,
    /// The message that arrives: its header, and the memory for its payload.
    message: Option<(Header, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The child has not come.
    #[default]
    Awaited,
    /// The child uses the endpoint of this number.
    Here(usize),
    /// The child has left as intended.
    Left,
}

/// Serves a group until all children have left, or until it has failed, or none has come for a
/// while. Then the group's share of the memory returns.
pub(crate) async fn serve(
    core: Group,
    ends: Vec<Endpoint>,
    record: Record,
    (above, key, devices): (Option<Parent>, [u8; 32], Option<Arc<RdmaDevices>>),
) {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let children = (0..core.shape().children()).map(|_| Child::default()).collect();
    let mut session = Session {
        core,
        ends,
        record,
        children,
        uplink: None,
        bytes: 0,
        waited: Duration::ZERO,
        waits_since: None,
        beat,
        empty_since: Some(Instant::now()),
        end: None,
    };
    if let Some(above) = above {
        session.connect_above(above, key, devices);
    }
    poll_fn(|cx| session.drive(cx)).await;
    tracing::info!(job = session.record.job, group = session.record.group, "the group ends");
    let Session { uplink, ends, .. } = session;
    let lease = ends[0].lease();
    // A link to the parent may take its time.
    spawn_blocking(move || drop((uplink, lease)));
}

impl Session {
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ends.iter_mut().for_each(Endpoint::disarm);
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.work();
            moved |= self.receive();
            moved |= self.climb(cx);
            moved |= self.send();
            self.count_wait();
            moved |= self.tick(cx);
            if self.is_over() {
                return Poll::Ready(());
            }
            if moved {
                self.ends.iter_mut().for_each(Endpoint::disarm);
                continue;
            }
            let mut may_sleep = true;
            for end in &mut self.ends {
                may_sleep &= end.may_sleep(cx);
            }
            if may_sleep {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether all children have left, or none has come for a while, or all children of a group
    /// that has failed have been told the reason, as far as they come in time.
    fn is_over(&self) -> bool {
        if let Some(end) = &self.end {
            let have_come = self.children.iter().all(|child| child.state != State::Awaited);
            let are_told = have_come && self.ends.iter().all(Endpoint::is_flushed);
            return are_told || Instant::now() >= end.at;
        }
        self.children.iter().all(|child| child.state == State::Left)
            || self.empty_since.is_some_and(|since| since.elapsed() > ATTACH)
    }

    /// Counts the time for which a chunk waits for others.
    fn count_wait(&mut self) {
        match (self.core.has_begun(), self.waits_since) {
            (true, None) => self.waits_since = Some(Instant::now()),
            (false, Some(since)) => {
                self.waited += since.elapsed();
                self.waits_since = None;
            }
            _ => {}
        }
    }

    /// Does the work of all links.
    fn work(&mut self) -> bool {
        let mut moved = false;
        for end in 0..self.ends.len() {
            match self.ends[end].poll() {
                Ok(some) => moved |= some,
                Err(reason) => moved |= self.fail(&reason),
            }
        }
        moved
    }

    fn receive(&mut self) -> bool {
        let mut moved = false;
        for child in 0..self.children.len() {
            for end in 0..self.ends.len() {
                match self.children[child].state {
                    State::Awaited => {}
                    // After a failure only those who come are heard.
                    State::Here(at) if at == end && self.end.is_none() => {}
                    State::Here(_) | State::Left => continue,
                }
                match self.receive_from(child, end) {
                    Ok(some) => moved |= some,
                    Err(_) if self.end.is_some() => self.children[child].state = State::Left,
                    Err(reason) => return self.fail(&format!("child {child}: {reason}")),
                }
            }
        }
        moved
    }

    /// Receives what has arrived from a child at an endpoint. Returns whether anything moved.
    fn receive_from(&mut self, child: usize, end: usize) -> Result<bool, String> {
        let mut moved = false;
        let text = |fault| format!("its connection ended: {fault}");
        let (links, messages) = self.ends[end].child(child);
        let it = &mut self.children[child];
        loop {
            let (header, mut part) = match it.message.take() {
                Some(message) => message,
                None => {
                    let Some(head) = messages.header(links).map_err(text)? else {
                        return Ok(moved);
                    };
                    let is_first = it.state == State::Awaited;
                    // From now on the child can be told a reason.
                    it.state = State::Here(end);
                    let header = Header::decode(&head).map_err(|bad| bad.to_string())?;
                    let bytes = header.bytes as usize;
                    let part = match header.kind {
                        Kind::Hello if is_first && bytes == 0 => Vec::new(),
                        _ if is_first => return Err("a first message that is no hello".into()),
                        Kind::Leave if bytes == 0 => Vec::new(),
                        Kind::Refused if bytes <= limits::OFFLOAD_REASON_BYTES_MAX => {
                            vec![0; bytes]
                        }
                        _ => self.core.begin(child, &header).map_err(|fault| fault.to_string())?,
                    };
                    (header, part)
                }
            };
            if !messages.payload(links, &mut part).map_err(text)? {
                it.message = Some((header, part));
                return Ok(moved);
            }
            moved = true;
            match header.kind {
                Kind::Hello => {
                    let reason = self.end.as_ref().map_or("", |end| &end.reason);
                    let kind = if self.end.is_some() { Kind::Refused } else { Kind::Welcome };
                    let answer = Header::plain(kind, u32::try_from(reason.len()).unwrap_or(0));
                    messages.post(links, &answer, reason.as_bytes()).map_err(text)?;
                    self.publish();
                    return Ok(true);
                }
                Kind::Leave => {
                    it.state = State::Left;
                    self.publish();
                    return Ok(true);
                }
                Kind::Refused => {
                    let reason = String::from_utf8_lossy(&part);
                    return Err(reason.chars().filter(|c| !c.is_control()).collect());
                }
                _ => {}
            }
            self.bytes += part.len() as u64;
            self.core.finish(child, &header, part).map_err(|fault| fault.to_string())?;
        }
    }

    /// Begins to connect to the group above.
    fn connect_above(&mut self, above: Parent, key: [u8; 32], devices: Option<Arc<RdmaDevices>>) {
        let shape = self.core.shape();
        match block_in_place(|| Uplink::connect(above, key, shape, devices.as_deref())) {
            Ok(uplink) => self.uplink = Some(uplink),
            Err(error) => drop(self.fail(&format!("its parent at {}: {error}", above.at.tcp))),
        }
    }

    /// Gives combined chunks to the group above, and takes its results.
    fn climb(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(uplink) = &mut self.uplink else { return false };
        let moved = uplink.exchange(cx, &mut self.core);
        let at = uplink.parent().at.tcp;
        moved.unwrap_or_else(|error| self.fail(&format!("its parent at {at}: {error}")))
    }

    fn send(&mut self) -> bool {
        let mut moved = false;
        for (child, it) in self.children.iter().enumerate() {
            let State::Here(end) = it.state else { continue };
            let (links, messages) = self.ends[end].child(child);
            // A link that has ended shows that to `receive`.
            if messages.flush(links).is_err() || self.end.is_some() {
                continue;
            }
            while let Some((header, bytes)) = self.core.result(child) {
                if !messages.send(links, &header, bytes).unwrap_or(false) {
                    break;
                }
                self.core.deliver(child);
                moved = true;
            }
        }
        moved
    }

    /// Sends heartbeats, and ends what has waited too long.
    fn tick(&mut self, cx: &mut Context<'_>) -> bool {
        if self.beat.poll_tick(cx).is_pending() {
            return false;
        }
        if self.end.is_some() {
            return true;
        }
        self.publish();
        // A child that has handed over a chunk would wait in vain for one that has left.
        let awaited = self.core.awaited();
        let has_waiting = (awaited.count_ones() as usize) < self.children.len();
        let is_missing =
            |child: &usize| awaited & 1 << child != 0 && self.children[*child].state == State::Left;
        if let Some(child) = (0..self.children.len()).find(is_missing).filter(|_| has_waiting) {
            return self.fail(&format!("child {child} has left"));
        }
        let above = self.uplink.as_ref().map_or(0, Uplink::awaited);
        let masks = [awaited.to_le_bytes(), above.to_le_bytes()].concat();
        let beat = Header::plain(Kind::Beat, u32::try_from(masks.len()).unwrap_or(0));
        for (child, it) in self.children.iter().enumerate() {
            let State::Here(end) = it.state else { continue };
            let (links, messages) = self.ends[end].child(child);
            let is_waiting = self.core.is_waiting(child) && self.core.result(child).is_none();
            if is_waiting && messages.is_idle() {
                // A link that has ended shows that to `receive`.
                messages.post(links, &beat, &masks).ok();
            }
        }
        true
    }

    /// Tells all children and the group above why this group ends. They have a moment to read it.
    /// Children who come within that moment are told too.
    fn fail(&mut self, reason: &str) -> bool {
        if self.end.is_some() {
            return false;
        }
        tracing::warn!(job = self.record.job, group = self.record.group, "{reason}");
        let told = &reason[..reason.floor_char_boundary(limits::OFFLOAD_REASON_BYTES_MAX)];
        self.end = Some(End { at: Instant::now() + FAREWELL, reason: told.to_owned() });
        let refusal = Header::plain(Kind::Refused, u32::try_from(told.len()).unwrap_or(0));
        for (child, it) in self.children.iter().enumerate() {
            let State::Here(end) = it.state else { continue };
            let (links, messages) = self.ends[end].child(child);
            // A result that has left in part leaves no room for the reason.
            if messages.is_idle() {
                messages.post(links, &refusal, told.as_bytes()).ok();
            }
        }
        if let Some(uplink) = self.uplink.take() {
            let (reason, lease) = (reason.to_owned(), self.ends[0].lease());
            spawn_blocking(move || {
                uplink.abandon(&reason);
                drop(lease);
            });
        }
        true
    }

    /// Shows the numbers of this group.
    fn publish(&mut self) {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let here = self.children.iter().filter_map(|child| match child.state {
            State::Here(end) => Some(self.ends[end].is_rdma),
            _ => None,
        });
        let (count, linked) =
            here.fold((0, 0), |(all, rdma), is_rdma| (all + 1, rdma + usize::from(is_rdma)));
        self.empty_since = (count == 0).then(|| self.empty_since.unwrap_or_else(Instant::now));
        let is_above = self.uplink.as_ref().is_some_and(Uplink::is_ready);
        let (chunks, bytes) = (self.core.combined(), self.bytes);
        let waited = self.waited + self.waits_since.map_or(Duration::ZERO, |it| it.elapsed());
        let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.record.change(|stats| {
            stats.children.1 = number(count);
            stats.linked = number(linked);
            (stats.chunks, stats.bytes, stats.waited) = (chunks, bytes, waited);
            stats.parent.iter_mut().for_each(|parent| parent.is_connected = is_above);
        });
    }
}

//! A group's task: its endpoint, its children's connections, and the core between them. One task
//! does all I/O of a group, so the core needs no lock. Groups run beside each other.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ringfold_transport::offload::handshake::Place;
use ringfold_transport::offload::header::{Header, Kind};
use ringfold_types::limits;
use tokio::net::TcpListener;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::connection::Connection;
use crate::core::Group;
use crate::greeting::{Greeted, Greeting};
use crate::pool::Lease;
use crate::record::Record;
use crate::uplink::Uplink;

const BEAT: Duration = Duration::from_millis(limits::OFFLOAD_BEAT_MS);
const ATTACH: Duration = Duration::from_millis(limits::AGGREGATOR_ATTACH_MS);
/// Rounds after which a busy group lets others run.
const ROUNDS_MAX: usize = 64;

/// A group's task.
pub(crate) struct Session {
    pub(crate) core: Group,
    pub(crate) number: u32,
    pub(crate) key: [u8; 32],
    pub(crate) listener: TcpListener,
    pub(crate) record: Arc<Record>,
    /// The group's share of the memory, which returns when the task ends.
    pub(crate) lease: Lease,
    children: Vec<Option<Connection>>,
    /// Children that have left as intended. Bit i is child i.
    left: u64,
    greetings: Vec<Greeting>,
    /// The connection to the group above, in each epoch a new one.
    uplink: Option<Uplink>,
    beat: Interval,
    /// The time since which no child is connected.
    empty_since: Option<Instant>,
    /// Whether all children have left as intended.
    is_over: bool,
}

impl Session {
    pub(crate) fn new(
        core: Group,
        (number, key): (u32, [u8; 32]),
        listener: TcpListener,
        record: Arc<Record>,
        lease: Lease,
    ) -> Self {
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let children = (0..core.shape().children()).map(|_| None).collect();
        Self {
            core,
            number,
            key,
            listener,
            record,
            lease,
            children,
            left: 0,
            greetings: Vec::new(),
            uplink: None,
            beat,
            empty_since: Some(Instant::now()),
            is_over: false,
        }
    }

    /// Serves the group until all children have left, or until none has come for a while.
    pub(crate) async fn run(mut self) {
        poll_fn(|cx| self.drive(cx)).await;
        tracing::info!(job = self.record.job, group = self.number, "the group ends");
        drop(self.lease);
    }

    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.accept(cx);
            moved |= self.greet(cx);
            moved |= self.receive(cx);
            moved |= self.climb(cx);
            moved |= self.send(cx);
            moved |= self.tick(cx);
            if self.is_over {
                return Poll::Ready(());
            }
            if !moved {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Accepts connections. At most twice as many as children greet at a time. The oldest gives way
    /// to a new one.
    fn accept(&mut self, cx: &mut Context<'_>) -> bool {
        let Poll::Ready(accepted) = self.listener.poll_accept(cx) else { return false };
        let Ok((stream, _)) = accepted else { return true };
        if let Ok(greeting) = Greeting::new(stream) {
            if self.greetings.len() >= 2 * self.children.len() {
                self.greetings.remove(0);
            }
            self.greetings.push(greeting);
        }
        true
    }

    fn greet(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut at = 0;
        while at < self.greetings.len() {
            let greeting = &mut self.greetings[at];
            match greeting.advance(cx, self.number, self.key) {
                Greeted::Waits => at += 1,
                Greeted::Proven(place) => {
                    let Greeting { connection, acceptor, .. } = self.greetings.remove(at);
                    let welcome = acceptor.map(|it| it.welcome()).unwrap_or_default();
                    self.admit(place, connection, &welcome);
                    moved = true;
                }
                Greeted::Refused(reason) => {
                    let message = refusal(self.number, 0, &reason);
                    self.greetings.remove(at).connection.close_with(&message);
                    tracing::warn!(group = self.number, "refused a connection: {reason}");
                    moved = true;
                }
            }
        }
        moved
    }

    fn admit(&mut self, place: Place, mut connection: Connection, welcome: &[u8]) {
        match self.core.attach(place.child.into(), place.epoch) {
            Ok(is_new) => {
                if is_new {
                    self.disconnect("another member has restarted the group");
                    self.left = 0;
                }
                connection.queue(welcome);
                self.children[usize::from(place.child)] = Some(connection);
                self.count_connected();
                if is_new {
                    self.connect_above();
                }
            }
            Err(fault) => {
                let message = refusal(self.number, place.epoch, &fault.to_string());
                connection.close_with(&message);
            }
        }
    }

    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        for child in 0..self.children.len() {
            match self.receive_from(child, cx) {
                Ok(some) => moved |= some,
                Err(reason) => {
                    let reason = format!("child {child}: {reason}");
                    tracing::warn!(job = self.record.job, group = self.number, "{reason}");
                    self.disconnect(&reason);
                    moved = true;
                }
            }
        }
        moved
    }

    fn receive_from(&mut self, child: usize, cx: &mut Context<'_>) -> Result<bool, String> {
        let mut moved = false;
        let Some(connection) = &mut self.children[child] else { return Ok(false) };
        let text = |e: std::io::Error| format!("its connection ended: {e}");
        loop {
            if connection.message.is_none() {
                let Some(head) = connection.header(cx).map_err(text)? else { return Ok(moved) };
                let header = Header::decode(&head).map_err(|e| e.to_string())?;
                let bytes = header.bytes as usize;
                if header.kind == Kind::Leave {
                    self.children[child] = None;
                    self.left |= 1 << child;
                    self.count_connected();
                    self.is_over = self.children.iter().all(Option::is_none);
                    return Ok(true);
                }
                if header.group != self.number {
                    return Err("a message of another group".into());
                }
                let part = match header.kind {
                    Kind::Refused if bytes <= limits::OFFLOAD_REASON_BYTES_MAX => vec![0; bytes],
                    _ => self.core.begin(child, &header).map_err(|fault| fault.to_string())?,
                };
                connection.message = Some((header, part));
            }
            let Some((header, part)) = connection.payload(cx).map_err(text)? else {
                return Ok(moved);
            };
            if header.kind == Kind::Refused {
                let reason = String::from_utf8_lossy(&part);
                return Err(reason.chars().filter(|c| !c.is_control()).collect());
            }
            let bytes = part.len() as u64;
            self.core.finish(child, &header, part).map_err(|fault| fault.to_string())?;
            self.record.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.record.chunks.store(self.core.combined(), Ordering::Relaxed);
            moved = true;
        }
    }

    /// Begins to connect to the group above, in the epoch that has begun.
    fn connect_above(&mut self) {
        let Some(above) = self.record.above else { return };
        let connected = Uplink::connect(above, self.key, self.core.epoch(), self.core.shape());
        match connected {
            Ok(uplink) => self.uplink = Some(uplink),
            Err(error) => self.disconnect(&format!("its parent at {}: {error}", above.at)),
        }
    }

    /// Gives combined chunks to the group above, and takes its results.
    fn climb(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(uplink) = &mut self.uplink else { return false };
        let moved = uplink.exchange(cx, &mut self.core);
        self.record.is_above.store(uplink.is_ready(), Ordering::Relaxed);
        let at = uplink.endpoint().at;
        moved.unwrap_or_else(|error| {
            let reason = format!("its parent at {at}: {error}");
            tracing::warn!(job = self.record.job, group = self.number, "{reason}");
            self.disconnect(&reason);
            true
        })
    }

    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        for child in 0..self.children.len() {
            let Some(connection) = &mut self.children[child] else { continue };
            // A connection that has ended shows that to `receive`.
            if connection.flush(cx).is_err() {
                continue;
            }
            while let Some((header, bytes)) = self.core.result(child) {
                let header = Header { group: self.number, ..header };
                if !connection.send(cx, &header, bytes).unwrap_or(false) {
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
        self.greetings.retain(|greeting| !greeting.is_overdue());
        // A child that has handed over a chunk would wait in vain for one that has left.
        let awaited = self.core.awaited();
        let has_waiting = (awaited.count_ones() as usize) < self.children.len();
        let missing = awaited & self.left;
        if has_waiting && missing != 0 {
            self.disconnect(&format!("child {} has left", missing.trailing_zeros()));
            return true;
        }
        if self.empty_since.is_some_and(|since| since.elapsed() > ATTACH) {
            self.is_over = true;
        }
        let above = self.uplink.as_ref().map_or(0, Uplink::awaited);
        let masks = [self.core.awaited().to_le_bytes(), above.to_le_bytes()].concat();
        for (child, connection) in self.children.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            if self.core.is_waiting(child) && self.core.result(child).is_none() {
                let place = place(self.number, self.core.epoch(), child);
                connection.queue(&place.message(Kind::Beat, &masks));
            }
        }
        true
    }

    /// Ends all connections of the epoch with the reason, also that to the group above. The
    /// children may connect again in a greater epoch.
    fn disconnect(&mut self, reason: &str) {
        let message = refusal(self.number, self.core.epoch(), reason);
        if let Some(uplink) = self.uplink.take() {
            uplink.abandon(reason);
        }
        self.record.is_above.store(false, Ordering::Relaxed);
        for connection in &mut self.children {
            if let Some(mut connection) = connection.take() {
                connection.close_with(&message);
            }
        }
        self.count_connected();
    }

    fn count_connected(&mut self) {
        let count = self.children.iter().flatten().count();
        self.record.connected.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.empty_since = (count == 0).then(|| self.empty_since.unwrap_or_else(Instant::now));
    }
}

/// A message that refuses or ends, with its reason cut to its limit.
fn refusal(group: u32, epoch: u32, reason: &str) -> Vec<u8> {
    let end = reason.floor_char_boundary(limits::OFFLOAD_REASON_BYTES_MAX);
    place(group, epoch, 0).message(Kind::Refused, &reason.as_bytes()[..end])
}

fn place(group: u32, epoch: u32, child: usize) -> Place {
    Place { group, epoch, child: u8::try_from(child).unwrap_or(u8::MAX) }
}

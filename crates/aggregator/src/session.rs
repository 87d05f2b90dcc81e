//! A group's task: its endpoint, its children's connections, and the core between them. One task
//! does all I/O of a group, so the core needs no lock. Groups run beside each other.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ringfold_transport::offload::handshake::{Acceptor, PAYLOAD_BYTES_MAX, Place, payload_bytes};
use ringfold_transport::offload::header::{Header, Kind};
use ringfold_types::limits;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::connection::Connection;
use crate::core::Group;
use crate::pool::Lease;
use crate::record::Record;

const BEAT: Duration = Duration::from_millis(limits::OFFLOAD_BEAT_MS);
const HANDSHAKE: Duration = Duration::from_millis(limits::HANDSHAKE_MS);
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
    greetings: Vec<Greeting>,
    beat: Interval,
    /// The time since which no child is connected.
    empty_since: Option<Instant>,
    /// Whether all children have left as intended.
    is_over: bool,
}

/// A connection before its child has proven itself.
struct Greeting {
    connection: Connection,
    acceptor: Option<Acceptor>,
    since: Instant,
}

/// The end of a greeting.
enum Greeted {
    Waits,
    Proven(Place),
    Refused(String),
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
        let children = (0..core.shape().children).map(|_| None).collect();
        Self {
            core,
            number,
            key,
            listener,
            record,
            lease,
            children,
            greetings: Vec::new(),
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
        if tune(&stream).is_ok() {
            if self.greetings.len() >= 2 * self.children.len() {
                self.greetings.remove(0);
            }
            let connection = Connection::new(stream);
            self.greetings.push(Greeting { connection, acceptor: None, since: Instant::now() });
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
                }
                connection.queue(welcome);
                self.children[usize::from(place.child)] = Some(connection);
                self.count_connected();
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
                if header.kind == Kind::Leave {
                    self.children[child] = None;
                    self.count_connected();
                    self.is_over = self.children.iter().all(Option::is_none);
                    return Ok(true);
                }
                if header.group != self.number {
                    return Err("a message of another group".into());
                }
                let part = self.core.begin(child, &header).map_err(|fault| fault.to_string())?;
                connection.message = Some((header, part));
            }
            let Some((header, part)) = connection.payload(cx).map_err(text)? else {
                return Ok(moved);
            };
            let bytes = part.len() as u64;
            self.core.finish(child, &header, part).map_err(|fault| fault.to_string())?;
            self.record.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.record.chunks.store(self.core.combined(), Ordering::Relaxed);
            moved = true;
        }
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
        self.greetings.retain(|greeting| greeting.since.elapsed() < HANDSHAKE);
        if self.empty_since.is_some_and(|since| since.elapsed() > ATTACH) {
            self.is_over = true;
        }
        let awaited = self.core.awaited();
        let masks = [awaited.to_le_bytes(), 0_u64.to_le_bytes()].concat();
        for (child, connection) in self.children.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            if self.core.is_waiting(child) && self.core.result(child).is_none() {
                let place = place(self.number, self.core.epoch(), child);
                connection.queue(&place.message(Kind::Beat, &masks));
            }
        }
        true
    }

    /// Ends all connections of the epoch with the reason. The children may connect again in a
    /// greater epoch.
    fn disconnect(&mut self, reason: &str) {
        let message = refusal(self.number, self.core.epoch(), reason);
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

impl Greeting {
    fn advance(&mut self, cx: &mut Context<'_>, group: u32, key: [u8; 32]) -> Greeted {
        match self.try_advance(cx, group, key) {
            Ok(greeted) => greeted,
            Err(reason) => Greeted::Refused(reason),
        }
    }

    fn try_advance(
        &mut self,
        cx: &mut Context<'_>,
        group: u32,
        key: [u8; 32],
    ) -> Result<Greeted, String> {
        let text = |e: std::io::Error| format!("the connection ended: {e}");
        loop {
            self.connection.flush(cx).map_err(text)?;
            if self.connection.message.is_none() {
                let Some(head) = self.connection.header(cx).map_err(text)? else {
                    return Ok(Greeted::Waits);
                };
                let header = Header::decode(&head).map_err(|e| e.to_string())?;
                let bytes = header.bytes as usize;
                if payload_bytes(header.kind) != Some(bytes) || bytes > PAYLOAD_BYTES_MAX {
                    return Err("a message out of place".into());
                }
                if header.group != group {
                    return Err(format!("the endpoint is that of group {group}"));
                }
                self.connection.message = Some((header, vec![0; bytes]));
            }
            let Some((header, payload)) = self.connection.payload(cx).map_err(text)? else {
                return Ok(Greeted::Waits);
            };
            let Some(acceptor) = &self.acceptor else {
                let acceptor = Acceptor::new(key, &header, &payload).map_err(|e| e.to_string())?;
                self.connection.queue(&acceptor.challenge());
                self.acceptor = Some(acceptor);
                continue;
            };
            if !acceptor.accepts(&header, &payload) {
                return Err("the child did not prove that it knows the group's key".into());
            }
            return Ok(Greeted::Proven(acceptor.place()));
        }
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

/// Sends small messages at once, and notices a child whose host has vanished.
fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let quiet = socket2::TcpKeepalive::new().with_time(Duration::from_secs(10));
    socket.set_tcp_keepalive(&quiet.with_interval(Duration::from_secs(2)).with_retries(5))?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(20)))
}

//! A group's task: its endpoint, its children's connections, and the core between them. One task
//! does all I/O of a group, so the core needs no lock. Groups run beside each other.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ringfold_transport::offload::Carrier;
use ringfold_transport::offload::handshake::{Place, payload_bytes};
use ringfold_transport::offload::header::{Header, Kind};
use ringfold_types::limits;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, block_in_place, spawn_blocking};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::connection::Connection;
use crate::core::Group;
use crate::greeting::{self, Proven, refusal};
use crate::links::EpochLinks;
use crate::pool::Lease;
use crate::record::Record;
use crate::uplink::Uplink;

const BEAT: Duration = Duration::from_millis(limits::OFFLOAD_BEAT_MS);
const ATTACH: Duration = Duration::from_millis(limits::AGGREGATOR_ATTACH_MS);
const CLOSE: Duration = Duration::from_millis(limits::AGGREGATOR_CLOSE_MS);
/// Rounds after which a busy group lets others run.
const ROUNDS_MAX: usize = 64;

/// A group's task.
pub(crate) struct Session {
    core: Group,
    number: u32,
    key: [u8; 32],
    /// Carries the chunks of children that have one too, if the pool has room for it.
    carrier: Option<Arc<dyn Carrier>>,
    /// The address of the group's port.
    at: IpAddr,
    /// The links of the children, in each epoch new ones.
    links: Option<EpochLinks>,
    /// The group's memory. Links that close hold it too.
    lease: Arc<Lease>,
    record: Arc<Record>,
    /// The children that have proven themselves, from the group's port.
    proven: mpsc::Receiver<Proven>,
    children: Vec<Option<Connection>>,
    /// Children that have left as intended. Bit i is child i.
    left: u64,
    /// Connections that end: each child gets the reason.
    leaving: JoinSet<()>,
    /// The connection to the group above, in each epoch a new one.
    uplink: Option<Uplink>,
    beat: Interval,
    /// The time since which no child is connected.
    empty_since: Option<Instant>,
    /// Whether all children have left as intended, or none has come for a while.
    is_over: bool,
}

/// Serves a group until all children have left, or until none has come for a while. Then the
/// group's share of the memory returns.
pub(crate) async fn serve(
    core: Group,
    (number, key): (u32, [u8; 32]),
    (listener, at): (TcpListener, IpAddr),
    record: Arc<Record>,
    (lease, carrier): (Lease, Option<Arc<dyn Carrier>>),
) {
    let (sender, proven) = mpsc::channel(core.shape().children());
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let children = (0..core.shape().children()).map(|_| None).collect();
    let mut session = Session {
        core,
        number,
        key,
        carrier,
        at,
        links: None,
        lease: Arc::new(lease),
        record,
        proven,
        children,
        left: 0,
        leaving: JoinSet::new(),
        uplink: None,
        beat,
        empty_since: Some(Instant::now()),
        is_over: false,
    };
    let driven = poll_fn(|cx| session.drive(cx));
    tokio::select! {
        () = driven => {}
        () = greeting::accept(listener, (number, key), sender) => {}
    }
    tracing::info!(job = session.record.job, group = number, "the group ends");
    let Session { uplink, lease, .. } = session;
    // A link to the parent may take its time.
    spawn_blocking(move || drop((uplink, lease)));
}

impl Session {
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(links) = &mut self.links {
            links.disarm();
        }
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.work();
            moved |= self.greet(cx);
            moved |= self.receive(cx);
            moved |= self.climb(cx);
            moved |= self.send(cx);
            moved |= self.tick(cx);
            if self.is_over {
                return Poll::Ready(());
            }
            let sleeps = match &mut self.links {
                Some(links) if moved => {
                    links.disarm();
                    false
                }
                Some(links) => links.may_sleep(cx),
                None => !moved,
            };
            if sleeps {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Does the work of all links.
    fn work(&mut self) -> bool {
        let Some(links) = &self.links else { return false };
        links.poll().unwrap_or_else(|reason| {
            tracing::warn!(job = self.record.job, group = self.number, "{reason}");
            self.disconnect(&reason);
            true
        })
    }

    /// Takes the children that have proven themselves.
    fn greet(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Poll::Ready(Some(proven)) = self.proven.poll_recv(cx) {
            self.admit(proven);
            moved = true;
        }
        moved
    }

    fn admit(&mut self, Proven { place, mut connection, has_carrier }: Proven) {
        match self.core.attach(place.child.into(), place.epoch) {
            Ok(is_new) => {
                if is_new {
                    self.disconnect("another member has restarted the group");
                    self.left = 0;
                }
                let links = if has_carrier { self.links() } else { None };
                match links.map(|links| (links.shared().clone(), place.welcome(links.port))) {
                    Some((links, welcome)) => {
                        if let Err(error) = connection.join(links, place.child, &welcome) {
                            self.disconnect(&format!("child {}: {error}", place.child));
                            return;
                        }
                    }
                    None => drop(connection.queue(&place.welcome(0))),
                }
                self.children[usize::from(place.child)] = Some(connection);
                self.count_connected();
                if is_new {
                    self.connect_above();
                }
            }
            Err(fault) => {
                let (group, peer) = (self.number, connection.peer());
                tracing::warn!(job = self.record.job, group, "refused {peer}: {fault}");
                self.part_with(connection, refusal(group, place.epoch, &fault.to_string()));
            }
        }
    }

    /// The links of this epoch. A carrier that cannot be used is not tried again.
    fn links(&mut self) -> Option<&EpochLinks> {
        if let (None, Some(carrier)) = (&self.links, &self.carrier) {
            let children = self.children.len();
            let opened = block_in_place(|| {
                self.wait_for_memory()?;
                EpochLinks::open(&**carrier, self.at, self.key, (children, &self.lease))
            });
            match opened {
                Ok(links) => self.links = Some(links),
                Err(error) => {
                    let (group, name) = (self.number, carrier.name());
                    tracing::warn!(
                        job = self.record.job,
                        group,
                        "chunks do not go by {name}: {error}"
                    );
                    self.carrier = None;
                }
            }
        }
        self.links.as_ref()
    }

    /// Waits until the links of earlier epochs have returned their memory.
    ///
    /// # Errors
    /// They do not close in time. The children wait for their welcome, and a thread of the runtime
    /// for this group.
    fn wait_for_memory(&self) -> io::Result<()> {
        let began = Instant::now();
        while Arc::strong_count(&self.lease) > 1 {
            if began.elapsed() > CLOSE {
                let reason = format!("links of an earlier epoch are not closed after {CLOSE:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        for child in 0..self.children.len() {
            match self.receive_from(child, cx) {
                Ok(some) => moved |= some,
                Err(reason) => {
                    let reason = format!("child {child}: {reason}");
                    let peer = self.children[child].as_ref().map(Connection::peer);
                    let group = self.number;
                    tracing::warn!(job = self.record.job, group, ?peer, "{reason}");
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
        let text = |e: io::Error| format!("its connection ended: {e}");
        loop {
            if connection.message.is_none() {
                let Some(head) = connection.header(cx).map_err(text)? else { return Ok(moved) };
                let header = Header::decode(&head).map_err(|e| e.to_string())?;
                let bytes = header.bytes as usize;
                if header.kind == Kind::Leave {
                    self.children[child] = None;
                    self.left |= 1 << child;
                    self.count_connected();
                    // Others may still be on their way.
                    self.is_over = self.left.count_ones() as usize == self.children.len();
                    return Ok(true);
                }
                if header.group != self.number {
                    return Err("a message of another group".into());
                }
                let part = match header.kind {
                    Kind::Refused if bytes <= limits::OFFLOAD_REASON_BYTES_MAX => vec![0; bytes],
                    Kind::Welcome
                        if connection.is_joining() && Some(bytes) == payload_bytes(header.kind) =>
                    {
                        vec![0; bytes]
                    }
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
            if header.kind == Kind::Welcome {
                connection.settle();
                connection.queue(&place(self.number, self.core.epoch(), child).welcome(0));
                moved = true;
                continue;
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
        let (epoch, carrier) = (self.core.epoch(), self.carrier.clone());
        let connected = Uplink::connect(above, self.key, epoch, self.core.shape(), carrier);
        match connected {
            Ok(uplink) => self.uplink = Some(uplink),
            Err(error) => self.disconnect(&format!("its parent at {}: {error}", above.at)),
        }
    }

    /// Gives combined chunks to the group above, and takes its results.
    fn climb(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(uplink) = &mut self.uplink else { return false };
        // An uplink that connects may open devices.
        let moved = match uplink.is_ready() {
            true => uplink.exchange(cx, &mut self.core),
            false => block_in_place(|| uplink.exchange(cx, &mut self.core)),
        };
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
        self.record.is_above.store(false, Ordering::Relaxed);
        for child in 0..self.children.len() {
            if let Some(connection) = self.children[child].take() {
                self.part_with(connection, message.clone());
            }
        }
        self.links = None;
        if let Some(uplink) = self.uplink.take() {
            let (reason, lease) = (reason.to_owned(), Arc::clone(&self.lease));
            spawn_blocking(move || {
                uplink.abandon(&reason);
                drop(lease);
            });
        }
        self.count_connected();
    }

    /// Ends a connection beside the others. If many end already, it ends at once.
    fn part_with(&mut self, connection: Connection, message: Vec<u8>) {
        while self.leaving.try_join_next().is_some() {}
        if self.leaving.len() < self.children.len() {
            self.leaving.spawn(async move { connection.part_with(&message).await });
        }
    }

    fn count_connected(&mut self) {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let count = self.children.iter().flatten().count();
        let linked = self.children.iter().flatten().filter(|it| it.has_link()).count();
        self.record.connected.store(number(count), Ordering::Relaxed);
        self.record.linked.store(number(linked), Ordering::Relaxed);
        self.empty_since = (count == 0).then(|| self.empty_since.unwrap_or_else(Instant::now));
    }
}

fn place(group: u32, epoch: u32, child: usize) -> Place {
    Place { group, epoch, child: u8::try_from(child).unwrap_or(u8::MAX) }
}

//! The port at which a rank answers ranks that regroup, from the time when it joins.
//!
//! The control thread answers, so a rank that computes does so too. A process that has ended
//! refuses connections, and a stopped one keeps silent.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::election::{Purpose, Stage};
use super::message::{FromVisitor, Hello, Place, ToVisitor};
use crate::channel::acceptor::{Authenticated, accept};
use crate::channel::connect::Channel;
use crate::channel::frames::{decode, encode};
use crate::channel::greeting::Greeting;
use crate::channel::socket;
use crate::discover::secret::Secret;

/// Authenticated visitors that wait for the control thread.
const WAITING_MAX: usize = 64;
pub(super) const BEAT: Duration = Duration::from_millis(limits::REGROUP_BEAT_MS);
pub(super) const SILENCE: Duration = Duration::from_millis(limits::REGROUP_SILENCE_MS);

/// The port of one rank of one communicator. Dropping it closes the port.
pub(crate) struct MeetingPoint {
    pub(super) greeting: Greeting,
    pub(super) secret: Secret,
    port: u16,
    pub(super) visitors: Arc<Visitors>,
    /// The places of all ranks, and the address at which this one reached rank 0.
    places: OnceLock<(Vec<Place>, Option<IpAddr>)>,
    _tasks: JoinSet<()>,
}

/// The ranks that ask this one, and its answer.
pub(super) struct Visitors {
    size: usize,
    stage: watch::Sender<Stage>,
    /// The seats of this rank in groups that form. Nobody can dismiss it while it has one.
    seats: AtomicUsize,
    all: Mutex<All>,
    /// Notified when a visitor has come, gone, or said something else.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct All {
    present: BTreeMap<u64, Visitor>,
    /// The last number of a visitor.
    last: u64,
    /// The visitors that have joined the new group and gone.
    joined: Vec<u64>,
}

struct Visitor {
    rank: u32,
    purpose: Purpose,
    heard: Instant,
    /// Whether it has a seat in a new group, and asks no more.
    is_seated: bool,
    tell: mpsc::UnboundedSender<ToVisitor>,
}

impl MeetingPoint {
    /// Opens a port on one of these addresses, or on every address if there are none. Must run on
    /// the control thread.
    ///
    /// # Errors
    /// No port is free.
    pub(crate) fn open(
        ips: &[IpAddr],
        size: usize,
        greeting: Greeting,
        secret: Secret,
    ) -> io::Result<Self> {
        let listener = socket::listen(ips, &[0])?;
        let port = listener.local_addr()?.port();
        let (stage, all) = (watch::Sender::new(Stage::Working), Mutex::default());
        let (seats, changed) = (AtomicUsize::new(0), Notify::new());
        let visitors = Arc::new(Visitors { size, stage, seats, all, changed });
        let mut tasks = JoinSet::new();
        let shared = (greeting.clone(), secret.clone());
        tasks.spawn(serve(listener, shared, Arc::clone(&visitors)));
        let places = OnceLock::new();
        Ok(Self { greeting, secret, port, visitors, places, _tasks: tasks })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Sets the places of all ranks. This rank reached rank 0 at `first`.
    pub(crate) fn set_places(&self, places: Vec<Place>, first: Option<IpAddr>) {
        self.places.get_or_init(|| (places, first));
    }

    pub(super) fn places(&self) -> &[Place] {
        self.places.get().map_or(&[], |(places, _)| places)
    }

    /// The address where `rank` answers, if it has a port.
    pub(super) fn address_of(&self, rank: u32) -> Option<SocketAddr> {
        let (places, first) = self.places.get()?;
        let place = places.get(Rank(rank).index()).filter(|place| place.port != 0)?;
        let loopback = crate::discover::address::loopback;
        Some(SocketAddr::new(place.ip.or(*first).unwrap_or_else(loopback), place.port))
    }
}

impl fmt::Debug for MeetingPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeetingPoint({}, {:?})", self.port, self.visitors.stage())
    }
}

impl Visitors {
    pub(super) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Tells visitors this stage from now on. A rank that was dismissed, or is a member of a new
    /// group, stays so.
    pub(super) fn set_stage(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let is_new = *now != stage && !matches!(now, Stage::Dismissed | Stage::Moved);
            if is_new {
                *now = stage;
            }
            is_new
        });
    }

    /// This rank takes a seat in a group that forms.
    pub(super) fn take_seat(&self) {
        self.seats.fetch_add(1, Ordering::AcqRel);
    }

    /// This rank gives a seat up. That of an earlier attempt may end after a new one is taken.
    pub(super) fn leave_seat(&self) {
        self.seats.fetch_sub(1, Ordering::AcqRel);
    }

    /// The latest question of each rank that asks now.
    pub(super) fn questions(&self) -> BTreeMap<u32, Purpose> {
        let all = self.all();
        let asks = |it: &&Visitor| !it.is_seated && it.heard.elapsed() < SILENCE;
        all.present.values().filter(asks).map(|it| (it.rank, it.purpose.clone())).collect()
    }

    /// Tells these visitors that the group is given up.
    pub(super) fn give_up(&self, numbers: impl Iterator<Item = u64>) {
        let all = self.all();
        for visitor in numbers.filter_map(|number| all.present.get(&number)) {
            visitor.tell.send(ToVisitor::GivenUp).unwrap_or_default();
        }
    }

    /// Answers the latest question of each of these ranks. Returns their numbers as visitors.
    pub(super) fn answer(&self, ranks: &[u32], answer: &ToVisitor) -> Vec<(u32, u64)> {
        let mut all = self.all();
        let latest: BTreeMap<u32, u64> =
            all.present.iter().map(|(number, it)| (it.rank, *number)).collect();
        let asked = latest.into_iter().filter(|(rank, _)| ranks.contains(rank));
        let answered = asked.inspect(|(_, number)| {
            if let Some(visitor) = all.present.get_mut(number) {
                visitor.is_seated = matches!(answer, ToVisitor::Invited(_));
                visitor.tell.send(answer.clone()).unwrap_or_default();
            }
        });
        answered.collect()
    }

    /// Whether a visitor lives, or has joined.
    pub(super) fn is_well(&self, number: u64) -> bool {
        let all = self.all();
        let present = all.present.get(&number);
        present.map_or_else(|| all.joined.contains(&number), |it| it.heard.elapsed() < SILENCE)
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the question of a visitor, which is new without a number. Returns its number.
    fn note(
        &self,
        number: Option<u64>,
        rank: u32,
        purpose: Purpose,
        tell: &mpsc::UnboundedSender<ToVisitor>,
    ) -> u64 {
        if purpose == Purpose::Dismiss && self.seats.load(Ordering::Acquire) == 0 {
            self.set_stage(Stage::Dismissed);
        }
        let mut all = self.all();
        let number = number.unwrap_or(all.last + 1);
        all.last = all.last.max(number);
        let is_seated = all.present.get(&number).is_some_and(|it| it.is_seated);
        let (heard, tell) = (Instant::now(), tell.clone());
        all.present.insert(number, Visitor { rank, purpose, heard, is_seated, tell });
        number
    }

    /// A visitor has gone.
    fn part(&self, number: u64, has_joined: bool) {
        let mut all = self.all();
        all.present.remove(&number);
        if has_joined {
            all.joined.push(number);
        }
    }

    /// Serves one visitor until it goes.
    async fn receive(&self, mut channel: Channel, rank: u32) {
        // Two sets of ranks are the longest part of a message.
        channel.reader.set_bytes_max(64 + 10 * self.size);
        let (tell, mut answers) = mpsc::unbounded_channel();
        let (mut number, mut has_joined) = (None, false);
        let (mut beat, mut stages) = (interval(BEAT), self.stage.subscribe());
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let answer = tokio::select! {
                message = channel.reader.next() => {
                    match message.ok().flatten().and_then(|bytes| decode(&bytes)) {
                        Some(FromVisitor::Ask(purpose)) => {
                            number = Some(self.note(number, rank, purpose, &tell));
                        }
                        Some(FromVisitor::Joined) => has_joined = true,
                        None => break,
                    }
                    self.changed.notify_one();
                    continue;
                }
                Some(answer) = answers.recv() => answer,
                _ = beat.tick() => ToVisitor::Stage(self.stage()),
                Ok(()) = stages.changed() => ToVisitor::Stage(self.stage()),
            };
            if channel.writer.send(&encode(&answer)).await.is_err() {
                break;
            }
        }
        if let Some(number) = number {
            self.part(number, has_joined);
        }
        self.changed.notify_one();
    }
}

/// Admits visitors, and serves them.
async fn serve(listener: TcpListener, shared: (Greeting, Secret), visitors: Arc<Visitors>) {
    let (admitted, mut peers) = mpsc::channel(WAITING_MAX);
    let acceptor = accept(limits::HANDSHAKES_MAX, listener, shared, Arc::default(), admitted);
    let mut served = JoinSet::new();
    let serving = async {
        loop {
            tokio::select! {
                Some(Authenticated { channel, first }) = peers.recv() => {
                    let Some(Hello { rank }) = decode(&first) else { continue };
                    if Rank(rank).index() >= visitors.size {
                        continue;
                    }
                    let visitors = Arc::clone(&visitors);
                    served.spawn(async move { visitors.receive(channel, rank).await });
                }
                Some(_) = served.join_next() => {}
                else => return,
            }
        }
    };
    tokio::join!(acceptor, serving);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_dismisses_a_rank_that_has_a_seat() {
        let (stage, all) = (watch::Sender::new(Stage::Working), Mutex::default());
        let (seats, changed) = (AtomicUsize::new(0), Notify::new());
        let visitors = Visitors { size: 3, stage, seats, all, changed };
        let (tell, _answers) = mpsc::unbounded_channel();
        // The seat of an earlier attempt ends late.
        visitors.take_seat();
        visitors.take_seat();
        visitors.leave_seat();
        let number = visitors.note(None, 1, Purpose::Dismiss, &tell);
        assert_eq!(visitors.stage(), Stage::Working);
        visitors.leave_seat();
        visitors.note(Some(number), 1, Purpose::Dismiss, &tell);
        visitors.set_stage(Stage::Working);
        assert_eq!(visitors.stage(), Stage::Dismissed, "for good");
    }
}

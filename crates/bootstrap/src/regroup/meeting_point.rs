//! The port at which a rank answers ranks that regroup, from the time when it joins.
//!
//! The control thread answers, so a rank that computes does so too. A process that has ended
//! refuses connections, and a stopped one keeps silent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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

use super::election::agreement::Opinion;
use super::election::{Purpose, Stage, beat_ms, silence_ms};
use super::message::{FromVisitor, Hello, Place, ToVisitor};
use super::witness::Witness;
use crate::arbiter::call_log::CallLog;
use crate::channel::acceptor::{Authenticated, accept_any, helpers_of};
use crate::channel::connect::Channel;
use crate::channel::frames::{decode, encode};
use crate::channel::greeting::Greeting;
use crate::channel::socket;
use crate::discover::address::loopback;
use crate::discover::secret::Secret;
use crate::look::{Places, answer, credentials_of};
use crate::record::read::LookPort;

/// Authenticated visitors that wait for the control thread.
const WAITING_MAX: usize = 64;

/// The agreements whose values a rank remembers. No rank is behind by more, unless the others have
/// gone on without it.
const AGREEMENTS_REMEMBERED: usize = 2;

/// The index of the credentials of looks among those of the port.
const LOOK: usize = 1;

/// The port of one rank of one communicator. Dropping it closes the port.
pub(crate) struct MeetingPoint {
    pub(super) greeting: Greeting,
    pub(super) secret: Secret,
    port: u16,
    /// The witness of this rank.
    witness: Option<Witness>,
    pub(super) visitors: Arc<Visitors>,
    /// The places of all ranks, and the address at which this one reached rank 0.
    places: Arc<OnceLock<KnownPlaces>>,
    /// The promises of this rank in an agreement that has not ended.
    pub(super) opinion: Mutex<Opinion>,
    /// The members of the last group in which this rank took a seat.
    pub(super) doubt: Mutex<BTreeSet<u32>>,
    _tasks: JoinSet<()>,
}

/// The places of all ranks, and the address at which this rank reached rank 0.
type KnownPlaces = (Vec<Place>, Option<IpAddr>);

/// The ranks that ask this one, and its answer.
pub(super) struct Visitors {
    size: usize,
    progress: watch::Sender<Progress>,
    /// The seats of this rank in groups that form. Nobody can dismiss it while it has one.
    seats: AtomicUsize,
    all: Mutex<All>,
    /// Notified when a visitor has come, gone, or said something else.
    pub(super) changed: Notify,
}

/// The progress of a rank, which it tells those that ask.
#[derive(Default)]
struct Progress {
    /// Whether it is a member of a new group, or was dismissed. It stays so.
    fate: Option<Stage>,
    /// The election in which the rank takes part, and the stage there.
    current: Option<(u64, Stage)>,
    /// The last agreements that have ended.
    agreed: VecDeque<(u64, u64)>,
}

impl Progress {
    fn of(&self, election: u64) -> Stage {
        if let Some((_, value)) = self.agreed.iter().find(|(number, _)| *number == election) {
            return Stage::Agreed(*value);
        }
        // The value of such an agreement is forgotten, and the others have moved on. No group has
        // this mark.
        let is_past = self.agreed.front().is_some_and(|(first, _)| (1..*first).contains(&election));
        let current = self.current.filter(|(number, _)| *number == election).map(|(_, it)| it);
        let fate = self.fate.or_else(|| is_past.then_some(Stage::Moved(0)));
        fate.or(current).unwrap_or(Stage::Working)
    }

    /// Returns whether the stage is new.
    fn set(&mut self, election: u64, stage: Stage) -> bool {
        match stage {
            _ if self.of(election) == stage => return false,
            Stage::Dismissed | Stage::Moved(_) => {
                let is_new = self.fate.is_none();
                self.fate = self.fate.or(Some(stage));
                return is_new;
            }
            Stage::Working => self.current = None,
            Stage::Agreed(value) => {
                self.agreed.push_back((election, value));
                if self.agreed.len() > AGREEMENTS_REMEMBERED {
                    self.agreed.pop_front();
                }
            }
            Stage::Voting(_) | Stage::Leading | Stage::Offering(_) => {
                self.current = Some((election, stage));
            }
        }
        true
    }
}

#[derive(Default)]
struct All {
    present: BTreeMap<u64, Visitor>,
    /// The last number of a visitor.
    last: u64,
    /// The visitors that have joined the new group and gone.
    joined: BTreeSet<u64>,
}

struct Visitor {
    rank: u32,
    election: u64,
    purpose: Purpose,
    heard: Instant,
    /// Whether it has a seat in a new group, and asks no more.
    is_seated: bool,
    /// Encoded messages to it.
    tell: mpsc::UnboundedSender<Arc<[u8]>>,
}

impl MeetingPoint {
    /// Opens a port on one of these addresses, or on every address if there are none. Answers looks
    /// there too, and notes the port in `calls`. Must run on the control thread.
    ///
    /// # Errors
    /// No port is free.
    pub(crate) fn open(
        ips: &[IpAddr],
        size: usize,
        (greeting, secret): (Greeting, Secret),
        witness: Option<Witness>,
        (calls, look_key): (&CallLog, [u8; 32]),
    ) -> io::Result<Self> {
        let listener = socket::listen(ips, &[0])?;
        let mut address = listener.local_addr()?;
        let port = address.port();
        if address.ip().is_unspecified() {
            address.set_ip(loopback());
        }
        let visitors = Arc::new(Visitors::new(size));
        let mut tasks = JoinSet::new();
        let shared = vec![(greeting.clone(), secret.clone()), credentials_of(look_key)];
        let places = Arc::<OnceLock<_>>::default();
        let looked_at = (calls.group_id(), Arc::clone(&places));
        tasks.spawn(serve(listener, shared, Arc::clone(&visitors), looked_at));
        calls.set_look(LookPort { address, key: look_key });
        let (opinion, doubt) = (Mutex::default(), Mutex::default());
        let _tasks = tasks;
        Ok(Self { greeting, secret, port, witness, visitors, places, opinion, doubt, _tasks })
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

    /// The witness of the group, if all ranks have the same one.
    pub(super) fn witness(&self) -> Option<&Witness> {
        let is_common =
            |it: &&Witness| self.places().iter().all(|place| place.witness == Some(it.mark()));
        self.witness.as_ref().filter(is_common)
    }

    /// The address where `rank` answers, if it has a port.
    pub(super) fn address_of(&self, rank: u32) -> Option<SocketAddr> {
        let (places, first) = self.places.get()?;
        address_of(places.get(Rank(rank).index())?, *first)
    }
}

/// The address where the rank of a place answers a rank that reached rank 0 at `first`.
fn address_of(place: &Place, first: Option<IpAddr>) -> Option<SocketAddr> {
    let ip = place.ip.or(first).unwrap_or_else(loopback);
    (place.port != 0).then(|| SocketAddr::new(ip, place.port))
}

impl fmt::Debug for MeetingPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeetingPoint({}, {:?})", self.port, self.visitors.stage(0))
    }
}

impl Visitors {
    fn new(size: usize) -> Self {
        let (progress, all) = (watch::Sender::default(), Mutex::default());
        Self { size, progress, seats: AtomicUsize::new(0), all, changed: Notify::new() }
    }

    /// How long a rank may keep silent.
    pub(super) const fn silence(&self) -> Duration {
        Duration::from_millis(silence_ms(self.size))
    }

    pub(super) const fn beat(&self) -> Duration {
        Duration::from_millis(beat_ms(self.size))
    }

    /// The stage of this rank in an election.
    pub(super) fn stage(&self, election: u64) -> Stage {
        self.progress.borrow().of(election)
    }

    /// Tells visitors this stage from now on. A rank that was dismissed, or is a member of a new
    /// group, stays so.
    pub(super) fn set_stage(&self, election: u64, stage: Stage) {
        self.progress.send_if_modified(|now| now.set(election, stage));
    }

    /// The number of the next agreement of this rank.
    pub(super) fn next_agreement(&self) -> u64 {
        self.progress.borrow().agreed.back().map_or(0, |(last, _)| *last) + 1
    }

    /// This rank takes a seat in a group that forms.
    pub(super) fn take_seat(&self) {
        self.seats.fetch_add(1, Ordering::AcqRel);
    }

    /// This rank gives a seat up. That of an earlier attempt may end after a new one is taken.
    pub(super) fn leave_seat(&self) {
        self.seats.fetch_sub(1, Ordering::AcqRel);
    }

    /// The latest question of each rank that asks in this election now.
    pub(super) fn questions(&self, election: u64) -> BTreeMap<u32, Purpose> {
        let all = self.all();
        let asks = |it: &&Visitor| {
            it.election == election && !it.is_seated && it.heard.elapsed() < self.silence()
        };
        all.present.values().filter(asks).map(|it| (it.rank, it.purpose.clone())).collect()
    }

    /// Tells these visitors that the group is given up.
    pub(super) fn give_up(&self, numbers: impl Iterator<Item = u64>) {
        let (all, message) = (self.all(), Arc::from(encode(&ToVisitor::GivenUp)));
        for visitor in numbers.filter_map(|number| all.present.get(&number)) {
            visitor.tell.send(Arc::clone(&message)).unwrap_or_default();
        }
    }

    /// Answers the latest question of each of these ranks, in growing order, in this election.
    /// Returns their numbers as visitors.
    pub(super) fn answer(
        &self,
        election: u64,
        ranks: &[u32],
        answer: &ToVisitor,
    ) -> Vec<(u32, u64)> {
        let (mut all, message) = (self.all(), Arc::<[u8]>::from(encode(answer)));
        let present = all.present.iter().filter(|(_, it)| it.election == election);
        let latest: BTreeMap<u32, u64> = present.map(|(number, it)| (it.rank, *number)).collect();
        let asked = latest.into_iter().filter(|(rank, _)| ranks.binary_search(rank).is_ok());
        let answered = asked.inspect(|(_, number)| {
            if let Some(visitor) = all.present.get_mut(number) {
                visitor.is_seated = matches!(answer, ToVisitor::Invited(_));
                visitor.tell.send(Arc::clone(&message)).unwrap_or_default();
            }
        });
        answered.collect()
    }

    /// Whether a visitor lives, or has joined.
    pub(super) fn is_well(&self, number: u64) -> bool {
        let all = self.all();
        let present = all.present.get(&number);
        present
            .map_or_else(|| all.joined.contains(&number), |it| it.heard.elapsed() < self.silence())
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the question of a visitor, which is new without a number. Returns its number.
    fn note(
        &self,
        number: Option<u64>,
        Hello { rank, election }: Hello,
        purpose: Purpose,
        tell: &mpsc::UnboundedSender<Arc<[u8]>>,
    ) -> u64 {
        if purpose == Purpose::Dismiss && self.seats.load(Ordering::Acquire) == 0 {
            self.set_stage(election, Stage::Dismissed);
        }
        let mut all = self.all();
        let number = number.unwrap_or(all.last + 1);
        all.last = all.last.max(number);
        let is_seated = all.present.get(&number).is_some_and(|it| it.is_seated);
        let (heard, tell) = (Instant::now(), tell.clone());
        let visitor = Visitor { rank, election, purpose, heard, is_seated, tell };
        all.present.insert(number, visitor);
        number
    }

    /// A visitor has gone.
    fn part(&self, number: u64, has_joined: bool) {
        let mut all = self.all();
        all.present.remove(&number);
        if has_joined {
            all.joined.insert(number);
        }
    }

    fn encoded_stage(&self, election: u64) -> Arc<[u8]> {
        encode(&ToVisitor::Stage(self.stage(election))).into()
    }

    /// Serves one visitor until it goes.
    async fn receive(&self, mut channel: Channel, hello: Hello) {
        // Three sets of ranks are the longest part of a message, beside the opinion of a voter.
        channel.reader.set_bytes_max(128 + 15 * self.size);
        let (tell, mut answers) = mpsc::unbounded_channel();
        let (mut number, mut has_joined) = (None, false);
        let (mut beat, mut stages) = (interval(self.beat()), self.progress.subscribe());
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let answer = tokio::select! {
                message = channel.reader.next() => {
                    match message.ok().flatten().and_then(|bytes| decode(&bytes)) {
                        Some(FromVisitor::Ask(purpose)) => {
                            number = Some(self.note(number, hello, purpose, &tell));
                        }
                        Some(FromVisitor::Joined) => has_joined = true,
                        None => break,
                    }
                    self.changed.notify_one();
                    continue;
                }
                Some(answer) = answers.recv() => answer,
                _ = beat.tick() => self.encoded_stage(hello.election),
                Ok(()) = stages.changed() => self.encoded_stage(hello.election),
            };
            if channel.writer.send(&answer).await.is_err() {
                break;
            }
        }
        if let Some(number) = number {
            self.part(number, has_joined);
        }
        self.changed.notify_one();
    }
}

/// The addresses of all ranks.
fn known(places: &OnceLock<KnownPlaces>) -> Places {
    let Some((places, first)) = places.get() else { return Places::default() };
    Places(places.iter().map(|place| address_of(place, *first)).collect())
}

/// Admits visitors, and serves them. Answers looks at the group of this number.
async fn serve(
    listener: TcpListener,
    shared: Vec<(Greeting, Secret)>,
    visitors: Arc<Visitors>,
    (id, places): ([u64; 2], Arc<OnceLock<KnownPlaces>>),
) {
    let (admitted, mut peers) = mpsc::channel(WAITING_MAX);
    let acceptor = accept_any(
        limits::HANDSHAKES_MAX,
        helpers_of(visitors.size),
        listener,
        shared,
        Arc::default(),
        admitted,
    );
    let mut served = JoinSet::new();
    let serving = async {
        loop {
            tokio::select! {
                Some(Authenticated { channel, first, by, home }) = peers.recv() => {
                    if by == LOOK {
                        let places = Arc::clone(&places);
                        let handle = home.handle.clone();
                        let look = async move {
                            let _home = home;
                            answer(channel, first, move || known(&places), id).await;
                        };
                        served.spawn_on(look, &handle);
                        continue;
                    }
                    let Some(hello) = decode::<Hello>(&first) else { continue };
                    if Rank(hello.rank).index() >= visitors.size {
                        continue;
                    }
                    let visitors = Arc::clone(&visitors);
                    let handle = home.handle.clone();
                    let receive = async move {
                        let _home = home;
                        visitors.receive(channel, hello).await;
                    };
                    served.spawn_on(receive, &handle);
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
        let visitors = Visitors::new(3);
        let (tell, _answers) = mpsc::unbounded_channel();
        // The seat of an earlier attempt ends late.
        visitors.take_seat();
        visitors.take_seat();
        visitors.leave_seat();
        let hello = Hello { rank: 1, election: 0 };
        let number = visitors.note(None, hello, Purpose::Dismiss, &tell);
        assert_eq!(visitors.stage(0), Stage::Working);
        visitors.leave_seat();
        visitors.note(Some(number), hello, Purpose::Dismiss, &tell);
        visitors.set_stage(0, Stage::Working);
        assert_eq!(visitors.stage(0), Stage::Dismissed, "for good");
    }

    #[test]
    fn values_are_told_to_ranks_that_are_behind() {
        let mut progress = Progress::default();
        for (number, value) in [(1, 7), (2, 5), (3, 4)] {
            assert!(progress.set(number, Stage::Voting(0)));
            assert_eq!(progress.of(0), Stage::Working, "it forms no group");
            assert!(progress.set(number, Stage::Agreed(value)));
        }
        progress.set(3, Stage::Working);
        progress.set(0, Stage::Moved(6));
        let of = |number| progress.of(number);
        assert_eq!([of(2), of(3)], [Stage::Agreed(5), Stage::Agreed(4)]);
        assert_eq!([of(0), of(1), of(4)], [Stage::Moved(6); 3]);
    }
}

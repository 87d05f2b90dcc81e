//! Regrouping after a failure: the survivors agree on the members of the next group, and meet.
//!
//! `election` decides, without I/O. Each rank has a `meeting_point` from the time when it joins,
//! and exchanges the messages of `message` there. No coordinator takes part, so rank 0 may be among
//! the dead. The new group has a random number that only its members get, and its key derives from
//! it. So a rank that was left out cannot enter, though it has the secret of the old group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc as std_mpsc};
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use crate::arbiter::failure_cause::RankList;
use crate::channel::acceptor::turn;
use crate::channel::connect::{Channel, attempt};
use crate::channel::descriptors;
use crate::channel::frames::{decode, encode};
use crate::channel::greeting::Greeting;
use crate::control::local_process::LocalProcess;
use crate::control::runtime::ControlRuntime;
use crate::discover::secret::Secret;
use election::agreement::Opinion;
use election::{Election, Purpose, Quorum, Stage, Step};
use meeting_point::{MeetingPoint, Visitors};
use message::{FromVisitor, Hello, Invitation, Place, ToVisitor};
use witness::Witness;

pub(crate) mod election;
pub(crate) mod meeting_point;
pub(crate) mod message;
pub(crate) mod witness;

/// The time between two looks at an election, where nothing happens.
const LOOK: Duration = Duration::from_millis(20);
/// How long the witness has to answer.
const WITNESS: Duration = Duration::from_millis(limits::REGROUP_SILENCE_MS);

/// The wish of a rank that regroups.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The ranks to leave out. All members must name the same ones.
    pub without: Vec<Rank>,
    /// The ranks that caused the failure. No rank waits for them.
    pub suspects: Vec<Rank>,
    /// Where this rank listens for the members of a group that it leads.
    pub address: Option<SocketAddr>,
    /// How long to wait for ranks that answer, and do not regroup.
    pub timeout: Duration,
    /// The nonce of the group that this rank has joined without learning that all have.
    pub doubtful: Option<u128>,
}

/// The members of a new group.
#[derive(Debug)]
pub struct Regrouped {
    /// The members, in their old order. The first one leads.
    pub members: Vec<Rank>,
    /// Where the leader listens for the others.
    pub address: Option<SocketAddr>,
    /// A random number that only the members know.
    pub nonce: u128,
    /// This rank's place among the members, until it has joined. `None` among threads.
    pub seat: Option<Arc<Seat>>,
}

/// Why ranks cannot regroup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegroupError {
    /// Too few ranks have come. The others may live on, and form a group of their own.
    #[error(
        "{} of {electorate} ranks have come, and a group needs more than half of them, half of \
         them and the vote of ringrun or torchrun's store, or the certain end of all others; {} \
         may live and have a group of their own",
        members.len(), RankList(unknown)
    )]
    NoQuorum {
        /// The ranks that have come.
        members: Vec<Rank>,
        /// The number of ranks in all, without those that the members leave out by their list.
        electorate: usize,
        /// The other ranks that may live.
        unknown: Vec<Rank>,
    },
    /// The other ranks have formed a group without this one, or have dismissed it.
    #[error(
        "the other ranks have formed a group without this one, or have dismissed it; a \
         communicator shrinks once"
    )]
    Excluded,
    /// The ranks name different ranks to leave out.
    #[error("the ranks name different ranks to leave out; all must name the same ones")]
    Differs,
    /// No rank answers that could lead.
    #[error("no rank that could lead the group has formed it within {0:?}")]
    Late(Duration),
    /// The other ranks have agreed without this one.
    #[error("the other ranks have agreed without the flag of this one")]
    Uncounted,
    /// The system refused a port, a thread or a descriptor.
    #[error("the system refuses a port, a thread or a random number: {0}")]
    System(String),
}

impl From<Quorum> for RegroupError {
    fn from(Quorum { members, electorate, unknown }: Quorum) -> Self {
        let [members, unknown] = [members, unknown].map(|it| it.into_iter().map(Rank).collect());
        Self::NoQuorum { members, electorate, unknown }
    }
}

/// Answers ranks that come too late to regroup: they learn that the others have moved on.
#[derive(Clone, Debug)]
pub struct Doorkeeper(
    #[expect(dead_code, reason = "it keeps the port open")] pub(crate) Option<Arc<MeetingPoint>>,
);

/// A connection to a rank that is asked. Dropping it closes the connection.
struct Visit {
    purpose: watch::Sender<Purpose>,
    joined: mpsc::UnboundedSender<()>,
    task: JoinSet<()>,
}

/// An event of a visit.
enum Event {
    Told(ToVisitor),
    /// Nobody listens, or the connection ended.
    Lost,
}

type Events = mpsc::UnboundedReceiver<(u32, Event)>;

/// The place of a member of a new group, from its formation until all have joined. A member that
/// drops it gives up, and the others notice.
pub struct Seat {
    visitors: Arc<Visitors>,
    /// The mark of the group.
    mark: u64,
    /// Whether all have joined, or this rank has given up.
    is_over: AtomicBool,
    role: Role,
}

enum Role {
    /// The other members, by their numbers as visitors.
    Leader(Vec<(u32, u64)>),
    Voter(Mutex<Voter>),
}

struct Voter {
    leader: u32,
    visit: Option<Visit>,
    events: Events,
    heard: Instant,
    is_lost: bool,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.role {
            Role::Leader(members) => write!(f, "Seat(leader of {members:?})"),
            Role::Voter(_) => f.write_str("Seat(voter)"),
        }
    }
}

impl Seat {
    fn take(point: &MeetingPoint, members: &[u32], nonce: u128, role: Role) -> Self {
        *point.doubt() = members.iter().copied().collect();
        let visitors = Arc::clone(&point.visitors);
        visitors.take_seat();
        Self { visitors, mark: point.mark(nonce), is_over: AtomicBool::new(false), role }
    }

    /// The rank of the old group that has given up or keeps silent, if there is one.
    #[must_use]
    pub fn missing(&self) -> Option<Rank> {
        match &self.role {
            Role::Leader(members) => {
                let missing = members.iter().find(|(_, number)| !self.visitors.is_well(*number));
                missing.map(|(rank, _)| Rank(*rank))
            }
            Role::Voter(voter) => {
                let mut voter = voter.lock().unwrap_or_else(PoisonError::into_inner);
                while let Ok((rank, event)) = voter.events.try_recv() {
                    match event {
                        // It is of a rank that was asked before.
                        _ if rank != voter.leader => {}
                        Event::Told(ToVisitor::GivenUp) | Event::Lost => voter.is_lost = true,
                        Event::Told(_) => voter.heard = Instant::now(),
                    }
                }
                let is_silent = voter.heard.elapsed() > self.visitors.silence();
                (voter.is_lost || is_silent).then_some(Rank(voter.leader))
            }
        }
    }

    /// Waits until a member gives up or keeps silent. Returns `None` when all have joined, or this
    /// rank has given up.
    pub(crate) async fn failure(&self) -> Option<Rank> {
        loop {
            if self.is_over.load(Ordering::Acquire) {
                return None;
            }
            if let Some(rank) = self.missing() {
                return Some(rank);
            }
            sleep(LOOK).await;
        }
    }

    /// All members have joined. From now on this rank tells others that its group has moved on.
    pub fn joined(&self) {
        self.is_over.store(true, Ordering::Release);
        self.visitors.set_stage(0, Stage::Moved(self.mark));
        if let Role::Voter(voter) = &self.role {
            let mut voter = voter.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Visit { joined, mut task, .. }) = voter.visit.take() {
                joined.send(()).unwrap_or_default();
                // The task ends by itself after its last message.
                task.detach_all();
            }
        }
    }

    /// Gives the seat up. The other members notice.
    pub fn leave(&self) {
        if self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.visitors.leave_seat();
        match &self.role {
            Role::Leader(members) => {
                self.visitors.give_up(members.iter().map(|(_, number)| *number));
            }
            Role::Voter(voter) => {
                voter.lock().unwrap_or_else(PoisonError::into_inner).visit = None;
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

impl MeetingPoint {
    /// Regroups with the other ranks. `own` is this rank. Blocks until the members are known.
    /// Returns `None` if the doubtful group of the wish has formed.
    ///
    /// # Errors
    /// See `RegroupError`.
    pub(crate) fn regroup(
        self: &Arc<Self>,
        own: Rank,
        runtime: &ControlRuntime,
        wish: Wish,
    ) -> Result<Option<Regrouped>, RegroupError> {
        match self.elect(own, runtime, wish, 0)? {
            Outcome::Regrouped(regrouped) => Ok(Some(regrouped)),
            Outcome::Formed => Ok(None),
            Outcome::Agreed(_) => Err(RegroupError::Excluded),
        }
    }

    /// Agrees with the other ranks on the bitwise and of their flags. `own` is this rank. Blocks
    /// until the value is known.
    ///
    /// # Errors
    /// See `RegroupError`.
    pub(crate) fn agree(
        self: &Arc<Self>,
        own: Rank,
        runtime: &ControlRuntime,
        wish: Wish,
        flag: u64,
    ) -> Result<u64, RegroupError> {
        let election = self.visitors.next_agreement();
        self.opinion().flag = flag;
        match self.elect(own, runtime, wish, election)? {
            Outcome::Agreed(value) if value & !flag == 0 => Ok(value),
            Outcome::Agreed(_) => Err(RegroupError::Uncounted),
            Outcome::Regrouped(_) | Outcome::Formed => Err(RegroupError::Excluded),
        }
    }

    /// The name of the group with this nonce before those that do not know the nonce.
    fn mark(&self, nonce: u128) -> u64 {
        let digest = self.secret.derive(&["formed", &format!("{nonce:x}")]);
        u64::from_le_bytes(std::array::from_fn(|at| digest[at]))
    }

    /// The members of the last group in which this rank took a seat.
    fn doubt(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opinion(&self) -> MutexGuard<'_, Opinion> {
        self.opinion.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elect(
        self: &Arc<Self>,
        own: Rank,
        runtime: &ControlRuntime,
        wish: Wish,
        election: u64,
    ) -> Result<Outcome, RegroupError> {
        match self.visitors.stage(election) {
            Stage::Dismissed | Stage::Moved(_) => return Err(RegroupError::Excluded),
            _ => {}
        }
        // The rank may have to lead.
        descriptors::provide(self.places().len()).map_err(|few| {
            let descriptors::TooFew { needed, limit } = few;
            RegroupError::System(format!("{needed} descriptors are needed, and {limit} allowed"))
        })?;
        let (tell, told) = std_mpsc::sync_channel(1);
        let point = Arc::clone(self);
        runtime.spawn(async move {
            let bound = limits::timeout(wish.timeout);
            // A leader that began later also waits later.
            let limit = 2 * bound + 5 * point.visitors.silence();
            let outcome = timeout(limit, run(&point, own.0, &wish, election)).await;
            point.visitors.set_stage(election, Stage::Working);
            tell.send(outcome.unwrap_or(Err(RegroupError::Late(limit)))).unwrap_or_default();
        });
        let died = |_| RegroupError::System("the control thread ended early".to_owned());
        told.recv().map_err(died)?
    }
}

/// The outcome of an election.
enum Outcome {
    Regrouped(Regrouped),
    /// The doubtful group has formed.
    Formed,
    Agreed(u64),
}

/// Begins an election: 0 of the next group, and others of a value.
fn begin(point: &MeetingPoint, own: u32, wish: &Wish, number: u64) -> Election {
    let deadline_ms = u64::try_from(wish.timeout.as_millis()).unwrap_or(u64::MAX);
    let without: BTreeSet<u32> = wish.without.iter().map(|rank| rank.0).collect();
    let suspects: Vec<u32> = wish.suspects.iter().map(|rank| rank.0).collect();
    let place = (own, point.places().len());
    let election = Election::new(place, without, &suspects, [0, deadline_ms]);
    let mark = wish.doubtful.map(|nonce| point.mark(nonce));
    let election = election.doubting(point.doubt().clone(), mark);
    let election = if point.witness().is_some() { election.with_witness() } else { election };
    if number > 0 { election.agreeing(point.opinion().clone()) } else { election }
}

/// Runs one election.
async fn run(
    point: &MeetingPoint,
    own: u32,
    wish: &Wish,
    number: u64,
) -> Result<Outcome, RegroupError> {
    let began = Instant::now();
    let now_ms = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let size = point.places().len();
    let mut election = begin(point, own, wish, number);
    let mut votes = JoinSet::new();
    let (events, mut told) = mpsc::unbounded_channel();
    let mut visits: BTreeMap<u32, Visit> = BTreeMap::new();
    let mut looked: Option<(Instant, bool)> = None;
    loop {
        let leads = election.leader() == own;
        if looked.is_none_or(|(then, led)| then.elapsed() > point.visitors.beat() || led != leads) {
            election.ended(ended(point.places(), own, &wish.without, leads));
            looked = Some((Instant::now(), leads));
        }
        election.asked_by(&point.visitors.questions(number), now_ms());
        let step = election.tick(now_ms());
        if let (Step::AskWitness(members), Some(witness)) = (&step, point.witness()) {
            votes.spawn(ask_witness(point, members, witness));
        }
        if point.visitors.stage(number) == Stage::Dismissed {
            return Err(RegroupError::Excluded);
        }
        // Others may learn of a promise only when it cannot be forgotten any more.
        if let Some(opinion) = election.opinion() {
            point.opinion().clone_from(opinion);
        }
        let stage = election.stage();
        if stage != point.visitors.stage(number) {
            tracing::debug!("rank {own} regroups: {stage:?}");
            point.visitors.set_stage(number, stage);
        }
        if let Some(outcome) = conclude(point, (own, number), step, wish) {
            return outcome;
        }
        let hello = Hello { rank: own, election: number };
        pursue(point, hello, &mut election, &mut visits, &events, now_ms());
        // A look at the votes of many takes long, so the next one waits for more of them.
        let next = Instant::now() + Duration::from_millis(size as u64 / 1_000);
        loop {
            tokio::select! {
                Some((rank, event)) = told.recv() => match event {
                    // The visit was given up.
                    _ if !visits.contains_key(&rank) => {}
                    Event::Told(ToVisitor::Stage(stage)) => election.heard(rank, stage, now_ms()),
                    Event::Told(ToVisitor::Invited(it)) if !it.is_for(own, size) => {}
                    Event::Told(ToVisitor::Invited(invitation)) => {
                        let visit = visits.remove(&rank);
                        let group = follow(point, (rank, visit), invitation, told);
                        return Ok(Outcome::Regrouped(group));
                    }
                    Event::Told(ToVisitor::NoQuorum(quorum)) => return Err(quorum.into()),
                    Event::Told(ToVisitor::Differs) => return Err(RegroupError::Differs),
                    // It speaks of an earlier invitation.
                    Event::Told(ToVisitor::GivenUp) => {}
                    Event::Lost => {
                        visits.remove(&rank);
                        election.lost(rank, now_ms());
                    }
                },
                Some(answer) = votes.join_next() => if let Ok((members, is_given)) = answer {
                    election.witness_voted(members, is_given);
                },
                () = point.visitors.changed.notified() => {}
                () = sleep(LOOK) => {}
            }
            if Instant::now() >= next {
                break;
            }
        }
    }
}

/// Asks the witness for its vote for these members.
fn ask_witness(
    point: &MeetingPoint,
    members: &[u32],
    witness: &Witness,
) -> impl Future<Output = (Vec<u32>, bool)> + Send + 'static {
    tracing::info!("the witness is asked for its vote for the ranks {members:?}");
    let ports = point.places().iter().map(|place| place.port).collect();
    let group = (point.secret.clone(), ports);
    witness.clone().votes_for(members.to_vec(), group, WITNESS)
}

/// Tells the others how an election has ended for this rank. Returns `None` if it has not.
fn conclude(
    point: &MeetingPoint,
    (own, number): (u32, u64),
    step: Step,
    wish: &Wish,
) -> Option<Result<Outcome, RegroupError>> {
    let visitors = &point.visitors;
    Some(match step {
        Step::Wait | Step::AskWitness(_) => return None,
        Step::Form(members) => lead(point, own, members, wish.address).map(Outcome::Regrouped),
        Step::Formed(mark) => {
            visitors.set_stage(0, Stage::Moved(mark));
            Ok(Outcome::Formed)
        }
        Step::Agreed(value) => {
            *point.opinion() = Opinion::default();
            visitors.set_stage(number, Stage::Agreed(value));
            Ok(Outcome::Agreed(value))
        }
        Step::NoQuorum(quorum) => {
            visitors.answer(number, &quorum.members, &ToVisitor::NoQuorum(quorum.clone()));
            Err(quorum.into())
        }
        Step::Differs(_) => {
            let all: Vec<u32> = visitors.questions(number).into_keys().collect();
            visitors.answer(number, &all, &ToVisitor::Differs);
            Err(RegroupError::Differs)
        }
        Step::Excluded => Err(RegroupError::Excluded),
    })
}

/// Asks the ranks that the election wants to ask, and no others.
fn pursue(
    point: &MeetingPoint,
    hello: Hello,
    election: &mut Election,
    visits: &mut BTreeMap<u32, Visit>,
    events: &mpsc::UnboundedSender<(u32, Event)>,
    now_ms: u64,
) {
    let asks = election.asks();
    visits.retain(|rank, _| asks.contains_key(rank));
    for (rank, purpose) in asks {
        if let Some(visit) = visits.get(&rank) {
            visit.purpose.send_if_modified(|now| {
                let is_new = *now != purpose;
                *now = purpose;
                is_new
            });
        } else if let Some(at) = point.address_of(rank) {
            election.asked(rank, now_ms);
            let shared = (point.greeting.clone(), point.secret.clone());
            let beat = point.visitors.beat();
            visits.insert(rank, visit((hello, rank), at, shared, purpose, (beat, events.clone())));
        } else {
            election.lost(rank, now_ms);
        }
    }
}

/// The ranks of this host whose processes have ended. A leader looks at all of them. Another rank
/// looks at those after it, up to one that lives and may vote: together the voters of a host see
/// every end, and each looks at few.
fn ended(places: &[Place], own: u32, without: &[Rank], is_leader: bool) -> BTreeSet<u32> {
    let here = LocalProcess::own();
    let mut dead = BTreeSet::new();
    for (rank, place) in
        (0..).zip(places).cycle().skip(Rank(own).index() + 1).take(places.len().saturating_sub(1))
    {
        match place.process.is_over(&here) {
            Some(true) => _ = dead.insert(rank),
            Some(false) if !is_leader && !without.contains(&Rank(rank)) => break,
            _ => {}
        }
    }
    dead
}

/// Invites the members to a group that this rank leads.
fn lead(
    point: &MeetingPoint,
    own: u32,
    members: Vec<u32>,
    address: Option<SocketAddr>,
) -> Result<Regrouped, RegroupError> {
    let system = |e: std::io::Error| RegroupError::System(e.to_string());
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|e| system(std::io::Error::other(e)))?;
    let nonce = u128::from_le_bytes(nonce);
    tracing::info!("rank {own} leads the ranks {members:?} to a new group");
    let invitation = Invitation { members: members.clone(), address, nonce };
    let others: Vec<u32> = members.iter().copied().filter(|rank| *rank != own).collect();
    let invited = point.visitors.answer(0, &others, &ToVisitor::Invited(invitation));
    let seat = Seat::take(point, &members, nonce, Role::Leader(invited));
    let members = members.into_iter().map(Rank).collect();
    Ok(Regrouped { members, address, nonce, seat: Some(Arc::new(seat)) })
}

/// Takes the seat in a group to which the leader invites.
fn follow(
    point: &MeetingPoint,
    (leader, visit): (u32, Option<Visit>),
    invitation: Invitation,
    events: Events,
) -> Regrouped {
    let Invitation { members, address, nonce } = invitation;
    tracing::debug!("rank {leader} invites the ranks {members:?}");
    let voter = Voter { leader, visit, events, heard: Instant::now(), is_lost: false };
    let seat = Seat::take(point, &members, nonce, Role::Voter(Mutex::new(voter)));
    let members = members.into_iter().map(Rank).collect();
    Regrouped { members, address, nonce, seat: Some(Arc::new(seat)) }
}

/// Begins to ask another rank. Must run on the control thread.
fn visit(
    (hello, rank): (Hello, u32),
    at: SocketAddr,
    shared: (Greeting, Secret),
    purpose: Purpose,
    (beat, events): (Duration, mpsc::UnboundedSender<(u32, Event)>),
) -> Visit {
    let voting = matches!(purpose, Purpose::Vote(_));
    let (purpose, purposes) = watch::channel(purpose);
    let (joined, last) = mpsc::unbounded_channel();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let (greeting, secret) = shared;
        // Voters of many do not dial at once, as those that join.
        if voting {
            sleep(turn(Rank(hello.rank))).await;
        }
        match attempt(at, &greeting, &secret).await {
            Ok(channel) => ask(channel, hello, (purposes, beat), last, |it| {
                events.send((rank, Event::Told(it))).unwrap_or_default();
            })
            .await
            .unwrap_or_default(),
            Err(e) => tracing::debug!("rank {} cannot ask rank {rank} at {at}: {e}", hello.rank),
        }
        events.send((rank, Event::Lost)).unwrap_or_default();
    });
    Visit { purpose, joined, task }
}

/// Asks a rank again and again, and passes on its answers, until the connection ends or this rank
/// has joined.
async fn ask(
    channel: Channel,
    hello: Hello,
    (mut purposes, beat): (watch::Receiver<Purpose>, Duration),
    mut joined: mpsc::UnboundedReceiver<()>,
    told: impl Fn(ToVisitor),
) -> std::io::Result<()> {
    let Channel { mut reader, mut writer, .. } = channel;
    writer.send(&encode(&hello)).await?;
    let mut question = Some(purposes.borrow_and_update().clone());
    // A first tick at once would come up to a millisecond later.
    let mut beat = interval_at(Instant::now() + beat, beat);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if let Some(question) = question {
            writer.send(&encode(&FromVisitor::Ask(question))).await?;
        }
        question = tokio::select! {
            message = reader.next() => match message?.and_then(|bytes| decode(&bytes)) {
                Some(answer) => {
                    told(answer);
                    None
                }
                None => return Ok(()),
            },
            Some(()) = joined.recv() => {
                writer.send(&encode(&FromVisitor::Joined)).await?;
                return writer.close().await;
            }
            _ = beat.tick() => Some(purposes.borrow_and_update().clone()),
            Ok(()) = purposes.changed() => Some(purposes.borrow_and_update().clone()),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A process that ends when it is killed.
    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[test]
    fn voters_look_up_to_the_next_rank_that_lives() {
        let mut children: Vec<Child> = (0..4).map(|_| sleeper()).collect();
        let own = std::process::id();
        let numbers = [&children[0], &children[1], &children[2], &children[3]].map(Child::id);
        let place = |number| {
            let process = LocalProcess::numbered(number);
            Place { ip: None, port: 0, process, witness: None }
        };
        // Ranks 1 and 3 live on; rank 2 is this process.
        let places = [numbers[0], numbers[1], own, numbers[2], numbers[3]].map(place);
        for dead in [0, 3] {
            children[dead].kill().unwrap();
            children[dead].wait().unwrap();
        }
        assert_eq!(ended(&places, 2, &[], true), [0, 4].into());
        assert_eq!(ended(&places, 2, &[], false), [].into(), "rank 3 lives");
        assert_eq!(ended(&places, 2, &[Rank(3)], false), [0, 4].into(), "rank 3 has no vote");
        children[2].kill().unwrap();
        children[2].wait().unwrap();
        assert_eq!(ended(&places, 2, &[], false), [0, 3, 4].into(), "rank 1 lives");
        children[1].kill().unwrap();
        children[1].wait().unwrap();
        assert_eq!(ended(&places, 2, &[], false), [0, 1, 3, 4].into());
    }
}

//! A rank's control task after it has joined: it answers inquiries, passes on failure reports, and
//! receives the failure cause.

use std::convert::Infallible;
use std::io;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::exchange::ExchangeError;
use super::inbound::{Inbound, Mark, receive};
use super::message::{FromCoordinator, GroupFailure, Source, ToCoordinator};
use super::rank_state::RankState;
use super::reconnect::ReturnPath;
use super::relay::Branch;
use super::runtime::ControlRuntime;
use crate::arbiter::FailureReport;
use crate::arbiter::agreement::silence_ms;
use crate::arbiter::failure_cause::{FailureCause, RankOnHost};
use crate::channel::connect::Channel;
use crate::channel::frames::{decode, encode};

/// Reconnections of a rank. A connection that breaks more often is of no use.
const RETURNS_MAX: u32 = 16;

/// How long a goodbye waits for the coordinator's farewell: as long as the coordinator waits for
/// others, and a little more.
const GOODBYE: Duration = Duration::from_millis(2 * limits::PARTING_MS);
/// How long a goodbye may take to a coordinator that is the cause of the failure.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long a rank whose link broke waits for a message of the coordinator.
const PARTED: Duration = Duration::from_millis(limits::PARTED_MS);

/// The caller's side: a handle on the control task.
#[derive(Debug)]
pub(crate) struct TaskHandle {
    commands: mpsc::UnboundedSender<Command>,
    exchanged: Mutex<std_mpsc::Receiver<Option<Vec<Vec<u8>>>>>,
    /// Closes when the task has ended.
    ended: Mutex<std_mpsc::Receiver<Infallible>>,
    runtime: Arc<ControlRuntime>,
}

/// A command of the caller to the control task.
#[derive(Debug)]
pub(crate) enum Command {
    Report(FailureReport),
    Contribute(Vec<u8>),
    Inquire(Option<u32>, Vec<u8>),
    Watch(Rank),
    GroupFailed(GroupFailure),
    CatchUp(Mark),
    Leave,
    Abandon(String),
}

/// The control task's side of a `TaskHandle`.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    commands: mpsc::UnboundedReceiver<Command>,
    exchanged: std_mpsc::Sender<Option<Vec<Vec<u8>>>>,
    /// Dropped at the end of the task.
    _ends: std_mpsc::Sender<Infallible>,
}

/// The messages to the coordinator and from it: over TCP, or within the process of rank 0.
#[derive(Debug)]
pub(crate) struct ControlStream {
    pub(crate) incoming: mpsc::UnboundedReceiver<Incoming>,
    pub(crate) outgoing: mpsc::UnboundedSender<ToCoordinator>,
    /// A mark returns behind all messages received before it.
    pub(crate) mark: mpsc::UnboundedSender<Mark>,
    /// How to reconnect if the connection breaks. Rank 0 has no connection that could.
    pub(crate) return_path: Option<ReturnPath>,
    /// The tasks of the connection, which end with the stream.
    pub(crate) _tasks: JoinSet<()>,
}

/// An event of a control stream.
#[derive(Debug)]
pub(crate) enum Incoming {
    Message(Arc<[u8]>),
    /// The connection ended. Holds an error if the far end did not close it.
    Closed(Option<io::Error>),
    Mark(Mark),
}

impl ControlStream {
    /// Makes a stream over a channel, and sends `first` on it.
    pub(crate) fn over(channel: Channel, first: ToCoordinator) -> Self {
        let Channel { reader, mut writer, .. } = channel;
        let (incoming_tx, incoming) = mpsc::unbounded_channel();
        let (outgoing, mut outgoing_rx) = mpsc::unbounded_channel();
        let (mark, marks) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(receive(reader, marks, async move |inbound| {
            let next = match inbound {
                Inbound::Message(bytes) => Incoming::Message(bytes.into()),
                Inbound::Closed(e) => Incoming::Closed(e.filter(|e| !is_hang_up(e))),
                Inbound::Mark(mark) => Incoming::Mark(mark),
            };
            incoming_tx.send(next).is_ok()
        }));
        tasks.spawn(async move {
            let mut next = Some(first);
            while let Some(message) = next {
                if writer.send(&encode(&message)).await.is_err() {
                    return;
                }
                next = outgoing_rx.recv().await;
            }
        });
        Self { incoming, outgoing, mark, return_path: None, _tasks: tasks }
    }

    /// A stream without a connection.
    fn cut(return_path: Option<ReturnPath>) -> Self {
        let (_, incoming) = mpsc::unbounded_channel();
        let (outgoing, _) = mpsc::unbounded_channel();
        let (mark, _) = mpsc::unbounded_channel();
        Self { incoming, outgoing, mark, return_path, _tasks: JoinSet::new() }
    }
}

/// Whether the error is that of a peer whose process has ended.
fn is_hang_up(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

impl TaskHandle {
    /// A member whose control task runs on `runtime`.
    pub(crate) fn new(runtime: Arc<ControlRuntime>) -> (Self, CommandQueue) {
        let (commands, orders) = mpsc::unbounded_channel();
        let (results, exchanged) = std_mpsc::channel();
        let (ends, ended) = std_mpsc::channel();
        let (exchanged, ended) = (Mutex::new(exchanged), Mutex::new(ended));
        let member = Self { commands, exchanged, ended, runtime };
        (member, CommandQueue { commands: orders, exchanged: results, _ends: ends })
    }

    pub(crate) fn report_failure(&self, report: FailureReport) {
        self.send(Command::Report(report));
    }

    pub(crate) fn runtime(&self) -> &ControlRuntime {
        &self.runtime
    }

    /// A sender of commands to the control task, for another thread.
    pub(crate) fn commands(&self) -> mpsc::UnboundedSender<Command> {
        self.commands.clone()
    }

    pub(crate) fn exchange(
        &self,
        bytes: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let exchanged = self.exchanged.lock().unwrap_or_else(PoisonError::into_inner);
        // Drops results of an exchange for which this rank did not wait.
        while exchanged.try_recv().is_ok() {}
        self.send(Command::Contribute(bytes));
        match exchanged.recv_timeout(timeout) {
            Ok(Some(all)) => Ok(all),
            Err(std_mpsc::RecvTimeoutError::Timeout) => Err(ExchangeError::Timeout(timeout)),
            Ok(None) | Err(std_mpsc::RecvTimeoutError::Disconnected) => {
                Err(ExchangeError::CoordinatorGone)
            }
        }
    }

    /// Waits until all messages received so far are handled. Returns whether they are.
    pub(crate) fn catch_up(&self, limit: Duration) -> bool {
        let (mark, passed) = Mark::new();
        self.send(Command::CatchUp(mark));
        let is_late = passed.recv_timeout(limit) == Err(std_mpsc::RecvTimeoutError::Timeout);
        if is_late {
            tracing::warn!("the control task has not caught up within {limit:?}");
        }
        !is_late
    }

    pub(crate) fn leave(&mut self) {
        self.end(Command::Leave);
    }

    pub(crate) fn abandon(&mut self, reason: String) {
        self.end(Command::Abandon(reason));
    }

    /// Waits for the end of the control task.
    fn end(&mut self, command: Command) {
        self.send(command);
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Err(std_mpsc::RecvError) = ended.recv();
    }

    fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::debug!("the control task has ended");
        }
    }
}

/// Serves the rank until it has left, and in rank 0 until its `coordinator` has ended.
pub(crate) async fn serve(
    rank: Rank,
    state: Arc<RankState>,
    stream: ControlStream,
    orders: CommandQueue,
    mut coordinator: JoinSet<()>,
    branch: Option<Branch>,
) {
    let CommandQueue { mut commands, exchanged, _ends } = orders;
    let size = branch.as_ref().map_or(0, |branch| branch.fetcher.size);
    let silence = Duration::from_millis(silence_ms(size));
    let mut task = ControlTask {
        rank,
        state,
        stream,
        coordinator: CoordinatorState::Connected,
        branch,
        exchanged,
        exchanges: 0,
        fetching: JoinSet::new(),
        cause_wait: CauseWait::Unlimited,
        silence,
        unacknowledged: Vec::new(),
        callers: Vec::new(),
        returning: JoinSet::new(),
        returns: 0,
        is_cut: false,
    };
    let failure = task.watch(&mut commands).await;
    task.depart(failure).await;
    while let Some(ended) = coordinator.join_next().await {
        if ended.is_err_and(|e| e.is_panic()) {
            tracing::error!("the coordinator panicked");
        }
    }
}

/// The state of the coordinator, as seen from this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoordinatorState {
    Connected,
    /// The connection broke, and the rank reconnects.
    Reconnecting,
    /// It left in peace.
    Departed,
    /// Its connection broke. The failure cause says so.
    Lost,
}

struct ControlTask {
    rank: Rank,
    state: Arc<RankState>,
    stream: ControlStream,
    coordinator: CoordinatorState,
    /// Rank 0 has none.
    branch: Option<Branch>,
    exchanged: std_mpsc::Sender<Option<Vec<Vec<u8>>>>,
    exchanges: u64,
    /// The task that fetches the result of the exchange of that number.
    fetching: JoinSet<io::Result<Vec<u8>>>,
    cause_wait: CauseWait,
    /// How long that wait may last without a message of the coordinator.
    silence: Duration,
    /// Messages that the rank sends again on a new connection.
    unacknowledged: Vec<ToCoordinator>,
    /// Callers that wait to catch up until there is a connection again.
    callers: Vec<Mark>,
    /// The task that reconnects.
    returning: JoinSet<io::Result<ControlStream>>,
    returns: u32,
    /// Whether the last broken connection had timed out, or the attempts to reconnect did.
    is_cut: bool,
}

/// How long a rank that reported a failure waits for the failure cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CauseWait {
    /// It has reported no failure, or has its failure cause, or runs the coordinator itself.
    Unlimited,
    Until(Instant),
    /// The time is over, unless a message that has already arrived says otherwise.
    Expired,
}

impl ControlTask {
    /// Runs until the rank leaves. Returns a reason if the rank fails.
    async fn watch(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> Option<String> {
        loop {
            let deadline = match self.cause_wait {
                CauseWait::Until(deadline) => Some(deadline),
                CauseWait::Unlimited | CauseWait::Expired => None,
            };
            let bound = deadline.unwrap_or_else(Instant::now);
            let is_connected = self.coordinator == CoordinatorState::Connected;
            tokio::select! {
                incoming = self.stream.incoming.recv(), if is_connected => self.handle(incoming),
                command = commands.recv() => match command {
                    Some(Command::Report(report)) => self.report_failure(report),
                    Some(Command::Contribute(bytes)) => self.contribute(bytes),
                    Some(Command::Inquire(of, question)) => self.inquire(of, question),
                    Some(Command::Watch(peer)) => self.watch_rank(peer),
                    Some(Command::GroupFailed(failure)) => {
                        self.send(ToCoordinator::GroupFailed(failure));
                    }
                    // Without a coordinator the mark is dropped: no more messages will come.
                    Some(Command::CatchUp(mark)) => match self.coordinator {
                        CoordinatorState::Connected => {
                            self.stream.mark.send(mark).unwrap_or_default();
                        }
                        CoordinatorState::Reconnecting => self.callers.push(mark),
                        CoordinatorState::Departed | CoordinatorState::Lost => {}
                    },
                    Some(Command::Abandon(reason)) => return Some(reason),
                    Some(Command::Leave) | None => return None,
                },
                returned = outcome(&mut self.returning) => {
                    if let Err(e) = self.resume(returned) {
                        self.is_cut |= is_cut(&e);
                        self.lose_coordinator();
                    }
                }
                fetched = outcome(&mut self.fetching) => self.take_fetched(fetched),
                () = sleep_until(bound), if deadline.is_some() => {
                    self.cause_wait = CauseWait::Expired;
                    if self.stream.mark.send(Mark::Task(0)).is_err() {
                        self.declare_silence();
                    }
                }
            }
        }
    }

    /// Says goodbye and waits for the farewell. In rank 0 the farewell comes when the coordinator
    /// ends, which has its own time limit. Other ranks wait for a short time only.
    async fn depart(&mut self, failure: Option<String>) {
        if !matches!(self.coordinator, CoordinatorState::Connected | CoordinatorState::Reconnecting)
        {
            return;
        }
        if let Some(reason) = failure {
            self.send(ToCoordinator::Report(FailureReport::Abort { reason }));
        }
        self.send(ToCoordinator::Goodbye(self.state.calls.history()));
        // A coordinator that has failed sends no farewell.
        let cause = self.state.failure_cause();
        let is_lost = cause.is_some_and(|cause| cause.culprits().contains(&Rank(0)));
        let deadline = Instant::now() + if is_lost { LAST_WORDS } else { GOODBYE };
        while matches!(
            self.coordinator,
            CoordinatorState::Connected | CoordinatorState::Reconnecting
        ) {
            let is_connected = self.coordinator == CoordinatorState::Connected;
            tokio::select! {
                incoming = self.stream.incoming.recv(), if is_connected => self.handle(incoming),
                // Without a coordinator there is nobody left to tell.
                returned = outcome(&mut self.returning) => if self.resume(returned).is_err() {
                    return;
                },
                () = sleep_until(deadline), if self.rank != Rank(0) => return,
            }
        }
    }

    fn handle(&mut self, incoming: Option<Incoming>) {
        let bytes = match incoming {
            Some(Incoming::Message(bytes)) => bytes,
            Some(Incoming::Mark(Mark::Caller(caller))) => return drop(caller),
            Some(Incoming::Mark(Mark::Task(_))) => return self.declare_silence(),
            Some(Incoming::Mark(Mark::Written(coordinator))) => return drop(coordinator),
            Some(Incoming::Closed(e)) => return self.reconnect(e.is_some_and(|e| is_cut(&e))),
            None => return self.reconnect(false),
        };
        match decode(&bytes) {
            Some(FromCoordinator::Hold) => {
                if self.state.failure_cause().is_none() {
                    self.wait_for_cause();
                    self.send(ToCoordinator::Holds);
                }
            }
            Some(FromCoordinator::Ask) => {
                // Rank 0 is not silent. It may have to read the answers of many ranks.
                if self.cause_wait != CauseWait::Unlimited {
                    self.wait_for_cause();
                }
                self.send(ToCoordinator::Answer(self.state.calls.history()))
            }
            Some(FromCoordinator::FailureCause(cause)) => self.set_failure_cause(cause),
            Some(FromCoordinator::Contributions(number, all)) if self.awaits(number) => {
                self.take_result(all, bytes);
            }
            Some(FromCoordinator::Fetch(number, source)) if self.awaits(number) => {
                self.fetch(source);
            }
            // The result of an exchange that this rank has, or no caller waits for any more.
            Some(FromCoordinator::Contributions(..) | FromCoordinator::Fetch(..)) => {}
            Some(FromCoordinator::Question(number, question)) => {
                self.send(ToCoordinator::Reply(number, self.state.answer(&question)));
            }
            Some(FromCoordinator::Answers(question, answers)) => {
                self.state.conclude(&question, &answers);
            }
            Some(FromCoordinator::Left(rank)) => self.state.set_left(Rank(rank)),
            Some(FromCoordinator::GroupFailed(failure)) => self.state.note_group_failure(failure),
            Some(FromCoordinator::Farewell | FromCoordinator::Closing) => {
                self.coordinator = CoordinatorState::Departed;
                self.state.set_left(Rank(0));
                // A result may still come from another rank.
                if self.fetching.is_empty() {
                    self.end_exchange(None);
                }
                // The coordinator left before it got the failure report.
                if self.cause_wait != CauseWait::Unlimited {
                    self.set_failure_cause(departed_coordinator());
                }
            }
            Some(
                FromCoordinator::Roster(_)
                | FromCoordinator::Refused(_)
                | FromCoordinator::Accepted(_),
            )
            | None => {
                tracing::warn!(rank = self.rank.0, "rank 0 sent an unexpected message");
                self.reconnect(false);
            }
        }
    }

    fn report_failure(&mut self, report: FailureReport) {
        match self.coordinator {
            CoordinatorState::Connected | CoordinatorState::Reconnecting => {
                let is_first = self.cause_wait == CauseWait::Unlimited;
                if is_first && self.state.failure_cause().is_none() && self.rank != Rank(0) {
                    // The network may be parted for a while, also from rank 0.
                    if let FailureReport::Link { .. } = report {
                        self.silence = self.silence.max(PARTED);
                    }
                    self.wait_for_cause();
                }
                self.send(ToCoordinator::Report(report));
            }
            CoordinatorState::Departed => self.set_failure_cause(match report {
                FailureReport::Abort { reason } => {
                    let who = RankOnHost { rank: self.rank, host: None };
                    FailureCause::Aborted { who, reason }
                }
                FailureReport::Revoke => {
                    FailureCause::Revoked { who: RankOnHost { rank: self.rank, host: None } }
                }
                // No coordinator compares histories any more, so the failure cause is the same for
                // all.
                _ => departed_coordinator(),
            }),
            CoordinatorState::Lost => {}
        }
    }

    fn wait_for_cause(&mut self) {
        self.cause_wait = CauseWait::Until(Instant::now() + self.silence);
    }

    /// The coordinator has been silent for too long. This rank returns that, so it becomes the
    /// failure cause for all.
    fn declare_silence(&mut self) {
        if self.cause_wait == CauseWait::Expired {
            self.set_failure_cause(silent_coordinator());
            self.send(ToCoordinator::Stated(silent_coordinator()));
        }
    }

    fn contribute(&mut self, bytes: Vec<u8>) {
        self.exchanges += 1;
        self.unacknowledged.retain(|message| !matches!(message, ToCoordinator::Contribute(..)));
        if matches!(self.coordinator, CoordinatorState::Connected | CoordinatorState::Reconnecting)
            && self.state.failure_cause().is_none()
        {
            self.send(ToCoordinator::Contribute(self.exchanges, bytes));
        } else {
            self.end_exchange(None);
        }
    }

    /// Whether this rank has contributed to the exchange of this number, and lacks its result.
    fn awaits(&self, number: u64) -> bool {
        let is_contribution =
            |it: &ToCoordinator| matches!(it, ToCoordinator::Contribute(own, _) if *own == number);
        self.unacknowledged.iter().any(is_contribution)
    }

    /// Takes the result of the exchange that this rank awaits, and forwards it as the message that
    /// it came in.
    fn take_result(&mut self, all: Vec<Vec<u8>>, message: Arc<[u8]>) {
        self.unacknowledged.retain(|it| !matches!(it, ToCoordinator::Contribute(..)));
        self.fetching = JoinSet::new();
        if let Some(relay) = self.branch.as_ref().and_then(|branch| branch.relay.as_ref()) {
            relay.give(self.exchanges, message);
        }
        self.end_exchange(Some(all));
    }

    /// Fetches the result of the exchange that this rank awaits.
    fn fetch(&mut self, source: Source) {
        let Some(branch) = &self.branch else { return };
        self.fetching = JoinSet::new();
        self.fetching.spawn(branch.fetcher.clone().fetch(self.exchanges, source));
    }

    /// Takes the message that another rank has sent. Without a result in it, rank 0 is asked.
    fn take_fetched(&mut self, fetched: io::Result<Vec<u8>>) {
        let size = self.branch.as_ref().map_or(0, |branch| branch.fetcher.size);
        if !self.awaits(self.exchanges) {
            return;
        }
        let cause = match fetched.map(|bytes| (decode(&bytes), bytes)) {
            Ok((Some(FromCoordinator::Contributions(number, all)), bytes))
                if number == self.exchanges && all.len() == size =>
            {
                return self.take_result(all, bytes.into());
            }
            Ok(_) => "it is no result of this exchange".to_owned(),
            Err(e) => e.to_string(),
        };
        tracing::debug!("rank {} asks rank 0 for the result of an exchange: {cause}", self.rank);
        match self.coordinator {
            CoordinatorState::Departed | CoordinatorState::Lost => self.end_exchange(None),
            _ => self.send(ToCoordinator::NotFetched(self.exchanges)),
        }
    }

    /// Passes a question on. Without a coordinator there are no answers, so the rank cannot go on.
    fn inquire(&mut self, of: Option<u32>, question: Vec<u8>) {
        match self.coordinator {
            CoordinatorState::Departed => self.set_failure_cause(departed_coordinator()),
            // The caller asks again.
            _ => self.send(ToCoordinator::Inquire(of, question)),
        }
    }

    /// Asks when a rank has left. A coordinator that has left itself cannot tell.
    fn watch_rank(&mut self, peer: Rank) {
        if self.coordinator != CoordinatorState::Departed {
            self.send(ToCoordinator::Watch(peer.0));
        }
    }

    /// The connection has ended: connects to the coordinator again.
    fn reconnect(&mut self, is_cut: bool) {
        self.returns += 1;
        self.is_cut = is_cut;
        let return_path = self.stream.return_path.take();
        // The other end notices that this drops the connection.
        self.stream = ControlStream::cut(return_path.clone());
        if self.returns > RETURNS_MAX {
            return self.lose(silent_coordinator());
        }
        let Some(return_path) = return_path else {
            return self.lose_coordinator();
        };
        tracing::warn!(rank = self.rank.0, "the control connection to rank 0 broke");
        self.coordinator = CoordinatorState::Reconnecting;
        self.returning.spawn(async move {
            let first = return_path.first_message();
            return_path.take().await.map(|channel| ControlStream::over(channel, first))
        });
    }

    /// # Errors
    /// The rank cannot reconnect.
    fn resume(&mut self, returned: io::Result<ControlStream>) -> io::Result<()> {
        let return_path = self.stream.return_path.take();
        self.stream = ControlStream { return_path, ..returned? };
        self.coordinator = CoordinatorState::Connected;
        tracing::info!(rank = self.rank.0, "the control connection to rank 0 is restored");
        for message in std::mem::take(&mut self.unacknowledged) {
            self.send(message);
        }
        for peer in self.state.watched_present() {
            self.watch_rank(peer);
        }
        for mark in std::mem::take(&mut self.callers) {
            self.stream.mark.send(mark).unwrap_or_default();
        }
        Ok(())
    }

    /// The rank cannot reconnect.
    fn lose_coordinator(&mut self) {
        let who = RankOnHost { rank: Rank(0), host: None };
        self.lose(if self.is_cut { silent_coordinator() } else { FailureCause::Died { who } });
    }

    fn lose(&mut self, cause: FailureCause) {
        self.coordinator = CoordinatorState::Lost;
        self.callers.clear();
        self.set_failure_cause(cause);
    }

    fn set_failure_cause(&mut self, cause: FailureCause) {
        self.cause_wait = CauseWait::Unlimited;
        self.unacknowledged.retain(|message| matches!(message, ToCoordinator::Goodbye(_)));
        tracing::debug!(rank = self.rank.0, "failure cause: {cause}");
        self.state.set_failure_cause(&Arc::new(cause));
        self.end_exchange(None);
    }

    fn end_exchange(&self, all: Option<Vec<Vec<u8>>>) {
        if self.exchanged.send(all).is_err() {
            tracing::trace!("no caller waits for the exchange any more");
        }
    }

    fn send(&mut self, message: ToCoordinator) {
        use ToCoordinator::{
            Answer, Contribute, Goodbye, GroupFailed, Holds, Inquire, Join, NotFetched, Reply,
            Report, Return, Stated, Watch,
        };
        match &message {
            Report(_) | Stated(_) | Contribute(..) | Goodbye(_) => {
                self.unacknowledged.push(message.clone())
            }
            // Rank 0 asks again, or does not need the answer any more, or the rank asks again.
            Answer(_) | Holds | Join(_) | NotFetched(_) | Return(_) | Inquire(..) | Reply(..)
            | Watch(_) | GroupFailed(_) => {}
        }
        if self.stream.outgoing.send(message).is_err() {
            tracing::debug!("rank {} is not connected to rank 0 now", self.rank);
        }
    }
}

/// The outcome of the next task. Waits for ever if there is none.
async fn outcome<T: 'static>(tasks: &mut JoinSet<io::Result<T>>) -> io::Result<T> {
    match tasks.join_next().await {
        Some(outcome) => outcome.unwrap_or_else(|e| Err(io::Error::other(e))),
        None => std::future::pending().await,
    }
}

/// The failure cause of every rank whose coordinator does not answer. It does not depend on how the
/// rank noticed, so it is the same on all.
fn silent_coordinator() -> FailureCause {
    let ranks = vec![RankOnHost { rank: Rank(0), host: None }].into();
    FailureCause::Silent { ranks, for_ms: limits::COORDINATOR_SILENCE_MS }
}

/// The failure cause of every rank that fails after the coordinator has left.
const fn departed_coordinator() -> FailureCause {
    FailureCause::Left { who: RankOnHost { rank: Rank(0), host: None } }
}

/// Whether the far end's host, or the network to it, has vanished.
pub(crate) fn is_cut(e: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    matches!(e.kind(), HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut)
}

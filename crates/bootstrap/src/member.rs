//! One rank's life on the control thread once it has joined: it answers questions, passes on
//! complaints, and hears the verdict.

use std::io;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::dial::Channel;
use crate::exchange::ExchangeError;
use crate::inbound::{Inbound, Mark, receive};
use crate::judge::Complaint;
use crate::message::{FromHub, ToHub, decode, encode};
use crate::reconnect::WayBack;
use crate::seat::Seat;
use crate::verdict::{Verdict, Who};

/// How long a goodbye waits for the hub's farewell: as long as that waits for others, and a little.
const GOODBYE: Duration = Duration::from_millis(2 * limits::PARTING_MS);
/// How long a rank that complained waits for a word of the hub.
const SILENCE: Duration = Duration::from_millis(limits::HUB_SILENCE_MS);

/// The caller's side: a handle on the control thread.
#[derive(Debug)]
pub(crate) struct Member {
    commands: mpsc::UnboundedSender<Command>,
    exchanged: Mutex<std_mpsc::Receiver<Option<Vec<Vec<u8>>>>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What the caller wants of the control thread.
#[derive(Debug)]
pub(crate) enum Command {
    Complain(Complaint),
    Offer(Vec<u8>),
    CatchUp(Mark),
    Leave,
    Abandon(String),
}

/// The control thread's side of a `Member`.
#[derive(Debug)]
pub(crate) struct Orders {
    commands: mpsc::UnboundedReceiver<Command>,
    exchanged: std_mpsc::Sender<Option<Vec<Vec<u8>>>>,
}

/// The way to the hub and back: over TCP, or within the process of rank 0.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) heard: mpsc::UnboundedReceiver<Heard>,
    pub(crate) say: mpsc::UnboundedSender<ToHub>,
    /// A mark comes back behind whatever was received before it.
    pub(crate) mark: mpsc::UnboundedSender<Mark>,
    /// How to come back where the connection breaks. Rank 0 has no connection that could.
    pub(crate) way_back: Option<WayBack>,
}

/// What comes out of a line.
#[derive(Debug)]
pub(crate) enum Heard {
    Message(Arc<[u8]>),
    /// The connection ended; with an error where the far end did not close it.
    Closed(Option<io::Error>),
    Mark(Mark),
}

impl Line {
    /// The line over a channel, on which `first` is said first.
    pub(crate) fn over(channel: Channel, first: ToHub) -> Self {
        let Channel { reader, mut writer, .. } = channel;
        let (hear, heard) = mpsc::unbounded_channel();
        let (say, mut said) = mpsc::unbounded_channel();
        let (mark, marks) = mpsc::unbounded_channel();
        tokio::spawn(receive(reader, marks, async move |inbound| {
            let next = match inbound {
                Inbound::Message(bytes) => Heard::Message(bytes.into()),
                Inbound::Closed(e) => Heard::Closed(e.filter(|e| !is_hang_up(e))),
                Inbound::Mark(mark) => Heard::Mark(mark),
            };
            hear.send(next).is_ok()
        }));
        tokio::spawn(async move {
            let mut next = Some(first);
            while let Some(message) = next {
                if writer.send(&encode(&message)).await.is_err() {
                    return;
                }
                next = said.recv().await;
            }
        });
        Self { heard, say, mark, way_back: None }
    }

    /// A line that leads nowhere.
    fn cut(way_back: Option<WayBack>) -> Self {
        let (_, heard) = mpsc::unbounded_channel();
        let (say, _) = mpsc::unbounded_channel();
        let (mark, _) = mpsc::unbounded_channel();
        Self { heard, say, mark, way_back }
    }
}

/// The end of a process looks like this from the other side.
fn is_hang_up(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

impl Member {
    pub(crate) fn new() -> (Self, Orders) {
        let (commands, orders) = mpsc::unbounded_channel();
        let (results, exchanged) = std_mpsc::channel();
        let member = Self { commands, exchanged: Mutex::new(exchanged), thread: None };
        (member, Orders { commands: orders, exchanged: results })
    }

    /// The thread to wait for when leaving.
    pub(crate) fn runs_on(&mut self, thread: thread::JoinHandle<()>) {
        self.thread = Some(thread);
    }

    pub(crate) fn complain(&self, complaint: Complaint) {
        self.order(Command::Complain(complaint));
    }

    /// A sender of commands to the control thread, for another thread.
    pub(crate) fn commands(&self) -> mpsc::UnboundedSender<Command> {
        self.commands.clone()
    }

    pub(crate) fn exchange(
        &self,
        bytes: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let exchanged = self.exchanged.lock().unwrap_or_else(PoisonError::into_inner);
        // Of an exchange that this rank did not wait for.
        while exchanged.try_recv().is_ok() {}
        self.order(Command::Offer(bytes));
        match exchanged.recv_timeout(timeout) {
            Ok(Some(all)) => Ok(all),
            Err(std_mpsc::RecvTimeoutError::Timeout) => Err(ExchangeError::Timeout(timeout)),
            Ok(None) | Err(std_mpsc::RecvTimeoutError::Disconnected) => Err(ExchangeError::HubGone),
        }
    }

    /// Waits until what was received up to now is handled. Whether it is.
    pub(crate) fn catch_up(&self, limit: Duration) -> bool {
        let (mark, passed) = Mark::new();
        self.order(Command::CatchUp(mark));
        let is_late = passed.recv_timeout(limit) == Err(std_mpsc::RecvTimeoutError::Timeout);
        if is_late {
            tracing::warn!("the control thread has not caught up within {limit:?}");
        }
        !is_late
    }

    pub(crate) fn leave(&mut self) {
        self.end(Command::Leave);
    }

    pub(crate) fn abandon(&mut self, reason: String) {
        self.end(Command::Abandon(reason));
    }

    fn end(&mut self, command: Command) {
        self.order(command);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the control thread panicked");
        }
    }

    fn order(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::debug!("the control thread has ended");
        }
    }
}

/// Serves the rank until it has left.
pub(crate) async fn tend(rank: Rank, seat: Arc<Seat>, line: Line, orders: Orders) {
    let Orders { mut commands, exchanged } = orders;
    let mut post = Post {
        rank,
        seat,
        line,
        hub: Hub::Watching,
        exchanged,
        exchanges: 0,
        patience: Patience::Unlimited,
        unsettled: Vec::new(),
        callers: Vec::new(),
        returning: None,
        returns: 0,
        is_cut: false,
    };
    let last_words = post.watch(&mut commands).await;
    post.depart(last_words).await;
}

/// What has become of the hub, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hub {
    Watching,
    /// The connection broke, and is made again.
    Returning,
    /// It left in peace.
    Departed,
    /// Its connection broke; the verdict says so.
    Lost,
}

struct Post {
    rank: Rank,
    seat: Arc<Seat>,
    line: Line,
    hub: Hub,
    exchanged: std_mpsc::Sender<Option<Vec<Vec<u8>>>>,
    exchanges: u64,
    patience: Patience,
    /// Messages that the rank sends again on a new connection.
    unsettled: Vec<ToHub>,
    /// Callers that wait to catch up until there is a connection again.
    callers: Vec<Mark>,
    returning: Option<JoinHandle<io::Result<Line>>>,
    returns: u32,
    /// Whether the last connection that broke had timed out, or the attempts to come back did.
    is_cut: bool,
}

/// How long a rank that complained waits for the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// It has not complained, or has its verdict, or carries the hub itself.
    Unlimited,
    Until(Instant),
    /// It is over, unless what has arrived meanwhile says otherwise.
    Over,
}

impl Post {
    /// Until the rank leaves; yields a reason if it fails.
    async fn watch(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> Option<String> {
        loop {
            let deadline = match self.patience {
                Patience::Until(deadline) => Some(deadline),
                Patience::Unlimited | Patience::Over => None,
            };
            let bound = deadline.unwrap_or_else(Instant::now);
            tokio::select! {
                heard = self.line.heard.recv(), if self.hub == Hub::Watching => self.hear(heard),
                command = commands.recv() => match command {
                    Some(Command::Complain(complaint)) => self.complain(complaint),
                    Some(Command::Offer(bytes)) => self.offer(bytes),
                    // Where the hub is gone the mark is dropped: nothing more will come.
                    Some(Command::CatchUp(mark)) => match self.hub {
                        Hub::Watching => self.line.mark.send(mark).unwrap_or_default(),
                        Hub::Returning => self.callers.push(mark),
                        Hub::Departed | Hub::Lost => {}
                    },
                    Some(Command::Abandon(reason)) => return Some(reason),
                    Some(Command::Leave) | None => return None,
                },
                returned = returned(&mut self.returning) => {
                    if let Err(e) = self.resume(returned) {
                        self.is_cut |= is_cut(&e);
                        self.lose_hub();
                    }
                }
                () = sleep_until(bound), if deadline.is_some() => {
                    self.patience = Patience::Over;
                    if self.line.mark.send(Mark::Task(0)).is_err() {
                        self.state_silence();
                    }
                }
            }
        }
    }

    /// Says goodbye and waits for the farewell. In rank 0 it comes when the hub is done, which has
    /// its own bound; elsewhere it is overdue soon.
    async fn depart(&mut self, failure: Option<String>) {
        if !matches!(self.hub, Hub::Watching | Hub::Returning) {
            return;
        }
        if let Some(reason) = failure {
            self.say(ToHub::Complain(Complaint::Abort { reason }));
        }
        self.say(ToHub::Goodbye(self.seat.calls.history()));
        let deadline = Instant::now() + GOODBYE;
        while matches!(self.hub, Hub::Watching | Hub::Returning) {
            tokio::select! {
                heard = self.line.heard.recv(), if self.hub == Hub::Watching => self.hear(heard),
                // Where there is no hub any more there is nobody left to tell.
                returned = returned(&mut self.returning) => if self.resume(returned).is_err() {
                    return;
                },
                () = sleep_until(deadline), if self.rank != Rank(0) => return,
            }
        }
    }

    fn hear(&mut self, heard: Option<Heard>) {
        let bytes = match heard {
            Some(Heard::Message(bytes)) => bytes,
            Some(Heard::Mark(Mark::Caller(caller))) => return drop(caller),
            Some(Heard::Mark(Mark::Task(_))) => return self.state_silence(),
            Some(Heard::Mark(Mark::Written(hub))) => return drop(hub),
            Some(Heard::Closed(e)) => return self.come_back(e.is_some_and(|e| is_cut(&e))),
            None => return self.come_back(false),
        };
        match decode(&bytes) {
            Some(FromHub::Hold) => {
                if self.seat.verdict().is_none() {
                    self.patience = Patience::Until(Instant::now() + SILENCE);
                    self.say(ToHub::Holds);
                }
            }
            Some(FromHub::Ask) => self.say(ToHub::Answer(self.seat.calls.history())),
            Some(FromHub::Verdict(verdict)) => self.sentence(verdict),
            Some(FromHub::Offers(number, all)) if number == self.exchanges => {
                self.unsettled.retain(|message| !matches!(message, ToHub::Offer(..)));
                self.end_exchange(Some(all));
            }
            // Of an exchange that nobody waits for any more.
            Some(FromHub::Offers(..)) => {}
            Some(FromHub::Farewell | FromHub::Closing) => {
                self.hub = Hub::Departed;
                self.end_exchange(None);
                // It left before it heard of it.
                if self.patience != Patience::Unlimited {
                    self.sentence(left_hub());
                }
            }
            Some(
                FromHub::Roster(_) | FromHub::Refused(_) | FromHub::Seated(_) | FromHub::Fetch(_),
            )
            | None => {
                tracing::warn!(rank = self.rank.0, "rank 0 sent an unexpected message");
                self.come_back(false);
            }
        }
    }

    fn complain(&mut self, complaint: Complaint) {
        match self.hub {
            Hub::Watching | Hub::Returning => {
                let is_patient = self.patience == Patience::Unlimited;
                if is_patient && self.seat.verdict().is_none() && self.rank != Rank(0) {
                    self.patience = Patience::Until(Instant::now() + SILENCE);
                }
                self.say(ToHub::Complain(complaint));
            }
            Hub::Departed => self.sentence(match complaint {
                Complaint::Abort { reason } => {
                    let who = Who { rank: self.rank, host: None };
                    Verdict::Aborted { who, reason }
                }
                // Nobody compares what ranks know any more, so it is the same for all.
                _ => left_hub(),
            }),
            Hub::Lost => {}
        }
    }

    /// The hub has been silent for too long. This rank returns that, so it is the verdict for all.
    fn state_silence(&mut self) {
        if self.patience == Patience::Over {
            self.sentence(silent_hub());
            self.say(ToHub::Stated(silent_hub()));
        }
    }

    fn offer(&mut self, bytes: Vec<u8>) {
        self.exchanges += 1;
        self.unsettled.retain(|message| !matches!(message, ToHub::Offer(..)));
        if matches!(self.hub, Hub::Watching | Hub::Returning) && self.seat.verdict().is_none() {
            self.say(ToHub::Offer(self.exchanges, bytes));
        } else {
            self.end_exchange(None);
        }
    }

    /// Makes the connection again, on which nothing more will come.
    fn come_back(&mut self, is_cut: bool) {
        self.returns += 1;
        self.is_cut = is_cut;
        let way_back = self.line.way_back.take();
        // The other end notices.
        self.line = Line::cut(way_back.clone());
        if self.returns > limits::RETURNS_MAX {
            return self.lose(silent_hub());
        }
        let Some(way_back) = way_back else {
            return self.lose_hub();
        };
        tracing::warn!(rank = self.rank.0, "the control connection to rank 0 broke");
        self.hub = Hub::Returning;
        self.returning = Some(tokio::spawn(async move {
            let first = way_back.first_word();
            way_back.take().await.map(|channel| Line::over(channel, first))
        }));
    }

    /// # Errors
    /// The rank cannot come back.
    fn resume(&mut self, returned: io::Result<Line>) -> io::Result<()> {
        self.returning = None;
        let way_back = self.line.way_back.take();
        self.line = Line { way_back, ..returned? };
        self.hub = Hub::Watching;
        tracing::info!(rank = self.rank.0, "the control connection to rank 0 is there again");
        for message in std::mem::take(&mut self.unsettled) {
            self.say(message);
        }
        for mark in std::mem::take(&mut self.callers) {
            self.line.mark.send(mark).unwrap_or_default();
        }
        Ok(())
    }

    /// The rank cannot come back.
    fn lose_hub(&mut self) {
        let who = Who { rank: Rank(0), host: None };
        self.lose(if self.is_cut { silent_hub() } else { Verdict::Died { who } });
    }

    fn lose(&mut self, verdict: Verdict) {
        self.hub = Hub::Lost;
        self.callers.clear();
        self.sentence(verdict);
    }

    fn sentence(&mut self, verdict: Verdict) {
        self.patience = Patience::Unlimited;
        self.unsettled.retain(|message| matches!(message, ToHub::Goodbye(_)));
        tracing::debug!(rank = self.rank.0, "verdict: {verdict}");
        self.seat.sentence(&Arc::new(verdict));
        self.end_exchange(None);
    }

    fn end_exchange(&self, all: Option<Vec<Vec<u8>>>) {
        if self.exchanged.send(all).is_err() {
            tracing::trace!("nobody waits for the exchange any more");
        }
    }

    fn say(&mut self, message: ToHub) {
        use ToHub::{Answer, Complain, Goodbye, Holds, Join, NoRoster, Offer, Return, Stated};
        match &message {
            Complain(_) | Stated(_) | Offer(..) | Goodbye(_) => {
                self.unsettled.push(message.clone())
            }
            // Rank 0 asks again, or does not need it any more.
            Answer(_) | Holds | Join(_) | NoRoster | Return(_) => {}
        }
        if self.line.say.send(message).is_err() {
            tracing::debug!("there is no connection to rank 0 now");
        }
    }
}

/// Waits for ever where nobody is on the way back.
async fn returned(returning: &mut Option<JoinHandle<io::Result<Line>>>) -> io::Result<Line> {
    match returning {
        Some(task) => task.await.unwrap_or_else(|e| Err(io::Error::other(e))),
        None => std::future::pending().await,
    }
}

/// The verdict of every rank whose hub does not answer. It does not depend on how the rank
/// noticed, so all say the same.
fn silent_hub() -> Verdict {
    let ranks = vec![Who { rank: Rank(0), host: None }];
    Verdict::Silent { ranks, for_ms: limits::HUB_SILENCE_MS }
}

/// The verdict of every rank that fails after the hub has left.
const fn left_hub() -> Verdict {
    Verdict::Left { who: Who { rank: Rank(0), host: None } }
}

/// The far end's host, or the network to it, is gone without a word.
pub(crate) fn is_cut(e: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    matches!(e.kind(), HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut)
}

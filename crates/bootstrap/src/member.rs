//! One rank's life on the control thread once it has joined: it answers questions, passes on
//! complaints, and hears the verdict.

use std::io;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::control::{ExchangeError, Seat};
use crate::dial::Channel;
use crate::inbound::{Inbound, Mark, receive};
use crate::judge::Complaint;
use crate::message::{FromHub, ToHub, decode, encode};
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
    thread: Option<JoinHandle<()>>,
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
        Self { heard, say, mark }
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
    pub(crate) fn runs_on(&mut self, thread: JoinHandle<()>) {
        self.thread = Some(thread);
    }

    pub(crate) fn complain(&self, complaint: Complaint) {
        self.order(Command::Complain(complaint));
    }

    /// What the control thread takes commands from, for another thread.
    pub(crate) fn commands(&self) -> mpsc::UnboundedSender<Command> {
        self.commands.clone()
    }

    pub(crate) fn exchange(
        &self,
        bytes: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let exchanged = self.exchanged.lock().unwrap_or_else(PoisonError::into_inner);
        self.order(Command::Offer(bytes));
        match exchanged.recv_timeout(timeout) {
            Ok(Some(all)) => Ok(all),
            Err(std_mpsc::RecvTimeoutError::Timeout) => Err(ExchangeError::Timeout(timeout)),
            Ok(None) | Err(std_mpsc::RecvTimeoutError::Disconnected) => Err(ExchangeError::HubGone),
        }
    }

    /// Waits until what was received up to now is handled.
    pub(crate) fn catch_up(&self, limit: Duration) {
        let (mark, passed) = Mark::new();
        self.order(Command::CatchUp(mark));
        if passed.recv_timeout(limit) == Err(std_mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("the control thread has not caught up within {limit:?}");
        }
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
    let mut post =
        Post { rank, seat, line, hub: Hub::Watching, exchanged, patience: Patience::Unlimited };
    let last_words = post.watch(&mut commands).await;
    post.depart(last_words).await;
}

/// What has become of the hub, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hub {
    Watching,
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
    patience: Patience,
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
                    Some(Command::Offer(bytes)) if self.hub == Hub::Watching => {
                        self.say(ToHub::Offer(bytes));
                    }
                    Some(Command::Offer(_)) => self.end_exchange(None),
                    // Where the hub is gone the mark is dropped: nothing more will come.
                    Some(Command::CatchUp(mark)) if self.hub == Hub::Watching => {
                        self.line.mark.send(mark).unwrap_or_default();
                    }
                    Some(Command::CatchUp(_)) => {}
                    Some(Command::Abandon(reason)) => return Some(reason),
                    Some(Command::Leave) | None => return None,
                },
                () = sleep_until(bound), if deadline.is_some() => {
                    self.patience = Patience::Over;
                    self.line.mark.send(Mark::Task(0)).unwrap_or_default();
                }
            }
        }
    }

    /// Says goodbye and waits for the farewell. In rank 0 it comes when the hub is done, which has
    /// its own bound; elsewhere it is overdue soon.
    async fn depart(&mut self, failure: Option<String>) {
        if self.hub != Hub::Watching {
            return;
        }
        if let Some(reason) = failure {
            self.say(ToHub::Complain(Complaint::Abort { reason }));
        }
        self.say(ToHub::Goodbye(self.seat.calls.history()));
        let deadline = Instant::now() + GOODBYE;
        while self.hub == Hub::Watching {
            tokio::select! {
                heard = self.line.heard.recv() => match heard {
                    Some(Heard::Message(_) | Heard::Mark(_)) => self.hear(heard),
                    // That is how it should be after a goodbye; there is nobody left to tell.
                    Some(Heard::Closed(_)) | None => return,
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
            Some(Heard::Closed(Some(e))) if is_cut(&e) => return self.lose(silent_hub()),
            Some(Heard::Closed(Some(cause))) => {
                return self.lose(Verdict::HubLost { cause: cause.to_string() });
            }
            Some(Heard::Closed(None)) | None => {
                return self.lose(Verdict::Died { who: Who { rank: Rank(0), host: None } });
            }
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
            Some(FromHub::Offers(all)) => self.end_exchange(Some(all)),
            Some(FromHub::Farewell | FromHub::Closing) => {
                self.hub = Hub::Departed;
                self.end_exchange(None);
                // It left before it heard of it.
                if self.patience != Patience::Unlimited {
                    self.sentence(left_hub());
                }
            }
            Some(
                FromHub::Roster(_) | FromHub::Refused(_) | FromHub::Seated | FromHub::Fetch(_),
            )
            | None => {
                self.lose(Verdict::HubLost { cause: "rank 0 sent an unexpected message".into() });
            }
        }
    }

    fn complain(&mut self, complaint: Complaint) {
        match self.hub {
            Hub::Watching => {
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

    fn lose(&mut self, verdict: Verdict) {
        self.hub = Hub::Lost;
        self.sentence(verdict);
    }

    fn sentence(&mut self, verdict: Verdict) {
        self.patience = Patience::Unlimited;
        tracing::debug!(rank = self.rank.0, "verdict: {verdict}");
        self.seat.sentence(&Arc::new(verdict));
        self.end_exchange(None);
    }

    fn end_exchange(&self, all: Option<Vec<Vec<u8>>>) {
        if self.exchanged.send(all).is_err() {
            tracing::trace!("nobody waits for the exchange any more");
        }
    }

    fn say(&self, message: ToHub) {
        if self.line.say.send(message).is_err() {
            tracing::debug!("the line to rank 0 is closed");
        }
    }
}

/// What every rank says whose hub does not answer, however it noticed: all say the same.
fn silent_hub() -> Verdict {
    let ranks = vec![Who { rank: Rank(0), host: None }];
    Verdict::Silent { ranks, for_ms: limits::HUB_SILENCE_MS }
}

/// What every rank says that fails after the hub has left.
const fn left_hub() -> Verdict {
    Verdict::Left { who: Who { rank: Rank(0), host: None } }
}

/// The far end's host, or the network to it, is gone without a word.
fn is_cut(e: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    matches!(e.kind(), HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut)
}

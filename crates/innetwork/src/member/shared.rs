//! The terms of all groups of a communicator. The caller hands chunks over and takes results; the
//! control thread answers the questions of other ranks.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use crate::contract::{Group as Connected, Provider, Reduction};
use ringfold_bootstrap::{Inquirer, Respondent};
use ringfold_transport::Waker;
use ringfold_types::{Rank, limits};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::question::{About, Position, Question};
use super::term::Term;

/// The time after which a question that has no answer is asked again.
const AGAIN: Duration = Duration::from_millis(limits::OFFLOAD_SILENCE_MS);

/// The groups of a communicator, for its caller and its control thread.
#[derive(Debug)]
pub struct Shared {
    rank: Rank,
    provider: Box<dyn Provider>,
    state: Mutex<State>,
    /// Whether the control thread has news for the caller.
    has_news: AtomicBool,
    news: Waker,
    epoll: OwnedFd,
}

/// The state of all groups.
#[derive(Debug)]
pub(super) struct State {
    /// The latest call that uses groups.
    seq: u64,
    groups: Vec<Group>,
}

/// One group, on one rank.
#[derive(Debug)]
struct Group {
    /// This rank's end, if it is a member.
    term: Option<Term>,
    /// How far this rank had come when it was first asked, which ends the term. Until the group is
    /// given up, this rank begins no further call.
    position: Option<Position>,
    /// The first call after the group was given up.
    lost_from: Option<u64>,
    /// When this rank last asked.
    asked: Option<Instant>,
}

impl Shared {
    /// The state of `rank`: for each group of the provider this rank's connected end, if it is a
    /// member.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new(
        rank: Rank,
        provider: Box<dyn Provider>,
        ends: Vec<Option<Box<dyn Connected>>>,
    ) -> io::Result<Arc<Self>> {
        let news = Waker::new()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &news, EventData::new_u64(0), EventFlags::IN)?;
        for end in ends.iter().flatten() {
            epoll::add(&epoll, end.wake_fd(), EventData::new_u64(1), EventFlags::IN)?;
        }
        let group = |end: Option<Box<dyn Connected>>| {
            let term = end.map(Term::new);
            Group { term, position: None, lost_from: None, asked: None }
        };
        let groups = ends.into_iter().map(group).collect();
        let (state, has_news) = (Mutex::new(State { seq: 0, groups }), AtomicBool::new(false));
        Ok(Arc::new(Self { rank, provider, state, has_news, news, epoll }))
    }

    pub(super) fn supports(&self, group: usize, reduction: &Reduction) -> bool {
        self.provider.supports(group, reduction)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Advances all terms, and asks what is due. Returns whether anything moved.
    pub(super) fn poll(&self, inquirer: &Inquirer) -> bool {
        let mut moved = self.has_news.swap(false, Ordering::Acquire);
        if moved {
            self.news.clear();
        }
        let mut asked = Vec::new();
        let mut state = self.lock();
        for (at, group) in (0..).zip(&mut state.groups) {
            moved |= group.term.as_mut().is_some_and(Term::poll);
            let about = |(rank, question)| (rank, About { group: at, question });
            asked.extend(group.due().into_iter().map(about));
        }
        drop(state);
        for (rank, about) in asked {
            match rank {
                Some(rank) => inquirer.ask_rank(rank, about.encode()),
                None => inquirer.ask_all(about.encode()),
            }
        }
        moved
    }

    /// Leaves all groups, side by side, since each may block while its provider is late.
    pub fn close(&self) {
        let mut state = self.lock();
        let terms: Vec<_> = state.groups.iter_mut().filter_map(|it| it.term.take()).collect();
        drop(state);
        if thread::panicking() {
            // A drop by this thread waits for nothing.
            return;
        }
        thread::scope(|scope| {
            for term in terms {
                // Without a thread this one leaves the group.
                let thread = Builder::new().name("ringfold-net".into());
                thread.spawn_scoped(scope, || drop(term)).ok();
            }
        });
    }

    /// Logs that a group was given up, with the reason of the first rank that has one.
    fn log_loss(&self, group: usize, positions: &[Option<(Position, String)>]) {
        let name = self.provider.devices().get(group).map_or("it", |device| &device.name);
        let reason = (positions.iter().enumerate()).find_map(|(rank, position)| {
            let (_, reason) = position.as_ref().filter(|(_, reason)| !reason.is_empty())?;
            Some(format!("rank {rank}: {reason}"))
        });
        let reason = reason.unwrap_or_else(|| "no rank says why".to_owned());
        tracing::warn!(
            "ranks combine chunks themselves from now on: {name} is given up ({reason})"
        );
    }

    fn wake(&self) {
        self.has_news.store(true, Ordering::Release);
        self.news.wake();
    }
}

/// The groups that serve a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The ranks are deciding. The caller tries again.
    Undecided,
    /// A group was given up before this call: the same answer on all ranks.
    Lost,
    /// No group was given up before this call.
    Whole,
}

impl Group {
    /// Whether this rank was asked how far it has come, and does not know the end yet.
    const fn is_ending(&self) -> bool {
        self.position.is_some() && self.lost_from.is_none()
    }

    /// The questions that are due, each with the rank to ask. `None` means all.
    fn due(&mut self) -> Vec<(Option<Rank>, Question)> {
        let is_ending = self.is_ending();
        let questions = match &mut self.term {
            None if is_ending => vec![(None, Question::Positions)],
            None => Vec::new(),
            Some(term) => {
                if let Some(question) = term.take_question() {
                    return vec![(None, question)];
                }
                term.open_questions()
            }
        };
        if questions.is_empty() || self.asked.is_some_and(|asked| asked.elapsed() < AGAIN) {
            return Vec::new();
        }
        self.asked = Some(Instant::now());
        questions
    }
}

impl State {
    /// Notes that call `seq` begins.
    pub(super) fn begin(&mut self, seq: u64) -> Begun {
        let is_undecided =
            |it: &Group| it.is_ending() && it.position.is_some_and(|position| position.seq < seq);
        if self.groups.iter().any(is_undecided) {
            return Begun::Undecided;
        }
        self.seq = seq;
        let is_lost = |group: &Group| group.lost_from.is_some_and(|from| from <= seq);
        if self.groups.iter().any(is_lost) { Begun::Lost } else { Begun::Whole }
    }

    pub(super) fn term(&mut self, group: usize) -> Option<&mut Term> {
        self.groups.get_mut(group)?.term.as_mut()
    }

    pub(super) fn terms(&mut self) -> impl Iterator<Item = &mut Term> {
        self.groups.iter_mut().filter_map(|group| group.term.as_mut())
    }
}

impl Respondent for Shared {
    fn answer(&self, question: &[u8]) -> Vec<u8> {
        let Some(About { group, question }) = About::decode(question) else { return Vec::new() };
        let mut state = self.lock();
        let seq = state.seq;
        let Some(group) = state.groups.get_mut(usize::from(group)) else { return Vec::new() };
        match question {
            Question::Positions => {
                let position = *group.position.get_or_insert_with(|| match &mut group.term {
                    Some(term) => {
                        term.freeze();
                        term.position(seq)
                    }
                    None => Position { posted: 0, arrived: 0, seq },
                });
                let answer = position.encode(group.term.as_ref().map_or("", Term::fault));
                drop(state);
                self.wake();
                answer
            }
            Question::Progress(_) => {
                group.term.as_ref().map_or_else(Vec::new, |term| term.position(seq).encode(""))
            }
            Question::Result(number) => {
                let result = group.term.as_ref().and_then(|term| term.retained(number));
                result.map_or_else(Vec::new, |bytes| [&[1], bytes].concat())
            }
        }
    }

    fn conclude(&self, question: &[u8], answers: &[Vec<u8>]) {
        let Some(About { group: at, question }) = About::decode(question) else { return };
        let mut state = self.lock();
        let Some(group) = state.groups.get_mut(usize::from(at)) else { return };
        match question {
            Question::Positions => {
                let positions: Vec<Option<(Position, String)>> =
                    answers.iter().map(|answer| Position::decode(answer)).collect();
                let (end, holder) = furthest(&positions);
                if let Some(term) = &mut group.term
                    && term.end(end, holder)
                {
                    group.asked = None;
                }
                if group.lost_from.is_none() {
                    let latest = positions.iter().flatten().map(|(it, _)| it.seq).max();
                    group.lost_from = Some(latest.unwrap_or(0) + 1);
                    if self.rank == Rank(0) {
                        self.log_loss(at.into(), &positions);
                    }
                }
            }
            Question::Result(chunk) => {
                if let (Some(term), [Some((1, bytes))]) =
                    (&mut group.term, [answers.first().and_then(|it| it.split_first())])
                {
                    term.fetch(chunk, bytes);
                }
            }
            Question::Progress(_) => {
                let positions = answers.iter().filter_map(|answer| Position::decode(answer));
                let whole = positions.map(|(it, _)| it.posted).min();
                if let Some(term) = &mut group.term {
                    term.note_whole(whole.unwrap_or(0));
                }
            }
        }
        drop(state);
        self.wake();
    }
}

/// The first chunk that has a result nowhere, and a rank that has all before it.
fn furthest(positions: &[Option<(Position, String)>]) -> (u64, Rank) {
    let mut end = (0, Rank(0));
    for (rank, position) in positions.iter().enumerate() {
        if let Some((position, _)) = position
            && position.arrived > end.0
        {
            end = (position.arrived, Rank::at(rank));
        }
    }
    end
}

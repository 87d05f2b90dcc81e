//! The terms of all groups of a communicator. The caller hands chunks over and takes results; the
//! control thread answers the questions of other ranks.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ringfold_bootstrap::{Inquirer, Respondent};
use ringfold_transport::offload::{Group as Connected, OffloadError};
use ringfold_types::{Rank, limits};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use super::background::spawn;
use super::question::{About, Position, Question, Readiness};
use super::renewal::{self, Renewed};
use super::site::Site;
use super::term::Term;

/// The time after which a question that has no answer is asked again.
const AGAIN: Duration = Duration::from_millis(limits::OFFLOAD_SILENCE_MS);

/// The groups of a communicator, for its caller and its control thread.
#[derive(Debug)]
pub(crate) struct Shared {
    rank: Rank,
    site: Arc<dyn Site>,
    state: Mutex<State>,
    /// Whether the control thread has news for the caller.
    has_news: AtomicBool,
    news: OwnedFd,
    epoll: OwnedFd,
    /// Asks for rank 0, which renews groups.
    inquirer: OnceLock<Inquirer>,
    this: Weak<Self>,
}

/// The state of all groups.
#[derive(Debug)]
pub(crate) struct State {
    /// The latest call that uses groups.
    seq: u64,
    groups: Vec<Group>,
}

/// One group, on one rank.
#[derive(Debug)]
struct Group {
    /// The number of this rank among the members, if it is one.
    member: Option<u16>,
    /// The number of the term in use.
    number: u32,
    /// How far this rank had come when it was first asked, which ends the term. Until that is
    /// given up, this rank begins no further call.
    position: Option<Position>,
    /// Whether that term was given up.
    is_given_up: bool,
    /// The first call after a term was given up.
    lost_from: Option<u64>,
    /// When this rank last asked.
    asked: Option<Instant>,
    /// This member's end of it.
    term: Option<Term>,
    /// The term that follows it.
    next: Option<Next>,
}

/// A term that is not in use yet.
#[derive(Debug)]
struct Next {
    number: u32,
    /// This member's end, once it is connected.
    group: Option<Box<dyn Connected>>,
    /// The call at which this member said that it is ready. Until the ranks have decided, it begins
    /// no further one.
    promised: Option<u64>,
    /// The first call of the new term.
    start: Option<u64>,
}

impl Shared {
    /// The state of `rank`. For each group it has this rank's number among the members, with its
    /// connected end.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn new(
        rank: Rank,
        site: Arc<dyn Site>,
        groups: Vec<Option<(u16, Box<dyn Connected>)>>,
    ) -> io::Result<Arc<Self>> {
        let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &news, EventData::new_u64(0), EventFlags::IN)?;
        let group = |end: Option<(u16, Box<dyn Connected>)>| {
            let (member, connected) = end.unzip();
            let term = connected.map(|connected| Term::new(FIRST, connected));
            Group {
                member,
                number: FIRST,
                position: None,
                is_given_up: false,
                lost_from: None,
                asked: None,
                term,
                next: None,
            }
        };
        let groups: Vec<Group> = groups.into_iter().map(group).collect();
        for term in groups.iter().filter_map(|group| group.term.as_ref()) {
            watch(&epoll, term)?;
        }
        Ok(Arc::new_cyclic(|this| Self {
            rank,
            site,
            state: Mutex::new(State { seq: 0, groups }),
            has_news: AtomicBool::new(false),
            news,
            epoll,
            inquirer: OnceLock::new(),
            this: Weak::clone(this),
        }))
    }

    /// Has rank 0 ask again for groups that are given up from now on.
    pub(super) fn renew_by(&self, inquirer: Inquirer) {
        self.inquirer.get_or_init(|| inquirer);
    }

    pub(super) fn site(&self) -> &Arc<dyn Site> {
        &self.site
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
            // Fails only if the descriptor is not readable.
            rustix::io::read(&self.news, &mut [0_u8; 8]).ok();
        }
        let mut asked = Vec::new();
        let mut state = self.lock();
        for (at, group) in (0..).zip(&mut state.groups) {
            if let Some(term) = &mut group.term {
                moved |= term.poll();
                if let Some(reason) = term.take_fault() {
                    let (rank, name) = (self.rank, self.site.name(at.into()));
                    tracing::warn!("rank {rank} gives up in-network reduction by {name}: {reason}");
                }
            }
            let number = group.number;
            let about = |(rank, question)| (rank, About { group: at, term: number, question });
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

    /// Leaves all groups.
    pub(super) fn close(&self) {
        for group in &mut self.lock().groups {
            (group.term, group.next) = (None, None);
        }
    }

    fn wake(&self) {
        self.has_news.store(true, Ordering::Release);
        // Fails only if the counter is full, and then the descriptor is readable already.
        rustix::io::write(&self.news, &1_u64.to_le_bytes()).ok();
    }

    /// Connects to a new term on a thread of its own, since the caller may compute.
    fn connect(&self, group: usize, number: u32, ticket: Vec<u8>) {
        let member = {
            let mut state = self.lock();
            let Some(group) = state.groups.get_mut(group).filter(|it| it.number < number) else {
                return;
            };
            if group.next.as_ref().is_some_and(|next| next.number >= number) {
                return;
            }
            group.next = Some(Next { number, group: None, promised: None, start: None });
            group.member
        };
        let (Some(member), this) = (member, Weak::clone(&self.this)) else { return };
        let site = Arc::clone(&self.site);
        let connecting = move || {
            let connected = site.connect((group, number), member, &ticket).and_then(ready);
            let Some(this) = this.upgrade() else { return };
            match connected {
                Ok(connected) => this.connected(group, number, connected),
                Err(error) => tracing::debug!("cannot connect to {}: {error}", site.name(group)),
            }
        };
        spawn(connecting);
    }

    fn connected(&self, group: usize, number: u32, connected: Box<dyn Connected>) {
        let mut state = self.lock();
        let next = state.groups.get_mut(group).and_then(|group| group.next.as_mut());
        if let Some(next) = next.filter(|next| next.number == number) {
            next.group = Some(connected);
        }
    }
}

impl Renewed for Shared {
    fn provider(&self) -> Arc<dyn Site> {
        Arc::clone(&self.site)
    }

    fn is_given_up(&self, group: usize) -> bool {
        self.lock().groups.get(group).is_none_or(|group| group.is_given_up)
    }

    fn has_term(&self, group: usize, number: u32) -> bool {
        let is_decided = |next: &Next| next.number == number && next.start.is_some();
        self.lock().groups.get(group).is_some_and(|group| {
            group.number == number || group.next.as_ref().is_some_and(is_decided)
        })
    }
}

/// The number of the first term of a group.
pub(crate) const FIRST: u32 = 1;

/// Drives a group until it is connected. Blocks for `limits::HANDSHAKE_MS` at most.
///
/// # Errors
/// The group cannot be connected.
pub(crate) fn ready(mut group: Box<dyn Connected>) -> Result<Box<dyn Connected>, OffloadError> {
    while !group.is_ready() {
        group.arm();
        if !group.poll()? {
            let fds = [Some(group.wake_fd())];
            crate::backoff::park(&fds, crate::backoff::PARK_MAX);
        }
        group.disarm();
    }
    Ok(group)
}

fn watch(epoll: &OwnedFd, term: &Term) -> io::Result<()> {
    Ok(epoll::add(epoll, term.wake_fd(), EventData::new_u64(1), EventFlags::IN)?)
}

/// The terms that serve a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The ranks are deciding. The caller tries again.
    Undecided,
    /// A term was given up before this call: the same answer on all ranks.
    Lost,
    /// No term was given up before this call.
    Whole,
}

impl Group {
    /// Whether this rank waits until the ranks have decided which term serves call `seq`.
    fn is_undecided(&self, seq: u64) -> bool {
        let is_ending = self.position.is_some_and(|it| it.seq < seq) && !self.is_given_up;
        let next = self.next.as_ref();
        is_ending
            || next.is_some_and(|it| it.start.is_none() && it.promised.is_some_and(|at| at < seq))
    }

    /// Puts term `number` in the place of the one before, which was given up.
    fn renew(&mut self, number: u32, connected: Option<Box<dyn Connected>>) {
        self.number = number;
        self.position = None;
        self.is_given_up = false;
        self.asked = None;
        self.term = connected.map(|connected| Term::new(number, connected));
    }

    /// The questions that are due, each with the rank to ask. `None` means all.
    fn due(&mut self) -> Vec<(Option<Rank>, Question)> {
        let is_ending = self.position.is_some() && !self.is_given_up;
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
    /// Notes that call `seq` begins, and begins the terms that follow.
    pub(super) fn begin(&mut self, seq: u64) -> Begun {
        if self.groups.iter().any(|group| group.is_undecided(seq)) {
            return Begun::Undecided;
        }
        self.seq = seq;
        for group in &mut self.groups {
            let is_due = |next: &mut Next| next.start.is_some_and(|start| start <= seq);
            if let Some(next) = group.next.take_if(is_due) {
                group.renew(next.number, next.group);
            }
        }
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
        let Some(About { group, term, question }) = About::decode(question) else {
            return Vec::new();
        };
        let at = usize::from(group);
        if let Question::Connect(ticket) = question {
            self.connect(at, term, ticket);
            return vec![1];
        }
        let mut state = self.lock();
        let seq = state.seq;
        let Some(group) = state.groups.get_mut(at) else { return Vec::new() };
        match question {
            Question::Positions => {
                // A member that has begun no call since the term was decided freezes it unused.
                let is_due = |next: &mut Next| next.number == term && next.start.is_some();
                if let Some(next) = group.next.take_if(is_due) {
                    group.renew(term, next.group);
                }
                if group.number != term {
                    return Vec::new();
                }
                let position = *group.position.get_or_insert_with(|| match &mut group.term {
                    Some(term) => {
                        term.freeze();
                        term.position(seq)
                    }
                    None => Position { posted: 0, arrived: 0, seq },
                });
                drop(state);
                self.wake();
                position.encode()
            }
            Question::Progress(_) => {
                let term = group.term.as_ref().filter(|it| it.number == term);
                term.map_or_else(Vec::new, |term| term.position(seq).encode())
            }
            Question::Result(number) => {
                let term = group.term.as_ref().filter(|it| it.number == term);
                let result = term.and_then(|term| term.retained(number));
                result.map_or_else(Vec::new, |bytes| [&[1], bytes].concat())
            }
            Question::Ready(_) => {
                let is_settled = group.term.as_ref().is_none_or(|term| !term.is_open());
                let next = group.next.as_mut().filter(|next| next.number == term);
                let is_member = group.member.is_some();
                let is_ready = is_settled
                    && next.as_ref().is_some_and(|next| next.group.is_some() || !is_member);
                if let Some(next) = next.filter(|next| next.start.is_none()) {
                    next.promised = Some(seq);
                }
                Readiness { is_ready, seq }.encode()
            }
            Question::Connect(_) => Vec::new(),
        }
    }

    fn conclude(&self, question: &[u8], answers: &[Vec<u8>]) {
        let Some(About { group: at, term: number, question }) = About::decode(question) else {
            return;
        };
        let mut state = self.lock();
        let Some(group) = state.groups.get_mut(usize::from(at)) else { return };
        match question {
            Question::Positions if group.number == number => {
                let is_first = !std::mem::replace(&mut group.is_given_up, true);
                let positions: Vec<Option<Position>> =
                    answers.iter().map(|answer| Position::decode(answer)).collect();
                let (end, holder) = furthest(&positions);
                if let Some(term) = &mut group.term
                    && term.end(end, holder)
                {
                    group.asked = None;
                }
                if is_first {
                    let latest = positions.iter().flatten().map(|it| it.seq).max().unwrap_or(0);
                    group.lost_from.get_or_insert(latest + 1);
                }
                if let (true, Rank(0), Some(inquirer)) = (is_first, self.rank, self.inquirer.get())
                {
                    let name = self.site.name(at.into());
                    tracing::warn!(
                        "ranks combine chunks themselves from now on: {name} is given up"
                    );
                    renewal::begin(Weak::clone(&self.this), inquirer.clone(), at, number);
                }
            }
            Question::Result(chunk) => {
                let term = group.term.as_mut().filter(|term| term.number == number);
                if let (Some(term), [Some((1, bytes))]) =
                    (term, [answers.first().and_then(|it| it.split_first())])
                {
                    term.fetch(chunk, bytes);
                }
            }
            Question::Progress(_) => {
                let positions = answers.iter().filter_map(|answer| Position::decode(answer));
                let whole = positions.map(|it| it.posted).min();
                if let Some(term) = group.term.as_mut().filter(|term| term.number == number) {
                    term.note_whole(whole.unwrap_or(0));
                }
            }
            Question::Ready(_) => {
                let next = group.next.as_mut().filter(|next| next.number == number);
                if let Some(next) = next.filter(|next| next.start.is_none()) {
                    let all: Option<Vec<Readiness>> =
                        answers.iter().map(|answer| Readiness::decode(answer)).collect();
                    let all = all.filter(|all| all.iter().all(|it| it.is_ready));
                    let last = all.and_then(|all| all.iter().map(|it| it.seq).max());
                    next.start = last.map(|last| last + 1);
                    next.promised = None;
                    if next.start.is_some()
                        && let Some(connected) = &next.group
                    {
                        let fd = connected.wake_fd();
                        let data = EventData::new_u64(1);
                        if let Err(e) = epoll::add(&self.epoll, fd, data, EventFlags::IN) {
                            tracing::warn!("a renewed group wakes no thread: {e}");
                        }
                    }
                }
            }
            Question::Positions | Question::Connect(_) => {}
        }
        drop(state);
        self.wake();
    }
}

/// The first chunk that has a result nowhere, and a rank that has all before it.
fn furthest(positions: &[Option<Position>]) -> (u64, Rank) {
    let mut end = (0, Rank(0));
    for (rank, position) in positions.iter().enumerate() {
        if let Some(position) = position
            && position.arrived > end.0
        {
            end = (position.arrived, Rank::at(rank));
        }
    }
    end
}

//! This rank's end of one group, from its grant until it is given up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::contract::{Chunk, Group, Reduction};
use crate::error::OffloadError;
use ringfold_types::{Rank, limits};

use super::question::{Position, Question};

/// The time that the provider has for a result once all members have handed over its chunk.
const RESULT: Duration = Duration::from_millis(limits::OFFLOAD_RESULT_MS);

/// This rank's end of a group.
#[derive(Debug)]
pub(super) struct Term {
    group: Box<dyn Group>,
    /// Chunks handed over before the current call.
    base: u64,
    /// Results taken.
    taken: u64,
    /// Whether the term moves no more, until it ends.
    is_frozen: bool,
    /// The reason why this member gives the group up.
    fault: Option<String>,
    end: Option<End>,
    /// Results that other members had.
    fetched: BTreeMap<u64, Vec<u8>>,
    /// The wait for the next result, if there is one.
    wait: Option<Wait>,
    /// Chunks that all members are known to have handed over.
    whole: u64,
    /// A question whether a late member is the reason for the wait.
    question: Option<Question>,
}

/// A wait for a result.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// The number of the chunk.
    chunk: u64,
    since: Instant,
    /// How often this member has asked whether a late member is the reason.
    asked: u32,
}

/// The end of a term.
#[derive(Clone, Copy, Debug)]
struct End {
    /// The first chunk without a result.
    at: u64,
    /// A member that has all results before it.
    holder: Rank,
}

impl Term {
    pub(super) fn new(group: Box<dyn Group>) -> Self {
        Self {
            group,
            base: 0,
            taken: 0,
            is_frozen: false,
            fault: None,
            end: None,
            fetched: BTreeMap::new(),
            wait: None,
            whole: 0,
            question: None,
        }
    }

    /// Begins a lane of a call. Returns false if the group was given up.
    pub(super) fn enter(&mut self) -> bool {
        self.base = self.group.posted();
        self.end.is_none()
    }

    pub(super) fn ended(&self) -> Option<u32> {
        let end = self.end?;
        Some(u32::try_from(end.at.saturating_sub(self.base)).unwrap_or(u32::MAX))
    }

    pub(super) fn post(
        &mut self,
        tag: u32,
        reduction: Reduction,
        count: usize,
        bytes: &[u8],
    ) -> bool {
        let chunk = Chunk { number: self.group.posted(), tag, reduction, count };
        if self.is_frozen {
            return false;
        }
        if self.group.arrived() == self.group.posted() {
            self.wait = None;
        }
        let posted = self.group.post(&chunk, bytes);
        self.note(posted)
    }

    pub(super) fn take(&mut self, into: &mut [u8]) -> bool {
        let number = self.taken;
        if self.group.result().is_some_and(|outcome| outcome.number == number) {
            if let Some(outcome) = self.group.result()
                && !into.is_empty()
            {
                into.copy_from_slice(outcome.bytes);
            }
            self.group.take();
        } else {
            let Some(bytes) = self.fetched.remove(&number) else { return false };
            if !into.is_empty() {
                if bytes.len() != into.len() {
                    return false;
                }
                into.copy_from_slice(&bytes);
            }
        }
        self.taken += 1;
        true
    }

    /// Sends and receives what it can. Returns whether anything moved.
    pub(super) fn poll(&mut self) -> bool {
        let is_idle = self.group.is_ready() && self.group.arrived() == self.group.posted();
        if self.is_frozen || is_idle {
            return false;
        }
        let moved = self.group.poll();
        self.note(moved) | self.is_overdue()
    }

    /// The outcome of the group's method. Freezes the term after an error.
    fn note(&mut self, outcome: Result<bool, OffloadError>) -> bool {
        outcome.unwrap_or_else(|error| self.fail(error.to_string()))
    }

    fn fail(&mut self, reason: String) -> bool {
        self.fault = Some(reason);
        self.freeze();
        true
    }

    /// Whether the provider owes a result for too long, though it sends bytes. The term then fails.
    /// A member asks the others first, since one of them may be late.
    fn is_overdue(&mut self) -> bool {
        let (chunk, now) = (self.group.arrived(), Instant::now());
        let begun = Wait { chunk, since: now, asked: 0 };
        let wait = self.wait.get_or_insert(begun);
        if wait.chunk != chunk {
            *wait = begun;
        }
        let took = now - wait.since;
        if self.is_frozen || took < RESULT * (wait.asked + 1) {
            return false;
        }
        if chunk < self.whole {
            let millis = took.as_millis();
            return self.fail(format!(
                "it has sent no result of chunk {chunk} for {millis} ms, though all ranks have \
                 handed the chunk over"
            ));
        }
        wait.asked += 1;
        self.question = Some(Question::Progress(chunk << 16 | u64::from(wait.asked)));
        false
    }

    /// The reason why this member gives the group up, if it does.
    pub(super) fn fault(&self) -> &str {
        self.fault.as_deref().unwrap_or_default()
    }

    /// Freezes the term. Its connection ends, so it wakes no thread while the ranks agree.
    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
        self.group.give_up();
        self.group.disarm();
    }

    /// How far this member has come, in call `seq`.
    pub(super) fn position(&self, seq: u64) -> Position {
        Position { posted: self.group.posted(), arrived: self.group.arrived(), seq }
    }

    /// Notes that all members have handed over this many chunks.
    pub(super) fn note_whole(&mut self, chunks: u64) {
        self.whole = self.whole.max(chunks);
    }

    /// Ends the term before chunk `at`. `holder` has all results before it. Returns whether the
    /// term ends now.
    pub(super) fn end(&mut self, at: u64, holder: Rank) -> bool {
        let is_first = self.end.is_none();
        if is_first {
            self.freeze();
            self.end = Some(End { at, holder });
        }
        is_first
    }

    /// The numbers of the results that this member lacks.
    fn lacking(&self) -> impl Iterator<Item = u64> + '_ {
        let missing = self.end.map(|end| self.group.arrived().max(self.taken)..end.at);
        missing.into_iter().flatten().filter(|number| !self.fetched.contains_key(number))
    }

    /// The questions that this member asks until they have answers, each with the rank to ask.
    /// `None` means all.
    pub(super) fn open_questions(&self) -> Vec<(Option<Rank>, Question)> {
        match self.end {
            None if self.is_frozen => vec![(None, Question::Positions)],
            None => Vec::new(),
            Some(End { holder, .. }) => {
                self.lacking().map(|number| (Some(holder), Question::Result(number))).collect()
            }
        }
    }

    /// The question whether a late member is the reason for the wait, if it is due.
    pub(super) const fn take_question(&mut self) -> Option<Question> {
        self.question.take()
    }

    /// The bytes of a result that another member lacks.
    pub(super) fn retained(&self, number: u64) -> Option<&[u8]> {
        self.group.retained(number).map(|outcome| outcome.bytes)
    }

    /// Takes a result that another member had.
    pub(super) fn fetch(&mut self, number: u64, bytes: &[u8]) {
        let is_lacking = self.lacking().any(|it| it == number);
        if is_lacking {
            self.fetched.insert(number, bytes.to_vec());
        }
    }

    pub(super) fn arm(&mut self) {
        if !self.is_frozen {
            self.group.arm();
        }
    }

    /// Cancels `arm`, also if the term has been frozen since.
    pub(super) fn disarm(&mut self) {
        self.group.disarm();
    }
}

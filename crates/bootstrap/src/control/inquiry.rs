//! Inquiries: questions of one rank that the control threads of all ranks answer, even while their
//! callers compute. All questions and answers pass through the coordinator.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfold_types::{Rank, limits};

use super::aborter::Route;
use super::task::Command;

/// Questions that the coordinator has open at a time, and questions whose answers it remembers.
/// Ranks ask again later.
const INQUIRIES_MAX: usize = 64;

/// Asks inquiries, from any thread. Clones ask for the same rank.
///
/// An inquiry may get lost when a control connection breaks, so the caller asks again until it has
/// answers.
#[derive(Clone, Debug)]
pub struct Inquirer {
    pub(crate) rank: Rank,
    pub(crate) route: Route,
}

impl Inquirer {
    /// Asks all ranks a question of at most `limits::QUESTION_BYTES_MAX` bytes. Equal questions of
    /// several ranks are one inquiry. Does not block.
    pub fn ask_all(&self, question: Vec<u8>) {
        self.ask(None, question);
    }

    /// Asks one rank. Does not block.
    pub fn ask_rank(&self, rank: Rank, question: Vec<u8>) {
        self.ask(Some(rank.0), question);
    }

    fn ask(&self, of: Option<u32>, question: Vec<u8>) {
        match &self.route {
            Route::Local(coordinator) => coordinator.inquire(self.rank, of, &question),
            Route::Task(commands) => {
                if commands.send(Command::Inquire(of, question)).is_err() {
                    tracing::debug!("rank {} has already left and asks nothing", self.rank);
                }
            }
        }
    }
}

/// The inquiries at the coordinator.
#[derive(Debug, Default)]
pub(crate) struct Inquiries {
    next: u64,
    open: BTreeMap<u64, Inquiry>,
    /// The questions to all ranks that were concluded last, with their answers as a message.
    concluded: Vec<(Vec<u8>, Arc<[u8]>)>,
}

/// An inquiry that lacks answers.
#[derive(Debug)]
pub(crate) struct Inquiry {
    asker: u32,
    of: Option<u32>,
    pub(crate) question: Vec<u8>,
    answers: BTreeMap<u32, Vec<u8>>,
}

/// An inquiry that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Concluded {
    /// The rank that gets the answers; `None` means all.
    pub(crate) to: Option<u32>,
    pub(crate) question: Vec<u8>,
    /// The answers in rank order; empty for ranks that have left.
    pub(crate) answers: Vec<Vec<u8>>,
}

/// The consequence of a rank's question.
pub(crate) enum Asked {
    /// These ranks get the question under this number. `None` means all.
    Pass(u64, Option<u32>),
    /// The question has been answered before.
    Known(Arc<[u8]>),
    /// The question is under way, or there are too many.
    Nothing,
}

impl Inquiries {
    /// Opens an inquiry of `asker`.
    pub(crate) fn open(&mut self, asker: u32, of: Option<u32>, question: Vec<u8>) -> Asked {
        let is_open = |it: &Inquiry| {
            it.question == question && it.of == of && (of.is_none() || it.asker == asker)
        };
        if let Some((_, answers)) =
            self.concluded.iter().find(|(it, _)| of.is_none() && *it == question)
        {
            return Asked::Known(Arc::clone(answers));
        }
        let has_room =
            self.open.len() < INQUIRIES_MAX && question.len() <= limits::QUESTION_BYTES_MAX;
        if !has_room || self.open.values().any(is_open) {
            return Asked::Nothing;
        }
        self.next += 1;
        let inquiry = Inquiry { asker, of, question, answers: BTreeMap::new() };
        self.open.insert(self.next, inquiry);
        Asked::Pass(self.next, of)
    }

    /// Takes the answer of a rank that was asked.
    pub(crate) fn answer(&mut self, rank: u32, number: u64, answer: Vec<u8>) {
        let asked = self.open.get_mut(&number);
        if let Some(inquiry) = asked.filter(|it| it.of.is_none_or(|of| of == rank)) {
            inquiry.answers.insert(rank, answer);
        }
    }

    /// The open questions to a rank, which has not answered them.
    pub(crate) fn owed(&self, rank: u32) -> impl Iterator<Item = (u64, &Inquiry)> {
        let is_owed = move |it: &Inquiry| {
            it.of.is_none_or(|of| of == rank) && !it.answers.contains_key(&rank)
        };
        self.open.iter().filter(move |(_, it)| is_owed(it)).map(|(number, it)| (*number, it))
    }

    /// Ends the inquiries to which all of `ranks` have answered that are still `present`.
    pub(crate) fn conclude(&mut self, ranks: u32, present: impl Fn(u32) -> bool) -> Vec<Concluded> {
        let asked = |it: &Inquiry| it.of.map_or(0..ranks, |of| of..of.saturating_add(1));
        let is_done =
            |it: &Inquiry| asked(it).all(|rank| it.answers.contains_key(&rank) || !present(rank));
        let done = |(number, it): (&u64, &Inquiry)| is_done(it).then_some(*number);
        let numbers: Vec<u64> = self.open.iter().filter_map(done).collect();
        let ended = numbers.into_iter().filter_map(|number| self.open.remove(&number));
        let ended = ended.map(|mut it| {
            let answers =
                asked(&it).map(|rank| it.answers.remove(&rank).unwrap_or_default()).collect();
            Concluded { to: it.of.map(|_| it.asker), question: it.question, answers }
        });
        ended.collect()
    }

    /// Keeps the answers to a question to all ranks, for ranks that ask again.
    pub(crate) fn keep(&mut self, question: Vec<u8>, answers: Arc<[u8]>) {
        if self.concluded.len() == INQUIRIES_MAX {
            self.concluded.remove(0);
        }
        self.concluded.push((question, answers));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(inquiries: &mut Inquiries, asker: u32, of: Option<u32>) -> u64 {
        let Asked::Pass(number, to) = inquiries.open(asker, of, vec![7]) else { panic!("refused") };
        assert_eq!(to, of);
        number
    }

    #[test]
    fn equal_questions_to_all_are_one_inquiry() {
        let mut inquiries = Inquiries::default();
        let number = open(&mut inquiries, 2, None);
        assert!(matches!(inquiries.open(1, None, vec![7]), Asked::Nothing));
        inquiries.answer(0, number, vec![10]);
        inquiries.answer(2, number, vec![12]);
        assert!(inquiries.conclude(3, |_| true).is_empty());
        assert_eq!(inquiries.owed(1).count(), 1);
        assert_eq!(inquiries.owed(2).count(), 0);
        let ended = inquiries.conclude(3, |rank| rank != 1);
        let answers = vec![vec![10], vec![], vec![12]];
        assert_eq!(ended, [Concluded { to: None, question: vec![7], answers }]);
        inquiries.keep(vec![7], Arc::from([1]));
        assert!(matches!(inquiries.open(1, None, vec![7]), Asked::Known(_)));
        assert!(inquiries.is_empty());
    }

    #[test]
    fn the_rank_that_asked_another_gets_its_answer() {
        let mut inquiries = Inquiries::default();
        let number = open(&mut inquiries, 2, Some(1));
        inquiries.answer(0, number, vec![10]);
        assert!(inquiries.conclude(3, |_| true).is_empty(), "rank 0 was not asked");
        inquiries.answer(1, number, vec![11]);
        let answers = vec![vec![11]];
        let ended = inquiries.conclude(3, |_| true);
        assert_eq!(ended, [Concluded { to: Some(2), question: vec![7], answers }]);
        let long = vec![0; limits::QUESTION_BYTES_MAX + 1];
        assert!(matches!(inquiries.open(0, None, long), Asked::Nothing));
        for asker in 0..u32::try_from(INQUIRIES_MAX).unwrap() {
            open(&mut inquiries, asker, Some(1));
        }
        assert!(matches!(inquiries.open(0, None, vec![8]), Asked::Nothing), "too many");
    }
}

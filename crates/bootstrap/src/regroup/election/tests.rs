//! Checks of single decisions, and elections of whole groups at random: ranks die, stop, come late
//! and are cut off, in virtual time. At most one group may form, and all ranks that nothing has hit
//! must be in it. In the same way ranks agree on a value, of which there may be only one.

#![expect(clippy::cast_possible_truncation, reason = "the numbers of the tests are small")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use ringfold_types::limits;

use super::*;

const SILENCE: u64 = limits::REGROUP_SILENCE_MS;

fn election(own: u32, size: usize) -> Election {
    Election::new((own, size), BTreeSet::new(), &[], [0, 60_000])
}

/// Lets time pass.
fn pass(election: &mut Election, until_ms: u64) {
    let from = election.ticked_ms;
    for now_ms in (from..=until_ms).step_by(100).chain([until_ms]) {
        assert_eq!(election.tick(now_ms), Step::Wait);
    }
}

#[test]
fn a_rank_that_was_stopped_itself_calls_no_other_silent() {
    let mut it = election(0, 3);
    (1..3).for_each(|rank| it.asked(rank, 0));
    it.tick(1);
    it.asked_by(&votes(&[1]), 3 * SILENCE);
    assert_eq!(it.tick(3 * SILENCE), Step::Wait, "rank 2 has had no time to answer");
}

fn votes(ranks: &[u32]) -> BTreeMap<u32, Purpose> {
    ranks.iter().map(|rank| (*rank, Purpose::Vote(Vote::default()))).collect()
}

#[test]
fn the_lowest_rank_that_answers_leads() {
    let mut it = election(2, 4);
    assert_eq!((it.leader(), it.stage()), (0, Stage::Voting(0)));
    it.asked(0, 0);
    it.lost(0, 5);
    assert_eq!(it.asks().into_keys().collect::<Vec<_>>(), [1]);
    it.asked(1, 5);
    pass(&mut it, 5 + SILENCE);
    assert_eq!(it.leader(), 1);
    assert_eq!((it.tick(6 + SILENCE), it.leader()), (Step::Wait, 2), "rank 1 keeps silent");
    it.asked_by(&[(1, Purpose::Probe)].into(), 6 + 2 * SILENCE);
    assert_eq!(it.leader(), 1, "a rank that asks lives");
}

#[test]
fn the_silences_of_several_ranks_do_not_add_up() {
    let mut it = election(9, 10);
    for now_ms in (0..=2 * SILENCE).step_by(20) {
        it.tick(now_ms);
        for rank in it.asks().into_keys() {
            if it.status(rank) == Status::Unasked {
                it.asked(rank, now_ms);
            }
        }
    }
    assert!(it.leader() > 3, "rank {} leads", it.leader());
}

#[test]
fn a_voter_asks_others_only_where_its_leader_is_late() {
    let mut it = election(3, 4);
    assert_eq!(it.asks().into_keys().collect::<Vec<_>>(), [0]);
    it.asked(0, 0);
    pass(&mut it, 2 * limits::REGROUP_BEAT_MS);
    assert_eq!(it.asks().len(), 1);
    pass(&mut it, 2 * limits::REGROUP_BEAT_MS + 1);
    assert_eq!(it.asks().into_keys().collect::<Vec<_>>(), [0, 1]);
    it.asked(1, it.ticked_ms);
    // Rank 0 answers again, so rank 1 is asked no more, and need not answer.
    for beat in 3..30 {
        let now_ms = beat * limits::REGROUP_BEAT_MS;
        it.heard(0, Stage::Leading, now_ms);
        assert_eq!(it.tick(now_ms), Step::Wait);
    }
    it.lost(0, it.ticked_ms);
    assert_eq!((it.tick(it.ticked_ms), it.leader()), (Step::Wait, 1));
}

#[test]
fn a_leader_waits_for_ranks_that_answer_and_not_for_others() {
    let mut it = election(0, 4);
    (1..4).for_each(|rank| it.asked(rank, 0));
    it.asked_by(&votes(&[1]), 1);
    it.lost(2, 1);
    it.heard(3, Stage::Working, 1);
    assert_eq!(it.tick(2), Step::Wait, "rank 3 works on");
    it.asked_by(&votes(&[1, 3]), 3);
    assert_eq!(it.tick(3), Step::Form(vec![0, 1, 3]));
}

#[test]
fn a_leader_asks_only_ranks_that_do_not_vote_in_time() {
    let mut it = election(0, 5);
    it.ended([3].into());
    assert_eq!(it.tick(7), Step::Wait);
    let asked = |it: &Election| it.asks().into_keys().collect::<Vec<_>>();
    assert_eq!(asked(&it), [3], "the rank has ended");
    it.lost(3, 7);
    it.asked_by(&votes(&[1, 4]), 8);
    pass(&mut it, 6 + limits::REGROUP_BEAT_MS);
    assert_eq!(asked(&it), []);
    pass(&mut it, 7 + limits::REGROUP_BEAT_MS);
    assert_eq!(asked(&it), [2]);
    it.asked_by(&votes(&[1, 2, 4]), it.ticked_ms);
    assert_eq!(it.tick(it.ticked_ms), Step::Form(vec![0, 1, 2, 4]));
}

#[test]
fn a_rank_that_works_on_for_too_long_is_left_out() {
    let mut it = election(0, 3);
    it.asked_by(&votes(&[1]), 1);
    it.heard(2, Stage::Working, 59_999);
    assert_eq!(it.tick(59_999), Step::Wait);
    assert_eq!(it.tick(60_000), Step::Form(vec![0, 1]));
    let mut above = election(1, 3);
    above.heard(0, Stage::Working, 59_999);
    assert_eq!((above.tick(60_000), above.leader()), (Step::Wait, 1));
}

#[test]
fn a_voter_leaves_an_idle_rank_where_a_higher_one_leads() {
    let mut it = election(2, 3);
    it.heard(0, Stage::Working, 1);
    assert_eq!((it.tick(1), it.leader()), (Step::Wait, 0));
    it.asked_by(&[(1, Purpose::Probe)].into(), 2);
    assert_eq!((it.tick(2), it.leader()), (Step::Wait, 1));
}

#[test]
fn a_visitor_with_this_rank_s_own_number_has_no_vote() {
    let mut it = election(0, 3);
    it.asked_by(&votes(&[0]), 1);
    (1..3).for_each(|rank| it.lost(rank, 1));
    let unknown = vec![1, 2];
    let none = Step::NoQuorum(Quorum { members: vec![0], electorate: 3, unknown });
    pass(&mut it, SILENCE);
    assert_eq!(it.tick(1 + SILENCE), none);
}

#[test]
fn half_of_the_ranks_are_no_quorum_unless_the_others_are_dead() {
    let half = |dead: &[u32], known_by: u32| {
        let mut it = election(0, 4);
        it.lost(2, 1);
        it.lost(3, 1);
        let vote = Vote { dead: dead.iter().copied().collect(), ..Vote::default() };
        if known_by == 0 {
            it.ended(vote.dead.clone());
        }
        let vote = if known_by == 0 { Vote::default() } else { vote };
        it.asked_by(&BTreeMap::from([(1, Purpose::Vote(vote))]), 1);
        let first = it.tick(1);
        if first != Step::Wait {
            return first;
        }
        pass(&mut it, 1 + SILENCE);
        it.tick(2 + SILENCE)
    };
    let none = |unknown: &[u32]| {
        let (members, unknown) = (vec![0, 1], unknown.to_vec());
        Step::NoQuorum(Quorum { members, electorate: 4, unknown })
    };
    assert_eq!(half(&[], 0), none(&[2, 3]));
    assert_eq!(half(&[3], 0), none(&[2]), "rank 3 may have been in a group with rank 2");
    assert_eq!(half(&[2, 3], 0), Step::Form(vec![0, 1]));
    assert_eq!(half(&[2, 3], 1), Step::Form(vec![0, 1]), "the voter knows");
}

#[test]
fn the_launcher_decides_between_two_halves() {
    let half = || {
        let mut it = election(0, 4).with_launcher();
        it.lost(2, 1);
        it.lost(3, 1);
        it.asked_by(&votes(&[1]), 1);
        it
    };
    let mut it = half();
    assert_eq!(it.tick(1), Step::AskLauncher(vec![0, 1]));
    pass(&mut it, 1 + 2 * SILENCE);
    it.launcher_voted(vec![0, 1], true);
    assert_eq!(it.tick(2 + 2 * SILENCE), Step::Form(vec![0, 1]));
    let mut refused = half();
    assert_eq!(refused.tick(1), Step::AskLauncher(vec![0, 1]));
    refused.launcher_voted(vec![0, 1], false);
    pass(&mut refused, 1 + SILENCE);
    assert!(matches!(refused.tick(2 + SILENCE), Step::NoQuorum(_)));
    // Its vote counts for the members for which it was asked, and never for less than half.
    let mut other = half();
    assert_eq!(other.tick(1), Step::AskLauncher(vec![0, 1]));
    other.asked_by(&votes(&[2]), 2);
    other.lost(1, 2);
    other.launcher_voted(vec![0, 1], true);
    assert_eq!(other.tick(2), Step::AskLauncher(vec![0, 2]));
    other.asked_by(&votes(&[]), 3);
    other.lost(2, 3);
    assert_eq!(other.tick(3), Step::Wait);
}

#[test]
fn ranks_that_were_dismissed_do_not_count() {
    let without: BTreeSet<u32> = [1, 2, 3].into();
    let mut it = Election::new((0, 4), without.clone(), &[], [0, 60_000]);
    assert!(it.asks().into_values().all(|purpose| purpose == Purpose::Dismiss));
    (1..4).for_each(|rank| it.heard(rank, Stage::Working, 1));
    assert_eq!(it.tick(1), Step::Wait);
    (1..4).for_each(|rank| it.heard(rank, Stage::Dismissed, 2));
    assert_eq!(it.tick(2), Step::Form(vec![0]));
    // They may vote, and still must agree.
    let mut it = Election::new((0, 2), [1].into(), &[], [0, 60_000]);
    it.asked_by(&votes(&[1]), 1);
    assert_eq!((it.tick(1), it.asks()), (Step::Wait, [(1, Purpose::Dismiss)].into()));
    // A member that names other ranks is told so.
    let mut it = Election::new((0, 4), [2, 3].into(), &[], [0, 60_000]);
    it.asked_by(&votes(&[1]), 1);
    assert_eq!(it.tick(1), Step::Differs(1));
}

#[test]
fn a_rank_whose_group_has_moved_on_excludes_a_late_one() {
    let mut it = election(2, 3);
    it.heard(0, Stage::Moved, 1);
    assert_eq!(it.tick(1), Step::Excluded);
}

/// The state of a rank of the simulation.
#[derive(Debug)]
enum State {
    Working,
    Electing(Box<Election>, BTreeMap<u32, Purpose>),
    /// It takes its seat in the group of this number.
    Joining(usize),
    Moved(usize),
    Agreed(u64),
    Failed,
}

struct Simulated {
    state: State,
    /// Its flag and promises, where the ranks agree on a value.
    opinion: Option<Opinion>,
    begins_ms: u64,
    /// How often it begins again where there is no quorum.
    tries: u32,
    dies_ms: Option<u64>,
    /// The members of the last group in which it took a seat.
    doubt: BTreeSet<u32>,
    /// It is stopped from the first time to the second.
    stop_ms: [u64; 2],
    /// The side of a cut network.
    side: bool,
}

struct Group {
    members: Vec<u32>,
    /// All have taken their seats, and the leader knows.
    is_complete: bool,
    /// A member has not learned that.
    is_torn: bool,
    is_given_up: bool,
}

struct World {
    ranks: Vec<Simulated>,
    flags: Vec<u64>,
    groups: Vec<Group>,
    cut_ms: Option<[u64; 2]>,
    /// The network parts while the first group learns that it has formed.
    cuts_late: bool,
    /// Whether a launcher votes, on the side of rank 0 or on the other one, and for whom it has.
    launcher: Option<bool>,
    launcher_vote: Option<Vec<u32>>,
    /// Answers on their way: when they arrive, the asked rank, the asker and the answer.
    answers: Vec<(u64, u32, u32, Answer)>,
    rng: TestRng,
    now_ms: u64,
}

#[derive(Clone, Debug)]
enum Answer {
    Stage(Stage),
    Lost,
    Invited(usize),
    NoQuorum,
    Launcher(Vec<u32>, bool),
    /// All have taken their seats in this group.
    Joined(usize),
}

impl World {
    fn new(seed: u64, agrees: bool) -> Self {
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &{
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            bytes
        });
        let mut draw =
            |range: std::ops::Range<u64>| range.start + rng.next_u64() % (range.end - range.start);
        let size = draw(2..9);
        let ranks = (0..size)
            .map(|rank| {
                let dies = draw(0..if rank == 0 { 3 } else { 6 }) == 0;
                let stops = draw(0..6) == 0;
                let stopped = draw(0..4_000);
                Simulated {
                    state: State::Working,
                    opinion: agrees.then(|| Opinion { flag: draw(0..256), ..Opinion::default() }),
                    begins_ms: draw(0..1_500),
                    tries: 3,
                    dies_ms: dies.then(|| draw(0..4_000)),
                    doubt: BTreeSet::new(),
                    stop_ms: if stops { [stopped, stopped + draw(1..8_000)] } else { [0; 2] },
                    side: draw(0..3) == 0,
                }
            })
            .collect::<Vec<Simulated>>();
        let flags = ranks.iter().map(|it| it.opinion.as_ref().map_or(0, |it| it.flag)).collect();
        let cut_ms = (draw(0..4) == 0).then(|| [draw(0..2_000), u64::MAX]);
        let cuts_late = draw(0..4) == 0;
        let launcher = (!agrees && draw(0..2) == 0).then(|| draw(0..2) == 0);
        let (groups, answers) = (Vec::new(), Vec::new());
        let launcher_vote = None;
        let now_ms = 0;
        Self {
            ranks,
            flags,
            groups,
            cut_ms,
            cuts_late,
            launcher,
            launcher_vote,
            answers,
            rng,
            now_ms,
        }
    }

    fn is_dead(&self, rank: u32) -> bool {
        self.ranks[rank as usize].dies_ms.is_some_and(|then| then <= self.now_ms)
    }

    fn is_stopped(&self, rank: u32) -> bool {
        let [from, to] = self.ranks[rank as usize].stop_ms;
        (from..to).contains(&self.now_ms)
    }

    fn is_cut(&self, a: u32, b: u32) -> bool {
        let is_apart = self.ranks[a as usize].side != self.ranks[b as usize].side;
        is_apart && self.cut_ms.is_some_and(|[from, to]| (from..to).contains(&self.now_ms))
    }

    /// Whether the asked rank has not heard from the asker for long.
    fn is_silent(&self, asker: u32, asked: u32) -> bool {
        let [from, to] = self.ranks[asker as usize].stop_ms;
        self.is_cut(asker, asked) || (from + SILENCE..to.max(from + SILENCE)).contains(&self.now_ms)
    }

    fn send(&mut self, asked: u32, asker: u32, answer: Answer) {
        let at = self.now_ms + 1 + self.rng.next_u64() % 60;
        self.answers.push((at, asked, asker, answer));
    }

    fn stage(&self, rank: u32) -> Stage {
        match &self.ranks[rank as usize].state {
            State::Electing(election, _) => election.stage(),
            State::Moved(_) => Stage::Moved,
            State::Agreed(value) => Stage::Agreed(*value),
            State::Working | State::Joining(_) | State::Failed => Stage::Working,
        }
    }

    /// The questions that a rank is asked now.
    fn questions(&self, rank: u32) -> BTreeMap<u32, Purpose> {
        let mut questions = BTreeMap::new();
        for (asker, other) in (0..).zip(&self.ranks) {
            if let State::Electing(_, asks) = &other.state
                && let Some(purpose) = asks.get(&rank)
                && !self.is_dead(asker)
                && !self.is_silent(asker, rank)
            {
                questions.insert(asker, purpose.clone());
            }
        }
        questions
    }

    fn elect(&mut self, own: u32, mut election: Box<Election>, mut asks: BTreeMap<u32, Purpose>) {
        let now_ms = self.now_ms;
        election.asked_by(&self.questions(own), now_ms);
        let all = 0..self.ranks.len() as u32;
        // The end of a process is known a moment later.
        let dead = all.filter(|rank| {
            self.ranks[*rank as usize].dies_ms.is_some_and(|then| then + 100 <= now_ms)
        });
        election.ended(dead.collect());
        let arrived: Vec<_> = {
            let is_ours = |it: &(u64, u32, u32, Answer)| it.0 <= now_ms && it.2 == own;
            let ours = self.answers.iter().filter(|it| is_ours(it)).cloned().collect();
            self.answers.retain(|it| !is_ours(it));
            ours
        };
        for (_, asked, _, answer) in arrived {
            let is_visited = asks.contains_key(&asked);
            match answer {
                Answer::Joined(_) => {}
                Answer::Launcher(members, is_given) => election.launcher_voted(members, is_given),
                _ if !is_visited => {}
                Answer::Stage(stage) => election.heard(asked, stage, now_ms),
                Answer::Lost => election.lost(asked, now_ms),
                Answer::Invited(group) => {
                    self.sit(own, group);
                    return;
                }
                Answer::NoQuorum => {
                    self.begin_again(own);
                    return;
                }
            }
        }
        let step = election.tick(now_ms);
        let opinion = election.opinion().cloned();
        self.ranks[own as usize].opinion = opinion;
        let state = match step {
            Step::Agreed(value) => State::Agreed(value),
            Step::AskLauncher(members) => {
                let is_given = self.has_launchers_vote(own, &members);
                self.send(own, own, Answer::Launcher(members, is_given));
                State::Electing(election, asks)
            }
            Step::Wait => {
                let wanted = election.asks();
                for asked in wanted.keys().filter(|rank| !asks.contains_key(rank)) {
                    election.asked(*asked, now_ms);
                }
                asks = wanted;
                State::Electing(election, asks)
            }
            Step::Form(members) => {
                let group = self.groups.len();
                let others = members.iter().copied().filter(|rank| *rank != own);
                for other in others.collect::<Vec<_>>() {
                    self.send(own, other, Answer::Invited(group));
                }
                let [is_complete, is_torn, is_given_up] = [false; 3];
                self.groups.push(Group { members, is_complete, is_torn, is_given_up });
                return self.sit(own, group);
            }
            Step::NoQuorum(quorum) => {
                for other in quorum.members.iter().filter(|rank| **rank != own) {
                    self.send(own, *other, Answer::NoQuorum);
                }
                return self.begin_again(own);
            }
            Step::Excluded | Step::Differs(_) => State::Failed,
        };
        self.ranks[own as usize].state = state;
    }

    /// Whether the launcher gives its vote to these members, for which `own` asks.
    fn has_launchers_vote(&mut self, own: u32, members: &Vec<u32>) -> bool {
        let is_cut = self.cut_ms.is_some_and(|[from, _]| from <= self.now_ms);
        let is_apart = self.launcher != Some(self.ranks[own as usize].side);
        !(is_cut && is_apart)
            && self.launcher_vote.get_or_insert_with(|| members.clone()) == members
    }

    /// There is no quorum for this rank, which tries again a few times.
    fn begin_again(&mut self, own: u32) {
        let now_ms = self.now_ms;
        let rank = &mut self.ranks[own as usize];
        (rank.begins_ms, rank.state) = (now_ms + 100, State::Working);
        match rank.tries.checked_sub(1) {
            Some(left) => rank.tries = left,
            None => rank.state = State::Failed,
        }
    }

    /// A rank takes its seat in a group.
    fn sit(&mut self, own: u32, group: usize) {
        let rank = &mut self.ranks[own as usize];
        rank.state = State::Joining(group);
        rank.doubt = self.groups[group].members.iter().copied().collect();
    }

    /// A rank begins an election.
    fn begin(&self, own: u32) -> Box<Election> {
        let times = [self.now_ms, self.now_ms + 20_000];
        let begun = Election::new((own, self.ranks.len()), BTreeSet::new(), &[], times);
        let begun = begun.doubting(self.ranks[own as usize].doubt.clone());
        Box::new(match &self.ranks[own as usize].opinion {
            Some(opinion) => begun.agreeing(opinion.clone()),
            None if self.launcher.is_some() => begun.with_launcher(),
            None => begun,
        })
    }

    /// The leader of a group that has formed tells the others, who are in doubt until then. It may
    /// die meanwhile, or the network may part.
    fn tell(&mut self, group: usize) {
        let members = self.groups[group].members.clone();
        let leader = members[0];
        for rank in members {
            let waits =
                matches!(self.ranks[rank as usize].state, State::Joining(it) if it == group);
            if !waits || self.is_dead(rank) || self.is_stopped(rank) {
                continue;
            }
            let told = self.answers.iter().position(|(at, _, to, answer)| {
                let is_this = matches!(answer, Answer::Joined(it) if *it == group);
                is_this && *to == rank && *at <= self.now_ms
            });
            let is_lost = self.is_dead(leader) || self.is_cut(leader, rank);
            self.ranks[rank as usize].state = match told {
                Some(at) if !is_lost => {
                    self.answers.swap_remove(at);
                    State::Moved(group)
                }
                _ if is_lost || self.is_silent(leader, rank) => {
                    self.groups[group].is_torn = true;
                    State::Electing(self.begin(rank), BTreeMap::new())
                }
                _ => continue,
            };
        }
    }

    /// Whether a group lives: those that know of it have a quorum there.
    fn lives(&self, (number, group): (usize, &Group)) -> bool {
        let is_in = |rank: &&u32| {
            let state = &self.ranks[**rank as usize].state;
            !self.is_dead(**rank) && matches!(state, State::Moved(it) if *it == number)
        };
        let living = 2 * group.members.iter().filter(is_in).count();
        let is_half = self.launcher.is_some() && living == group.members.len();
        group.is_complete && (is_half || living > group.members.len())
    }

    /// All members of a group join it, or one gives up and the others notice.
    fn join(&mut self, group: usize) {
        let Group { members, is_complete, is_given_up, .. } = &self.groups[group];
        let members = members.clone();
        if *is_complete {
            return self.tell(group);
        }
        let was_given_up = *is_given_up;
        let has_seat = |rank: &u32| {
            let state = &self.ranks[*rank as usize].state;
            matches!(state, State::Joining(it) if *it == group)
        };
        let leader = members[0];
        let is_well = |rank: &u32| {
            !self.is_dead(*rank) && !self.is_stopped(*rank) && !self.is_cut(*rank, leader)
        };
        if !was_given_up && members.iter().all(|rank| has_seat(rank) && is_well(rank)) {
            self.groups[group].is_complete = true;
            self.ranks[leader as usize].state = State::Moved(group);
            if self.cuts_late && self.cut_ms.is_none() {
                self.cut_ms = Some([self.now_ms + self.rng.next_u64() % 60, u64::MAX]);
            }
            for rank in members.into_iter().skip(1) {
                self.send(leader, rank, Answer::Joined(group));
            }
            return;
        }
        let is_over = members.iter().any(|rank| {
            let still_asks = matches!(&self.ranks[*rank as usize].state,
                State::Electing(_, asks) if asks.contains_key(&leader));
            self.is_dead(*rank) || self.is_silent(*rank, leader) || !(has_seat(rank) || still_asks)
        });
        if is_over || was_given_up {
            self.groups[group].is_given_up = true;
            for rank in members {
                let seat = &mut self.ranks[rank as usize].state;
                if matches!(seat, State::Joining(it) if *it == group) {
                    let again = self.begin(rank);
                    self.ranks[rank as usize].state = State::Electing(again, BTreeMap::new());
                }
            }
        }
    }

    fn step(&mut self) {
        self.now_ms += 20;
        let size = self.ranks.len() as u32;
        for rank in (0..size)
            .filter(|rank| !self.is_dead(*rank) && !self.is_stopped(*rank))
            .collect::<Vec<_>>()
        {
            let beats = self.now_ms.is_multiple_of(limits::REGROUP_BEAT_MS);
            for asker in 0..size {
                let is_asked = matches!(&self.ranks[asker as usize].state,
                    State::Electing(_, asks) if asks.contains_key(&rank));
                if is_asked && beats && !self.is_cut(rank, asker) {
                    self.send(rank, asker, Answer::Stage(self.stage(rank)));
                }
            }
            let simulated = &mut self.ranks[rank as usize];
            match std::mem::replace(&mut simulated.state, State::Working) {
                State::Working if simulated.begins_ms <= self.now_ms => {
                    let begun = self.begin(rank);
                    self.ranks[rank as usize].state = State::Electing(begun, BTreeMap::new());
                }
                State::Electing(election, asks) => self.elect(rank, election, asks),
                other => self.ranks[rank as usize].state = other,
            }
        }
        for rank in (0..size).filter(|rank| self.is_dead(*rank)).collect::<Vec<_>>() {
            for asker in 0..size {
                let is_asked = matches!(&self.ranks[asker as usize].state,
                    State::Electing(_, asks) if asks.contains_key(&rank));
                if is_asked && !self.is_cut(rank, asker) {
                    self.send(rank, asker, Answer::Lost);
                }
            }
        }
        (0..self.groups.len()).for_each(|group| self.join(group));
    }

    fn run(mut self, seed: u64) {
        for _ in 0..10_000 {
            self.step();
            let living = self.groups.iter().enumerate().filter(|group| self.lives(*group)).count();
            assert!(living <= 1, "seed {seed}: two groups");
            let values: BTreeSet<u64> = (0..)
                .zip(&self.ranks)
                .filter(|(rank, _)| !self.is_dead(*rank))
                .filter_map(|(_, it)| match it.state {
                    State::Agreed(value) => Some(value),
                    _ => None,
                })
                .collect();
            assert!(values.len() <= 1, "seed {seed}: the ranks return {values:?}");
            let is_over = (0..).zip(&self.ranks).all(|(rank, it)| {
                let is_over =
                    matches!(it.state, State::Moved(_) | State::Agreed(_) | State::Failed);
                self.is_dead(rank) || is_over
            });
            if is_over && self.now_ms > 20_000 {
                break;
            }
        }
        let mut fates = BTreeSet::new();
        for (rank, it) in (0..).zip(&self.ranks) {
            let is_hit = it.dies_ms.is_some() || it.stop_ms[1] > 0 || self.cut_ms.is_some();
            match &it.state {
                _ if self.is_dead(rank) => {}
                State::Moved(group) => {
                    assert!(self.groups[*group].members.contains(&rank), "seed {seed}");
                    fates.extend((!is_hit).then_some(true));
                }
                State::Agreed(value) if !is_hit => {
                    // Its flag counts.
                    let flag = self.flags[rank as usize];
                    assert_eq!(value & !flag, 0, "seed {seed}: rank {rank}");
                    fates.insert(true);
                }
                State::Agreed(_) => {}
                State::Failed => fates.extend((!is_hit).then_some(false)),
                other => panic!("seed {seed}: rank {rank} hangs: {other:?}"),
            }
        }
        let story = || {
            self.ranks
                .iter()
                .map(|it| {
                    format!(
                        "{:?} begins {} dies {:?} stops {:?}",
                        it.state, it.begins_ms, it.dies_ms, it.stop_ms
                    )
                })
                .collect::<Vec<_>>()
        };
        let is_torn = self.groups.iter().any(|group| group.is_torn);
        assert!(
            is_torn || fates.len() <= 1,
            "seed {seed}: ranks that nothing has hit differ: {:#?}",
            story()
        );
    }
}

fn run(seeds: u64, agree: bool) {
    for seed in 0..seeds {
        World::new(seed, agree).run(seed);
    }
}

#[test]
fn all_that_return_a_value_return_the_same_one_in_every_order_of_events() {
    run(10_000, true);
}

#[test]
fn a_value_that_a_voter_has_accepted_outlives_its_leader() {
    let opinion = |flag| Opinion { flag, ..Opinion::default() };
    let (mut leader, mut voter) = (Agreement::new(opinion(7)), opinion(6));
    for decided in [None, None, Some(6)] {
        assert_eq!(leader.lead(0, &[voter.clone()]), decided);
        voter.follow(leader.offer);
    }
    let mut next = Agreement::new(voter.clone());
    let mut late = opinion(0);
    while next.lead(1, &[late.clone()]).is_none() {
        late.follow(next.offer);
    }
    assert_eq!(late.accepted.unwrap().1, 6, "the flag of the late one does not count");
    // A voter that has promised follows no lower ballot.
    late.follow(leader.offer);
    assert_eq!(late.promised, next.offer.ballot);
}

#[test]
fn at_most_one_group_forms_in_every_order_of_events() {
    run(10_000, false);
}

#[test]
#[ignore = "minutes: see tests/long"]
fn at_most_one_group_forms_in_a_million_orders_of_events() {
    run(1_000_000, false);
    run(1_000_000, true);
}

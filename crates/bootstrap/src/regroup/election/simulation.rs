//! Elections of whole groups at random: ranks die, stop, come late and are cut off, in virtual
//! time. At most one group may live, and all ranks that nothing has hit must be in it. In the same
//! way ranks agree on a value, of which there may be only one.

#![expect(clippy::cast_possible_truncation, reason = "the numbers of the tests are small")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use ringfold_types::limits;

use super::*;

const SILENCE: u64 = limits::REGROUP_SILENCE_MS;

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
    /// The number of that group, until this rank gives it up.
    seat: Option<usize>,
    /// It is stopped from the first time to the second.
    stop_ms: [u64; 2],
    /// The side of a cut network.
    side: bool,
}

struct Group {
    members: Vec<u32>,
    /// All have taken their seats, and the leader knows.
    is_complete: bool,
    is_given_up: bool,
}

/// A witness, which may be slow, out of reach, or begin anew.
struct SimulatedWitness {
    /// The side of the network that reaches it. `None` if both do.
    side: Option<bool>,
    /// The members that have its vote.
    vote: Option<Vec<u32>>,
    /// When it begins anew, without its votes and without the mark of the group.
    forgets_ms: Option<u64>,
    has_mark: bool,
    /// Requests on their way: when they arrive, whether the rank still waits then, the rank and the
    /// members.
    requests: Vec<(u64, bool, u32, Vec<u32>)>,
}

impl SimulatedWitness {
    /// Whether these members have the vote, as it answers at this time.
    fn gives(&mut self, members: &Vec<u32>, now_ms: u64) -> bool {
        if self.has_mark && self.forgets_ms.is_some_and(|then| then <= now_ms) {
            (self.vote, self.has_mark) = (None, false);
        }
        let has_vote = self.vote.get_or_insert_with(|| members.clone()) == members;
        has_vote && self.has_mark
    }
}

struct World {
    ranks: Vec<Simulated>,
    flags: Vec<u64>,
    groups: Vec<Group>,
    cut_ms: Option<[u64; 2]>,
    /// The network parts while the first group learns that it has formed.
    cuts_late: bool,
    witness: Option<SimulatedWitness>,
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
    Witness(Vec<u32>, bool),
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
                    seat: None,
                    stop_ms: if stops { [stopped, stopped + draw(1..8_000)] } else { [0; 2] },
                    side: draw(0..3) == 0,
                }
            })
            .collect::<Vec<Simulated>>();
        let flags = ranks.iter().map(|it| it.opinion.as_ref().map_or(0, |it| it.flag)).collect();
        let cut_ms = (draw(0..4) == 0).then(|| [draw(0..2_000), u64::MAX]);
        let cuts_late = draw(0..4) == 0;
        let witness = (draw(0..2) == 0).then(|| SimulatedWitness {
            side: [None, Some(false), Some(true)][draw(0..3) as usize],
            vote: None,
            forgets_ms: (draw(0..4) == 0).then(|| draw(0..12_000)),
            has_mark: true,
            requests: Vec::new(),
        });
        let (groups, answers) = (Vec::new(), Vec::new());
        let now_ms = 0;
        Self { ranks, flags, groups, cut_ms, cuts_late, witness, answers, rng, now_ms }
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
            State::Moved(group) => Stage::Moved(*group as u64),
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
                Answer::Witness(members, is_given) => election.witness_voted(members, is_given),
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
            Step::AskWitness(members) => {
                self.ask_witness(own, members);
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
                let [is_complete, is_given_up] = [false; 2];
                self.groups.push(Group { members, is_complete, is_given_up });
                return self.sit(own, group);
            }
            Step::NoQuorum(quorum) => {
                for other in quorum.members.iter().filter(|rank| **rank != own) {
                    self.send(own, *other, Answer::NoQuorum);
                }
                return self.begin_again(own);
            }
            Step::Formed(group) => State::Moved(group as usize),
            Step::Excluded | Step::Differs(_) => State::Failed,
        };
        self.ranks[own as usize].state = state;
    }

    /// Asks the witness for its vote for these members. A request in four is slow, and may arrive
    /// when the rank does not wait any more.
    fn ask_witness(&mut self, own: u32, members: Vec<u32>) {
        let now_ms = self.now_ms;
        let is_slow = self.rng.next_u64().is_multiple_of(4);
        let took_ms = 1 + self.rng.next_u64() % if is_slow { 3 * SILENCE } else { 60 };
        let waits = took_ms < SILENCE;
        if !waits {
            let late = Answer::Witness(members.clone(), false);
            self.answers.push((now_ms + SILENCE, own, own, late));
        }
        if let Some(witness) = &mut self.witness {
            witness.requests.push((now_ms + took_ms, waits, own, members));
        }
    }

    /// The witness answers the requests that have arrived.
    fn answer_requests(&mut self) {
        let now_ms = self.now_ms;
        let is_cut = self.cut_ms.is_some_and(|[from, _]| from <= now_ms);
        let Some(witness) = &mut self.witness else { return };
        let arrived: Vec<_> = witness.requests.extract_if(.., |it| it.0 <= now_ms).collect();
        for (_, waits, own, members) in arrived {
            let Some(witness) = &mut self.witness else { return };
            let is_apart = witness.side.is_some_and(|side| side != self.ranks[own as usize].side);
            let is_given = !(is_cut && is_apart) && witness.gives(&members, now_ms);
            if waits {
                self.send(own, own, Answer::Witness(members, is_given));
            }
        }
    }

    /// There is no quorum for this rank, which tries again a few times.
    fn begin_again(&mut self, own: u32) {
        let now_ms = self.now_ms;
        let rank = &mut self.ranks[own as usize];
        (rank.begins_ms, rank.state, rank.seat) = (now_ms + 100, State::Working, None);
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
        rank.seat = Some(group);
    }

    /// A rank begins an election.
    fn begin(&self, own: u32) -> Box<Election> {
        let times = [self.now_ms, self.now_ms + 20_000];
        let begun = Election::new((own, self.ranks.len()), BTreeSet::new(), &[], times);
        let Simulated { doubt, seat, .. } = &self.ranks[own as usize];
        let begun = begun.doubting(doubt.clone(), seat.map(|group| group as u64));
        let begun = if self.witness.is_some() { begun.with_witness() } else { begun };
        Box::new(match &self.ranks[own as usize].opinion {
            Some(opinion) => begun.agreeing(opinion.clone()),
            None => begun,
        })
    }

    /// The leader of a group that has formed tells the others. They are in doubt until then. The
    /// leader may die meanwhile, or the network may part.
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
        let is_half = self.witness.is_some() && living == group.members.len();
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
        self.answer_requests();
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
        assert!(fates.len() <= 1, "seed {seed}: ranks that nothing has hit differ: {:#?}", story());
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
fn at_most_one_group_forms_in_every_order_of_events() {
    run(10_000, false);
}

#[test]
#[ignore = "minutes: see tests/long"]
fn at_most_one_group_forms_in_a_million_orders_of_events() {
    run(1_000_000, false);
    run(1_000_000, true);
}

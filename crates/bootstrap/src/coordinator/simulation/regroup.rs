//! Survivors of a failure regroup. Each has a real election; the rest follows `regroup/mod.rs` and
//! `regroup/meeting_point.rs`.

use std::collections::BTreeSet;

use super::parts::Row;
use super::*;
use crate::regroup::election::{Election, Purpose, Stage, Step, beat_ms};
use crate::regroup::message::{FromVisitor, Invitation, ToVisitor};

/// The CPU time of a leader's look at one vote, as these elections take it.
const LOOK_NS: u64 = 500;
/// The time between two looks where nothing happens.
const LOOK: u64 = 20 * MS;

/// A message between ranks that regroup.
pub(super) enum Said {
    Asks(Purpose),
    Stage(Stage),
    Invited(Arc<[u8]>),
}

/// A later event at a rank that regroups, or between an asking rank and another one.
pub(super) enum Due {
    Dials([u32; 2], u32),
    Meets([u32; 2]),
    Loses([u32; 2]),
    Beats([u32; 2]),
    Looks(u32),
}

#[derive(Default)]
pub(super) struct Regrouping {
    began: u64,
    ranks: BTreeMap<u32, Regrouper>,
    /// The members of the new group, once a rank has read the invitation.
    invited: Vec<u32>,
}

struct Regrouper {
    election: Election,
    /// The ranks that it asks, and whether they are connected.
    visits: BTreeMap<u32, (Purpose, bool)>,
    /// The ranks that ask it.
    questions: BTreeMap<u32, Purpose>,
    stage: Stage,
    looked: u64,
    looks_next: u64,
    /// The size of its new group.
    members: Option<usize>,
}

impl World {
    /// These ranks are dead. All others regroup at once, and the lowest one leads.
    pub(super) async fn regroup(&mut self, part: &'static str, dead: &[u32]) -> Row {
        let begun = self.begin();
        let survivors = (0..self.size).filter(|rank| !dead.contains(rank)).collect::<Vec<_>>();
        self.hub = survivors[0];
        self.helpers.fill(0);
        self.members.iter_mut().for_each(|it| it.busy = Busy::default());
        dead.iter().for_each(|rank| self.member(*rank).is_dead = true);
        self.regrouping = Regrouping { began: begun, ..Regrouping::default() };
        for rank in &survivors {
            let place = (*rank, self.size as usize);
            let mut election = Election::new(place, BTreeSet::new(), dead, [0, 60_000]);
            let here = dead.iter().filter(|it| *it / HOST == *rank / HOST).copied();
            election.ended(here.collect());
            let regrouper = Regrouper {
                election,
                visits: BTreeMap::new(),
                questions: BTreeMap::new(),
                stage: Stage::Working,
                looked: 0,
                looks_next: 0,
                members: None,
            };
            self.regrouping.ranks.insert(*rank, regrouper);
            self.looks_at(begun, *rank);
        }
        self.run(|world| world.regrouping.ranks.values().all(|it| it.members.is_some())).await;
        let sizes = self.regrouping.ranks.values().filter_map(|it| it.members);
        assert!(sizes.clone().all(|members| members == survivors.len()), "{part}");
        assert!(self.sent.bytes < 400 * u64::from(self.size), "{part}: {:?}", self.sent);
        self.row(part, begun, format!("{} members", survivors.len()))
    }

    fn looks_at(&mut self, time: u64, rank: u32) {
        if let Some(it) = self.regrouping.ranks.get_mut(&rank) {
            it.looks_next = time;
            self.at(time, Happening::Regroups(Due::Looks(rank)));
        }
    }

    fn now_ms(&self, time: u64) -> u64 {
        (time - self.regrouping.began) / MS
    }

    fn says(&mut self, time: u64, ends @ [from, _]: [u32; 2], said: Said) {
        let bytes = match &said {
            Said::Asks(purpose) => encode(&FromVisitor::Ask(purpose.clone())).len(),
            Said::Stage(stage) => encode(&ToVisitor::Stage(*stage)).len(),
            Said::Invited(bytes) => bytes.len(),
        };
        self.send(time, ends, bytes, Letter::Said(from, said));
    }

    /// A rank asks a rank that it has reached, and is told its stage.
    fn converses(&mut self, time: u64, ends @ [asker, asked]: [u32; 2]) {
        let Some(it) = self.regrouping.ranks.get(&asker) else { return };
        let Some((purpose, true)) = it.visits.get(&asked).filter(|_| it.members.is_none()) else {
            return;
        };
        let purpose = purpose.clone();
        let stage = self.regrouping.ranks.get(&asked).map_or(Stage::Working, |it| it.stage);
        self.says(time, ends, Said::Asks(purpose));
        self.says(time, [asked, asker], Said::Stage(stage));
        let beat = beat_ms(self.size as usize) * MS;
        self.at(time + beat, Happening::Regroups(Due::Beats(ends)));
    }

    pub(super) fn regroups(&mut self, time: u64, due: Due) {
        match due {
            Due::Looks(rank) => self.looks(time, rank),
            Due::Beats(ends) => self.converses(time, ends),
            Due::Loses([asker, asked]) => {
                let now_ms = self.now_ms(time);
                if let Some(it) = self.regrouping.ranks.get_mut(&asker) {
                    it.visits.remove(&asked);
                    it.election.lost(asked, now_ms);
                }
            }
            Due::Dials(ends @ [asker, asked], _) if self.member(asked).is_dead => {
                self.works(asker, time, MESSAGE_NS);
                self.at(time + 2 * LATENCY_NS, Happening::Regroups(Due::Loses(ends)));
            }
            Due::Dials(ends @ [asker, asked], tries) => {
                let Some(pause) = self.queues(asker, tries) else {
                    let begun = self.works(asker, time, HANDSHAKE_NS);
                    let helped = self.helps(asker, begun, HELP_NS);
                    let done = self.works(asked, begun, JOIN_NS).max(helped);
                    self.sent.add(2, HANDSHAKE_BYTES[usize::from(asker == self.hub)]);
                    self.received.add(2, HANDSHAKE_BYTES[usize::from(asked == self.hub)]);
                    return self.at(done + 4 * LATENCY_NS, Happening::Regroups(Due::Meets(ends)));
                };
                self.at(time + pause, Happening::Regroups(Due::Dials(ends, tries + 1)));
            }
            Due::Meets(ends @ [asker, asked]) => {
                self.backlog -= 1;
                let it = self.regrouping.ranks.get_mut(&asker);
                if let Some((_, is_met)) = it.and_then(|it| it.visits.get_mut(&asked)) {
                    *is_met = true;
                }
                self.converses(time, ends);
            }
        }
    }

    /// A rank looks at its election.
    fn looks(&mut self, time: u64, rank: u32) {
        let now_ms = self.now_ms(time);
        let Some(it) = self.regrouping.ranks.get_mut(&rank) else { return };
        if it.looks_next != time || it.members.is_some() {
            return;
        }
        it.election.asked_by(&it.questions, now_ms);
        let step = it.election.tick(now_ms);
        let asks = it.election.asks();
        it.visits.retain(|asked, _| asks.contains_key(asked));
        let mut dials = Vec::new();
        for (asked, purpose) in asks {
            it.visits.entry(asked).or_insert_with(|| {
                it.election.asked(asked, now_ms);
                let is_vote = matches!(purpose, Purpose::Vote(_));
                dials.push((asked, if is_vote { turn(Rank(rank)) } else { Duration::ZERO }));
                (purpose, false)
            });
        }
        let (stage, votes) = (it.election.stage(), it.questions.len() as u64);
        let is_new = std::mem::replace(&mut it.stage, stage) != stage;
        let visitors = it.questions.keys().copied().filter(|_| is_new).collect::<Vec<_>>();
        let done = self.works(rank, time, LOOK_NS * votes);
        self.regrouping.ranks.entry(rank).and_modify(|it| it.looked = done);
        for visitor in visitors {
            self.says(done, [rank, visitor], Said::Stage(stage));
        }
        for (asked, turn) in dials {
            let at = time + turn.as_nanos() as u64;
            self.at(at, Happening::Regroups(Due::Dials([rank, asked], 0)));
        }
        match step {
            Step::Wait => self.looks_at(done.max(time + LOOK), rank),
            Step::Form(members) => self.invites(done, rank, members),
            other => panic!("rank {rank}: {other:?}"),
        }
    }

    fn invites(&mut self, time: u64, leader: u32, members: Vec<u32>) {
        let address = Some((address(leader), 20_000).into());
        let invitation = Invitation { members: members.clone(), address, nonce: u128::MAX };
        let message: Arc<[u8]> = encode(&ToVisitor::Invited(invitation)).into();
        for member in members.iter().filter(|rank| **rank != leader) {
            self.says(time, [leader, *member], Said::Invited(Arc::clone(&message)));
        }
        if let Some(it) = self.regrouping.ranks.get_mut(&leader) {
            it.members = Some(members.len());
        }
    }

    pub(super) fn told(&mut self, time: u64, [from, to]: [u32; 2], said: Said) {
        let now_ms = self.now_ms(time);
        let size = self.size as usize;
        let Regrouping { ranks, invited, .. } = &mut self.regrouping;
        let Some(it) = ranks.get_mut(&to) else { return };
        match said {
            Said::Asks(purpose) => {
                it.questions.insert(from, purpose);
                let pause = size as u64 / 1_000 * MS;
                let next = time.max(it.looked + pause);
                if next < it.looks_next {
                    self.looks_at(next, to);
                }
            }
            Said::Stage(stage) => {
                if it.visits.contains_key(&from) {
                    it.election.heard(from, stage, now_ms);
                }
            }
            Said::Invited(bytes) => {
                if invited.is_empty()
                    && let Some(ToVisitor::Invited(invitation)) = decode(&bytes)
                {
                    assert!(invitation.is_for(to, size));
                    *invited = invitation.members;
                }
                assert!(invited.binary_search(&to).is_ok(), "rank {to} is not invited");
                it.members = Some(invited.len());
            }
        }
    }
}

//! Checks of single decisions.

use std::collections::{BTreeMap, BTreeSet};

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
fn the_witness_decides_between_two_halves() {
    let half = || {
        let mut it = election(0, 4).with_witness();
        it.lost(2, 1);
        it.lost(3, 1);
        it.asked_by(&votes(&[1]), 1);
        it
    };
    let mut it = half();
    assert_eq!(it.tick(1), Step::AskWitness(vec![0, 1]));
    pass(&mut it, 1 + 2 * SILENCE);
    it.witness_voted(vec![0, 1], true);
    assert_eq!(it.tick(2 + 2 * SILENCE), Step::Form(vec![0, 1]));
    let mut refused = half();
    assert_eq!(refused.tick(1), Step::AskWitness(vec![0, 1]));
    refused.witness_voted(vec![0, 1], false);
    pass(&mut refused, 1 + SILENCE);
    assert!(matches!(refused.tick(2 + SILENCE), Step::NoQuorum(_)));
    // Its vote counts for the members for which it was asked, and never for less than half.
    let mut other = half();
    assert_eq!(other.tick(1), Step::AskWitness(vec![0, 1]));
    other.asked_by(&votes(&[2]), 2);
    other.lost(1, 2);
    other.witness_voted(vec![0, 1], true);
    assert_eq!(other.tick(2), Step::AskWitness(vec![0, 2]));
    other.asked_by(&votes(&[]), 3);
    other.lost(2, 3);
    assert_eq!(other.tick(3), Step::Wait);
}

#[test]
fn half_of_the_ranks_agree_by_the_vote_of_the_witness() {
    let mut opinions = [6, 5].map(|flag| Opinion { flag, ..Opinion::default() });
    for is_given in [true, false] {
        let mut it = election(0, 4).with_witness().agreeing(opinions[0].clone());
        it.lost(2, 1);
        it.lost(3, 1);
        let mut vote = |it: &mut Election| {
            if let Stage::Offering(offer) = it.stage() {
                opinions[1].follow(offer);
            }
            let vote = Vote { opinion: Some(opinions[1].clone()), ..Vote::default() };
            it.asked_by(&[(1, Purpose::Vote(vote))].into(), 1);
        };
        vote(&mut it);
        assert_eq!((it.tick(1), it.tick(1)), (Step::AskWitness(vec![0, 1]), Step::Wait));
        it.witness_voted(vec![0, 1], is_given);
        let steps: Vec<Step> =
            std::iter::repeat_with(|| (it.tick(1), vote(&mut it)).0).take(3).collect();
        let last = if is_given { Step::Agreed(4) } else { Step::Wait };
        assert_eq!(steps, [Step::Wait, Step::Wait, last]);
    }
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
    it.heard(0, Stage::Moved(1), 1);
    assert_eq!(it.tick(1), Step::Excluded);
}

#[test]
fn a_rank_in_doubt_learns_from_any_member_that_its_group_has_formed() {
    let in_doubt = |mark| {
        let mut it = election(2, 3).doubting([1, 2].into(), Some(5));
        it.heard(1, Stage::Moved(mark), 1);
        it.tick(1)
    };
    assert_eq!([5, 6].map(in_doubt), [Step::Formed(5), Step::Excluded]);
    // It cannot go on there, or returns a value.
    for mut it in [
        election(2, 3).doubting([1, 2].into(), None),
        election(2, 3).doubting([1, 2].into(), Some(5)).agreeing(Opinion::default()),
    ] {
        it.heard(1, Stage::Moved(5), 1);
        assert_eq!(it.tick(1), Step::Excluded);
    }
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

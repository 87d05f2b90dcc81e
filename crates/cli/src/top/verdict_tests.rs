//! Groups whose state is known, and the verdicts on them.

use super::*;

/// Eight ranks in `allreduce #812` for these seconds, which do not move.
fn waiting_for(seconds: u64) -> Vec<Member> {
    let member = |rank| Member {
        rank,
        host: None,
        pid: 100 + rank,
        state: State::Sleeping,
        seq: 812,
        inside: Some("allreduce".to_owned()),
        age: Duration::from_secs(seconds),
        usual: Duration::from_millis(20),
        awaited: None,
        longest_wait: Duration::ZERO,
        has_moved: false,
        elsewhere: None,
        failure: None,
    };
    (0..8).map(member).collect()
}

/// The same, but rank 3 is outside.
fn one_is_late(seconds: u64) -> Vec<Member> {
    let mut members = waiting_for(seconds);
    members[3].inside = None;
    members
}

#[test]
fn a_late_rank_is_named() {
    let seen = judge(&one_is_late(41), 8, &[]);
    assert_eq!((seen.health, &seen.ranks[..]), (Health::Hung, &[3][..]));
    let sentence = "rank 3 (PID 103) has been outside ringfold for 41 s; 7 ranks wait for it in \
                    allreduce #812";
    assert_eq!(seen.sentence, sentence);
    assert_eq!(judge(&one_is_late(2), 8, &[]).health, Health::Slow);
    assert_eq!(judge(&one_is_late(0), 8, &[]).health, Health::Healthy);
}

#[test]
fn a_rank_that_always_computes_for_long_is_not_accused() {
    let mut members = one_is_late(41);
    members[3].usual = Duration::from_secs(30);
    assert_eq!(judge(&members, 8, &[]).health, Health::Healthy);
    members[3].usual = Duration::from_secs(10);
    assert_eq!(judge(&members, 8, &[]).health, Health::Slow);
}

#[test]
fn stopped_and_ended_ranks_are_named_at_once() {
    for (state, word) in [(State::Stopped, "stopped"), (State::Gone, "ended")] {
        let mut members = waiting_for(0);
        (members[5].state, members[5].has_moved) = (state, false);
        let seen = judge(&members, 8, &[]);
        assert_eq!((seen.health, &seen.ranks[..]), (Health::Hung, &[5][..]));
        assert!(seen.sentence.contains(word) && seen.sentence.contains("7 ranks wait"), "{seen:?}");
    }
}

#[test]
fn a_rank_in_another_call_is_named() {
    let mut members = waiting_for(3);
    members[6].inside = Some("broadcast".to_owned());
    let seen = judge(&members, 8, &[]);
    assert_eq!((seen.health, &seen.ranks[..]), (Health::Hung, &[6][..]));
    assert!(seen.sentence.ends_with("in broadcast #812, while 7 ranks are in allreduce #812"));
}

#[test]
fn a_group_that_moves_or_computes_is_not_accused() {
    let mut members = waiting_for(0);
    members.iter_mut().for_each(|it| it.has_moved = true);
    members[2].seq = 811;
    assert_eq!(judge(&members, 8, &[]).health, Health::Healthy);
    let mut members = waiting_for(41);
    members.iter_mut().for_each(|it| it.inside = None);
    let seen = judge(&members, 8, &[]);
    assert_eq!((seen.health, seen.ranks.len()), (Health::Computing, 0), "{seen:?}");
    // One call of many bytes, which all ranks have begun.
    let seen = judge(&waiting_for(41), 8, &[]);
    assert_eq!((seen.health, seen.ranks.len()), (Health::Slow, 0), "{seen:?}");
    assert_eq!(judge(&waiting_for(2), 8, &[]).health, Health::Healthy);
}

#[test]
fn a_rank_that_waits_elsewhere_is_an_indirect_cause() {
    let mut members = one_is_late(9);
    members[3].elsewhere = Some("barrier #7 of the group \"b\"".to_owned());
    let seen = judge(&members, 8, &[]);
    assert!(seen.is_indirect && seen.sentence.contains("has been in barrier #7"), "{seen:?}");
}

/// Rank `waiter` waits for a message of rank `peer` with tag 7 for these seconds, outside of calls.
fn awaits(members: &mut [Member], waiter: usize, peer: u32, seconds: u64) {
    let message = AwaitedMessage { is_sent: false, peer: Some(peer), tag: Some(7) };
    let age = Duration::from_secs(seconds);
    (members[waiter].inside, members[waiter].awaited) = (None, Some(Awaited { message, age }));
}

#[test]
fn the_end_of_a_chain_of_messages_is_named() {
    let mut members = waiting_for(41);
    members.iter_mut().for_each(|it| it.inside = None);
    for (waiter, peer) in [(3, 1), (4, 3), (5, 4)] {
        awaits(&mut members, waiter, peer, 12 - u64::from(peer));
    }
    let seen = judge(&members, 8, &[]);
    assert_eq!((seen.health, &seen.ranks[..]), (Health::Hung, &[1][..]), "{seen:?}");
    let sentence = "rank 3 (PID 103) waits 11 s for a message of rank 1 with tag 7, which has been \
                    outside ringfold for 41 s; 3 ranks wait for messages";
    assert_eq!(seen.sentence, sentence);
    // It always takes that long.
    members[5].longest_wait = Duration::from_secs(9);
    assert_eq!(judge(&members, 8, &[]).health, Health::Healthy);
    // The messages come.
    members[5].longest_wait = Duration::ZERO;
    members[1].has_moved = true;
    assert_eq!(judge(&members, 8, &[]).health, Health::Healthy);
}

#[test]
fn a_message_that_does_not_come_is_named() {
    // Rank 0 waits for rank 3 in the collective, and rank 3 for a message of rank 0.
    let mut members = one_is_late(12);
    awaits(&mut members, 3, 0, 12);
    let seen = judge(&members, 8, &[]);
    assert_eq!((seen.health, &seen.ranks[..]), (Health::Hung, &[3][..]), "{seen:?}");
    let sentence = "rank 3 (PID 103) waits 12 s for a message of rank 0 with tag 7, which is in \
                    allreduce #812; 7 ranks wait for it in allreduce #812";
    assert_eq!(seen.sentence, sentence);
    // A rank outside explains it.
    members[6].inside = None;
    awaits(&mut members, 3, 6, 12);
    let seen = judge(&members, 8, &[]);
    assert_eq!((seen.health, &seen.ranks[..]), (Health::Hung, &[6][..]), "{seen:?}");
    members[3].awaited = None;
    members[3].inside = Some("allreduce".to_owned());
    let seen = judge(&members, 8, &[]);
    assert_eq!(seen.ranks, [6]);
}

#[test]
fn ranks_that_wait_for_each_other_are_named() {
    let mut members = waiting_for(9);
    members.iter_mut().for_each(|it| it.inside = None);
    awaits(&mut members, 2, 5, 9);
    awaits(&mut members, 5, 2, 9);
    let seen = judge(&members, 8, &[]);
    assert_eq!((seen.health, &seen.ranks[..]), (Health::Hung, &[2, 5][..]), "{seen:?}");
    let sentence = "rank 5 (PID 105) waits 9.0 s for a message of rank 2 with tag 7, which waits \
                    for a message of rank 5 with tag 7; 2 ranks wait for messages";
    assert_eq!(seen.sentence, sentence);
    awaits(&mut members, 5, 2, 0);
    awaits(&mut members, 2, 5, 0);
    assert_eq!(judge(&members, 8, &[]).health, Health::Healthy);
}

#[test]
fn ranks_on_hosts_that_do_not_answer_are_named() {
    let mut members = waiting_for(12);
    members.truncate(6);
    let seen = judge(&members, 8, &[6, 7]);
    assert_eq!((seen.health, &seen.ranks[..]), (Health::Hung, &[6, 7][..]), "{seen:?}");
    let sentence = "2 ranks are not seen, on hosts that do not answer; 6 ranks are in allreduce \
                    #812 for 12 s";
    assert_eq!(seen.sentence, sentence);
    // One that is seen explains more.
    (members[4].inside, members[4].host) = (None, Some("node".to_owned()));
    let seen = judge(&members, 8, &[6, 7]);
    assert_eq!((seen.health, &seen.ranks[..]), (Health::Hung, &[4][..]), "{seen:?}");
    assert!(seen.sentence.starts_with("rank 4 (PID 104 on node) has been outside"), "{seen:?}");
}

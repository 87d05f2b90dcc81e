//! Groups of a communicator's ranks: threads that join by a unique id, as processes do, over shared
//! memory and TCP, and threads of `local::run`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use ringfold::{
    Communicator, Config, Error, FailureCause, Rank, ReduceOp, UniqueId, Window, local,
};
use ringfold_harness::Folder;

fn config(settings: &[(&str, &str)]) -> Config {
    let setting = |(name, value): &(&str, &str)| (format!("RINGFOLD_{name}"), (*value).to_owned());
    Config::from_map(settings.iter().map(setting).collect::<BTreeMap<_, _>>()).unwrap()
}

/// Runs `rank_main` on threads that join by a unique id. Rank r is on the host of that number
/// modulo `hosts`.
fn joined<R: Send>(
    size: u32,
    hosts: u32,
    transport: &str,
    rank_main: impl Fn(Communicator) -> R + Sync,
) -> Vec<R> {
    let id = UniqueId::new(&Config::default()).unwrap();
    let (id, rank_main) = (&id, &rank_main);
    thread::scope(|scope| {
        let part = |rank: u32| {
            let host = format!("h{}", rank % hosts);
            let settings = [("TRANSPORT", transport), ("HOSTID", &host), ("TIMEOUT", "60")];
            let config = config(&settings);
            let comm = Communicator::init_with_id(&config, id, Rank(rank), size as usize);
            rank_main(comm.unwrap())
        };
        let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || part(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn sum(comm: &mut Communicator, value: u32) -> u32 {
    let mut sum = [value];
    comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    sum[0]
}

/// Splits ranks by color and key, splits the groups again, and uses all of them, also after their
/// parents are gone.
fn split_and_use(mut comm: Communicator) {
    let parent = comm.group_name().map_or_else(String::new, |parent| format!("{parent} / "));
    let (rank, size) = (comm.rank().0, u32::try_from(comm.size()).unwrap());
    let whole = sum(&mut comm, rank);
    // The last rank has no color. The others are in reverse order.
    let color = (rank + 1 < size).then_some(rank % 2);
    let half = comm.split(color, -i64::from(rank)).unwrap();
    let expected: Vec<u32> = (0..size - 1).filter(|it| it % 2 == rank % 2).rev().collect();
    assert_eq!(half.is_some(), color.is_some());
    if let Some(mut half) = half {
        assert_eq!(half.group_name(), Some(&*format!("{parent}split 1 color {}", rank % 2)));
        assert_eq!(half.size(), expected.len());
        assert_eq!(expected[half.rank().index()], rank);
        assert_eq!(sum(&mut half, rank), expected.iter().sum::<u32>());
        let mut all = vec![0; half.size()];
        half.all_gather_into(&[rank], &mut all).unwrap();
        assert_eq!(all, expected);
        let mut window: Window<u32> = half.alloc(3).unwrap();
        window.fill(1);
        half.all_reduce_window(&mut window, .., ReduceOp::Sum).unwrap();
        assert_eq!(window[2] as usize, half.size());
        let mut pair = half.split(Some(half.rank().0 / 2), 0).unwrap().unwrap();
        let place = half.rank().0 / 2;
        let name = format!("{parent}split 1 color {} / split 1 color {place}", rank % 2);
        assert_eq!(pair.group_name(), Some(&*name));
        let place = half.rank().index() / 2 * 2;
        half.leave().unwrap();
        let both: u32 = expected.iter().skip(place).take(2).sum();
        assert_eq!(sum(&mut pair, rank), both);
        pair.leave().unwrap();
    }
    let mut copy = comm.duplicate().unwrap();
    let chosen = comm.subset(&[Rank(size - 1), Rank(0)]).unwrap();
    assert_eq!(sum(&mut comm, rank), whole);
    comm.leave().unwrap();
    if let Some(mut chosen) = chosen {
        assert_eq!(chosen.rank().0, u32::from(rank == 0));
        assert_eq!(sum(&mut chosen, rank), size - 1);
        chosen.leave().unwrap();
    }
    assert_eq!(copy.group_name(), Some(&*format!("{parent}duplicate 2")));
    assert_eq!(copy.rank().0, rank);
    assert_eq!(sum(&mut copy, rank), whole);
    copy.leave().unwrap();
}

#[test]
fn groups_by_shared_memory() {
    joined(7, 1, "shm", split_and_use);
}

#[test]
fn groups_by_tcp() {
    joined(7, 7, "tcp", split_and_use);
}

#[test]
fn groups_by_all_transports() {
    joined(8, 3, "shm,tcp", split_and_use);
}

#[test]
fn groups_of_threads() {
    local::run(7, |comm| {
        let whole = comm.duplicate().unwrap();
        split_and_use(whole);
    })
    .unwrap();
}

#[test]
fn a_rank_alone_makes_groups_of_one() {
    let id = UniqueId::new(&Config::default()).unwrap();
    let mut comm = Communicator::init_with_id(&Config::default(), &id, Rank(0), 1).unwrap();
    let mut same = comm.duplicate().unwrap();
    assert_eq!(sum(&mut same, 7), 7);
    assert!(comm.split(None, 0).unwrap().is_none());
    let mut again = same.split(Some(u32::MAX), 0).unwrap().unwrap();
    assert_eq!(again.group_name(), Some("duplicate 1 / split 1 color 4294967295"));
    assert_eq!(sum(&mut again, 5), 5);
}

#[test]
fn wrong_lists_and_other_methods_are_refused_and_the_parent_remains() {
    local::run(3, |comm| {
        let text = |error: Error| error.to_string();
        let wrong = text(comm.subset(&[Rank(3)]).unwrap_err());
        assert!(wrong.ends_with("rank 3 is not below 3"), "{wrong}");
        let twice = text(comm.subset(&[Rank(1), Rank(1)]).unwrap_err());
        assert!(twice.ends_with("rank 1 is in the list twice"), "{twice}");
        let other = if comm.rank().0 == 2 { [Rank(0), Rank(1)] } else { [Rank(1), Rank(0)] };
        let error = text(comm.subset(&other).unwrap_err());
        assert!(error.contains("rank 2 and rank 0 call different methods"), "{error}");
        let error = match comm.rank().0 {
            1 => comm.duplicate().unwrap_err(),
            _ => comm.split(Some(0), 0).unwrap_err(),
        };
        assert!(text(error).contains("rank 1 and rank 0 call different methods"));
        assert_eq!(sum(comm, 1), 3);
        assert!(comm.subset(&[]).unwrap().is_none());
    })
    .unwrap();
}

/// Rank 0 alone has a profile, and is in none of the other groups.
#[test]
fn groups_have_the_prices_and_the_load_of_their_parent() {
    let folder = Folder::new();
    let file = folder.file("prices", "ringfold-prices 1\ntcp 31000 1000 901\n");
    let id = UniqueId::new(&Config::default()).unwrap();
    let (id, file) = (&id, file.as_str());
    thread::scope(|scope| {
        for rank in 0..4 {
            scope.spawn(move || {
                let mut config = config(&[("TRANSPORT", "tcp")]);
                config.host_id = Some(format!("h{rank}"));
                config.prices_file = (rank == 0).then(|| file.to_owned());
                let mut comm = Communicator::init_with_id(&config, id, Rank(rank), 4).unwrap();
                let half = comm.split(Some(rank / 2), 0).unwrap().unwrap();
                assert_eq!(half.layout().prices(), comm.layout().prices());
                assert_eq!(half.layout().occupancy(), comm.layout().occupancy());
                assert_eq!(half.layout().occupancy().ranks, 4);
                let text = format!("{:?}", half.layout().prices());
                assert!(text.contains("31000000") && text.contains("901"), "{text}");
            });
        }
    });
}

/// Every rank uses its groups from a thread each, at once.
#[test]
fn threads_use_several_groups_at_once() {
    joined(4, 2, "shm,tcp", |mut comm| {
        let rank = comm.rank().0;
        let groups = [
            comm.split(Some(rank / 2), 0).unwrap().unwrap(),
            comm.split(Some(rank % 2), 0).unwrap().unwrap(),
            comm.duplicate().unwrap(),
            comm,
        ];
        let wants = [rank / 2 * 4 + 1, rank % 2 * 2 + 2, 6, 6];
        thread::scope(|scope| {
            for (mut group, want) in groups.into_iter().zip(wants) {
                scope.spawn(move || {
                    for _ in 0..200 {
                        assert_eq!(sum(&mut group, rank), want);
                    }
                    let mut part = group.split(Some(0), 0).unwrap().unwrap();
                    assert_eq!(sum(&mut part, rank), want);
                    part.leave().unwrap();
                    group.leave().unwrap();
                });
            }
        });
    });
}

/// A group fails, by an abort and by a mismatch. Its error names the group and the call, and the
/// other groups go on.
#[test]
fn a_failure_stays_in_its_group() {
    let all_done = Barrier::new(4);
    joined(4, 2, "shm,tcp", |mut comm| {
        let rank = comm.rank().0;
        let mut broken = comm.split(Some(rank / 2), 0).unwrap().unwrap();
        let mut sound = comm.split(Some(rank % 2), 0).unwrap().unwrap();
        if rank < 2 {
            // These two abort.
            if broken.rank().0 == 1 {
                broken.abort("on purpose");
            }
        } else if broken.rank().0 == 1 {
            // One of these two makes another call.
            broken.all_reduce(&mut [1_u32; 5], ReduceOp::Max).unwrap_err();
        }
        let error = loop {
            if let Err(error) = broken.barrier() {
                break error;
            }
        };
        let Error::Failed(failure) = &error else { panic!("{error}") };
        let group = format!("split 1 color {}", rank / 2);
        assert_eq!(failure.group.as_deref(), Some(&*group));
        let text = error.to_string();
        let place = format!(" on rank {} of the group \"{group}\": ", broken.rank());
        assert!(text.contains(&place) && text.contains(" #"), "{text}");
        match &*failure.cause {
            FailureCause::Aborted { who, reason } if rank < 2 => {
                assert_eq!((who.rank, &**reason), (Rank(1), "on purpose"));
            }
            FailureCause::Mismatch { seq: 1, .. } if rank >= 2 => {}
            other => panic!("{other}"),
        }
        assert_eq!(sum(&mut sound, rank), rank % 2 * 2 + 2);
        assert_eq!(sum(&mut comm, rank), 6);
        // A failed group makes no groups, and its parent makes another.
        assert!(matches!(broken.duplicate().unwrap_err(), Error::Failed(_)));
        let mut anew = comm.split(Some(rank / 2), 0).unwrap().unwrap();
        assert_eq!(sum(&mut anew, rank), rank / 2 * 4 + 1);
        all_done.wait();
    });
}

/// An all-gather of as many words as those of a split is another call.
#[test]
fn a_call_of_the_program_does_not_pass_for_a_split() {
    let done = Barrier::new(2);
    joined(2, 1, "tcp", |mut comm| {
        let error = match comm.rank().0 {
            0 => comm.split(Some(0), 0).map(drop).unwrap_err(),
            _ => comm.all_gather_into(&[0_u64; 9], &mut [0; 18]).unwrap_err(),
        };
        let Error::Failed(failure) = &error else { panic!("{error}") };
        assert!(matches!(&*failure.cause, FailureCause::Mismatch { .. }), "{error}");
        assert!(error.to_string().contains("to make a group"), "{error}");
        done.wait();
    });
}

/// A rank that does not call is named within the timeout, and the group is not made.
#[test]
fn a_rank_that_does_not_split_is_named() {
    let [done, left] = [(); 2].map(|()| Barrier::new(3));
    joined(3, 1, "shm", |mut comm| {
        comm.barrier().unwrap();
        comm.set_timeout(Duration::from_millis(300));
        if comm.rank().0 == 2 {
            done.wait();
        } else {
            let error = comm.split(Some(0), 0).unwrap_err();
            let Error::Failed(failure) = &error else { panic!("{error}") };
            let FailureCause::Absent { ranks, .. } = &*failure.cause else { panic!("{error}") };
            assert!(error.to_string().contains("to make a group"), "{error}");
            assert_eq!(ranks[0].who.rank, Rank(2));
            done.wait();
        }
        left.wait();
    });
}

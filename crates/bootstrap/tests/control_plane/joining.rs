//! Ranks join, or report which ranks are missing.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{Control, ExchangeError, Identity, JoinError, Rendezvous, Secret};
use ringfold_harness::free_port;
use ringfold_types::{Chain, Rank, limits};
use rustix::process::Signal;

use crate::foreign::{Proxy, half_broken, of_other_build};
use crate::world::{Job, Process, TIME_LIMIT, common_cause, leave};

fn peer_infos(size: usize) -> Vec<Vec<u8>> {
    (0..size).map(|rank| format!("peer information {rank}").into_bytes()).collect()
}

#[test]
fn every_rank_gets_all_peer_infos_and_exchanges() {
    for size in [2, 3, 7, 16] {
        let job = Job::new(size);
        let threads: Vec<_> = (0..size as u32)
            .rev()
            .map(|rank| {
                let job = job.clone();
                thread::spawn(move || {
                    let (control, all) = job.join(rank).unwrap();
                    assert_eq!(all, peer_infos(size));
                    assert_eq!((control.rank(), control.size()), (Rank(rank), size));
                    for round in 0..5 {
                        let mine = vec![round; rank as usize * 1000];
                        let got = control.exchange(mine, TIME_LIMIT).unwrap();
                        assert_eq!(
                            got,
                            (0..size).map(|r| vec![round; r * 1000]).collect::<Vec<_>>()
                        );
                    }
                    assert_eq!(control.failure_cause(), None);
                    control.leave().unwrap();
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

#[test]
fn ranks_meet_again_at_the_same_port() {
    let job = Job::new(3);
    let first = job.joined(&[0, 1, 2]);
    // While the first one lives, and right after others have left.
    leave(job.joined(&[1, 2, 0]));
    let again: Vec<_> = (0..3)
        .map(|rank| {
            let job = job.clone();
            thread::spawn(move || (0..20).for_each(|_| job.join(rank).unwrap().0.leave().unwrap()))
        })
        .collect();
    again.into_iter().for_each(|thread| thread.join().unwrap());
    leave(first);
}

#[test]
fn a_job_of_one_rank_joins_without_peers() {
    let (control, all) = Control::join(
        Identity::alone(),
        Secret::generate().unwrap(),
        b"me".to_vec(),
        ringfold_bootstrap::Options::default(),
    )
    .unwrap();
    assert_eq!(all, [b"me"]);
    assert_eq!(control.exchange(vec![1], TIME_LIMIT).unwrap(), [[1]]);
    control.leave().unwrap();
}

#[test]
fn rank_0_leaves_first_and_no_rank_takes_that_for_a_death() {
    let mut job = Job::new(3);
    job.options.linger = Duration::from_millis(200);
    let mut controls = job.joined(&[0, 1, 2]);
    // Rank 0 lingers, then leaves the ranks that still work.
    controls.remove(0).leave().unwrap();
    for control in &controls {
        assert_eq!(control.failure_cause(), None);
        control.report_failure(ringfold_bootstrap::FailureReport::Overdue { seq: 0 });
        let text = crate::world::failure_cause(control).to_string();
        assert!(text.contains("rank 0 has left the job"), "{text}");
        let failed = control.exchange(vec![], TIME_LIMIT);
        assert!(matches!(failed, Err(ExchangeError::Failed(_))));
    }
    leave(controls);
}

#[test]
fn a_rank_that_does_not_join_is_named_by_all() {
    let job = Job::new(4).timeout(Duration::from_millis(1500));
    let threads: Vec<_> = [0, 1, 3].map(|rank| job.spawn(rank)).into();
    for thread in threads {
        let error = thread.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "3 of 4 ranks joined within 1.5s; missing: rank 2");
    }
}

#[test]
fn without_rank_0_the_others_name_the_address_they_tried() {
    let job = Job::new(2).timeout(Duration::from_millis(500));
    let error = job.join(1).unwrap_err();
    let place = format!("at 127.0.0.1:{} within", job.ports[0]);
    assert!(matches!(&error, JoinError::NoCoordinator { .. }), "{error}");
    assert!(error.to_string().contains(&place), "{error}");
}

#[test]
fn a_host_name_without_an_address_is_named_with_its_source() {
    let job = Job::new(2).timeout(Duration::from_millis(500));
    let mut identity = job.identity(1);
    let (hosts, named_by) = (vec!["no such host".to_owned()], "MASTER_ADDR");
    identity.rendezvous = Rendezvous::Ports { hosts, named_by, ports: vec![1, 2] };
    let joined = Control::join(identity, job.secret.clone(), vec![], job.options);
    let error = joined.unwrap_err();
    assert!(matches!(error, JoinError::UnknownHost { rank: Rank(1), .. }), "{error}");
    let text = error.to_string();
    let name =
        "rank 1 cannot resolve the host name \"no such host\", which comes from MASTER_ADDR,";
    let advice = "(correct the name, or give an address)";
    assert!(text.starts_with(name) && text.ends_with(advice), "{text}");
    let chain = Chain(&error).to_string();
    let cause = error.source().expect("the resolver's error").to_string();
    assert_eq!(chain, format!("{text}: {cause}"));
}

#[test]
fn another_secret_is_reported_on_both_sides() {
    let job = Job::new(2).timeout(Duration::from_secs(2));
    let mut other = job.clone();
    other.secret = Secret::generate().unwrap();
    let coordinator = job.spawn(0);
    let error = other.join(1).unwrap_err();
    assert!(matches!(error, JoinError::WrongSecret { rank: Rank(1), .. }), "{error}");
    let error = coordinator.join().unwrap().unwrap_err();
    let JoinError::Missing { turned_away, missing, .. } = &error else { panic!("{error}") };
    assert_eq!(**missing, [Rank(1)]);
    assert!(turned_away.contains("from 127.0.0.1 held another secret"), "{error}");
    for way in ["RINGFOLD_SECRET_FILE", "RINGFOLD_SECRET (", "ringrun", "mpiexec"] {
        assert!(turned_away.contains(way), "{error}");
    }
}

#[test]
fn another_size_is_reported() {
    let job = Job::new(2).timeout(Duration::from_secs(2));
    let mut other = job.clone();
    other.size = 3;
    let coordinator = job.spawn(0);
    let error = other.join(1).unwrap_err();
    assert!(matches!(error, JoinError::SizeMismatch { ours: 3, theirs: 2, .. }), "{error}");
    assert!(coordinator.join().unwrap().is_err());
}

#[test]
fn another_version_is_reported() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut job = Job::new(2).timeout(Duration::from_millis(500));
    job.ports = vec![listener.local_addr().unwrap().port()];
    let coordinator = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut opening = [0; 32];
        stream.read_exact(&mut opening).unwrap();
        // The same greeting with another version.
        opening[8..10].copy_from_slice(&999_u16.to_le_bytes());
        opening[11] = 1;
        stream.write_all(&opening).unwrap();
    });
    let error = job.join(1).unwrap_err().to_string();
    assert!(
        error.contains("speaks version 999 of the control protocol, rank 1 version "),
        "{error}"
    );
    coordinator.join().unwrap();
}

#[test]
fn another_build_is_refused_on_both_sides_with_both_builds() {
    let job = Job::new(2).timeout(Duration::from_secs(2));
    let coordinator = job.spawn(0);
    let proxy = of_other_build(job.ports[0], 0xfeed);
    let mut other = job.clone();
    other.ports = vec![proxy.port];
    let error = other.join(1).unwrap_err();
    let JoinError::Build { ours, theirs: 0xfeed, .. } = error else { panic!("{error}") };
    let at = format!("127.0.0.1:{}", proxy.port);
    let remedy = "start every rank, and ringrun, with the same build";
    let text =
        format!("{at} has build 000000000000feed of ringfold, rank 1 build {ours:016x}: {remedy}");
    assert_eq!(error.to_string(), text);
    let error = coordinator.join().unwrap().unwrap_err();
    let JoinError::Missing { turned_away, missing, .. } = &error else { panic!("{error}") };
    assert_eq!(**missing, [Rank(1)]);
    let text = format!(
        "from 127.0.0.1 had build 000000000000feed of ringfold, not {ours:016x}: start every rank \
         with the same build"
    );
    assert!(turned_away.ends_with(&text), "{error}");
}

#[test]
fn the_second_of_two_equal_ranks_is_refused_and_the_job_forms() {
    let job = Job::new(3);
    let mut threads = vec![job.spawn(0), job.spawn(1), job.spawn(1)];
    // The job waits for rank 2, so both have connected before it begins.
    let (refused, rest) = loop {
        if let Some(i) = threads.iter().position(thread::JoinHandle::is_finished) {
            let refused = threads.remove(i);
            break (refused.join().unwrap(), threads);
        }
        thread::sleep(Duration::from_millis(5));
    };
    let error = refused.unwrap_err();
    assert!(matches!(error, JoinError::Duplicate { rank: Rank(1) }), "{error}");
    let mut controls = job.joined(&[2]);
    controls.extend(rest.into_iter().map(|t| t.join().unwrap().unwrap().0));
    leave(controls);
}

/// When as many processes have come as there are ranks, the others wait only briefly for the rest.
#[test]
fn a_second_process_of_a_rank_that_tries_again_counts_once() {
    let job = Job::new(4);
    let coordinator = job.spawn(0);
    let proxy = Proxy::new(job.ports[0], Vec::new());
    let first = Job { ports: vec![proxy.port], ..job.clone() }.spawn(1);
    proxy.wait_until_joined();
    for _ in 0..2 {
        let error = job.join(1).unwrap_err();
        assert!(matches!(error, JoinError::Duplicate { rank: Rank(1) }), "{error}");
    }
    thread::sleep(Duration::from_millis(limits::JOIN_NEWS_MS + 1_000));
    let mut controls = job.joined(&[2, 3]);
    controls.extend([coordinator, first].map(|thread| thread.join().unwrap().unwrap().0));
    leave(controls);
}

#[test]
fn a_rank_that_goes_away_before_all_have_joined_is_named() {
    let job = Job::new(4);
    let others = [job.spawn(0), job.spawn(2)];
    // Rank 1 gives up long before the others would.
    let error = job.clone().timeout(Duration::from_millis(100)).join(1).unwrap_err();
    assert!(matches!(error, JoinError::CoordinatorLost { rank: Rank(1), .. }), "{error}");
    for other in others {
        let error = other.join().unwrap().unwrap_err();
        assert!(matches!(error, JoinError::Lost { rank: Rank(1) }), "{error}");
    }
}

#[test]
fn a_process_that_dies_before_all_have_joined_is_named_soon() {
    let job = Job::new(3);
    let coordinator = job.spawn(0);
    let proxy = Proxy::new(job.ports[0], Vec::new());
    let dying = Job { ports: vec![proxy.port], ..job.clone() }.process(1);
    proxy.wait_until_joined();
    let died = Instant::now();
    drop(dying);
    let error = coordinator.join().unwrap().unwrap_err();
    assert!(matches!(error, JoinError::Lost { rank: Rank(1) }), "{error}");
    assert!(died.elapsed() < TIME_LIMIT / 3, "{:?}", died.elapsed());
}

#[test]
fn a_connection_that_breaks_while_ranks_are_missing_ends_no_job() {
    let job = Job::new(3);
    let coordinator = job.spawn(0);
    let proxy = Proxy::new(job.ports[0], Vec::new());
    let broken = Job { ports: vec![proxy.port], ..job.clone() }.spawn(1);
    let wait_for_connection = |count| {
        while proxy.connections() < count {
            thread::sleep(Duration::from_millis(5));
        }
        proxy.wait_until_joined();
    };
    for count in 1..3 {
        wait_for_connection(count);
        proxy.cut();
    }
    // Rank 2 would complete the job before rank 0 had noticed the break.
    wait_for_connection(3);
    let mut controls = job.joined(&[2]);
    controls.extend([coordinator, broken].map(|thread| thread.join().unwrap().unwrap().0));
    leave(controls);
}

#[test]
fn a_rank_rejoins_although_the_coordinator_has_not_noticed_the_break() {
    let job = Job::new(3);
    let coordinator = job.spawn(0);
    let proxy = half_broken(job.ports[0]);
    let again = Job { ports: vec![proxy.port], ..job.clone() }.spawn(1);
    while proxy.connections() < 2 {
        thread::sleep(Duration::from_millis(5));
    }
    let mut controls = job.joined(&[2]);
    controls.extend([coordinator, again].map(|thread| thread.join().unwrap().unwrap().0));
    leave(controls);
}

#[test]
fn ports_of_other_programs_are_skipped() {
    // A listener that never answers, one that closes each connection, and a free port.
    let mute = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let rude = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut job = Job::new(2);
    job.ports =
        vec![mute.local_addr().unwrap().port(), rude.local_addr().unwrap().port(), free_port()];
    let hangs_up = thread::spawn(move || drop(rude.accept().unwrap()));
    leave(job.joined(&[1, 0]));
    hangs_up.join().unwrap();
}

#[test]
fn an_invalid_rank_or_peer_info_is_refused_at_once() {
    let job = Job::new(2);
    assert!(matches!(job.join(2), Err(JoinError::Invalid { rank: Rank(2), size: 2 })));
    let peer_info = vec![0; limits::PEER_INFO_BYTES_MAX + 1];
    let options = job.options.clone();
    let joined = Control::join(job.identity(0), job.secret, peer_info, options);
    assert!(matches!(joined, Err(JoinError::PeerInfoTooLong { .. })));
}

/// Three ranks, and the one that cannot join, as rank 0 or not. The last rank comes late.
#[test]
fn the_others_learn_why_a_rank_cannot_join() {
    for unable in [0, 1] {
        let (job, late) = (Job::new(3), 2);
        let began = Instant::now();
        let (first, second) = (job.spawn(1 - unable), Arc::new(Barrier::new(2)));
        let told = {
            let (job, second) = (job.clone(), Arc::clone(&second));
            thread::spawn(move || {
                second.wait();
                let (identity, reason) = (job.identity(unable), "it lacks a disk".to_owned());
                Control::cannot_join(identity, job.secret, reason, job.options);
            })
        };
        second.wait();
        thread::sleep(Duration::from_millis(200));
        for joined in [job.spawn(late), first] {
            let error = joined.join().unwrap().unwrap_err().to_string();
            assert_eq!(error, format!("rank {unable} cannot join: it lacks a disk"));
        }
        told.join().unwrap();
        assert!(began.elapsed() < TIME_LIMIT / 2);
    }
}

/// As many processes as ranks have come, two of them as the same rank, so one rank never comes.
#[test]
fn two_processes_of_one_rank_do_not_keep_the_others_waiting() {
    let job = Job::new(3);
    let began = Instant::now();
    let ranks = [0, 1, 1].map(|rank| job.spawn(rank));
    let errors = ranks.map(|rank| rank.join().unwrap().unwrap_err().to_string());
    assert!(began.elapsed() < TIME_LIMIT / 2);
    let others = "rank 2 cannot join: 1 connection from 127.0.0.1 came as rank 1, which another \
                  process is: give each process its own rank";
    assert_eq!(errors.iter().filter(|error| *error == others).count(), 2, "{errors:?}");
    let refused = "another process has already joined as rank 1";
    assert!(errors.iter().any(|error| error.starts_with(refused)), "{errors:?}");
}

#[test]
fn rank_0_raises_its_limit_of_open_files() {
    const SIZE: u32 = 60;
    let job = Job::new(SIZE as usize);
    let coordinator = job.process_with(0, "40", "4096");
    leave(job.joined(&(1..SIZE).collect::<Vec<_>>()));
    drop(coordinator);
}

#[test]
fn rank_0_names_the_limit_of_open_files_that_is_too_low() {
    let mut coordinator = Job::new(60).process_with(0, "40", "50");
    let error = coordinator.failure_cause();
    assert!(
        error.contains(" file descriptors to connect 60 ranks, and its limit is 50"),
        "{error}"
    );
    assert!(error.contains("ulimit -Hn"), "{error}");
}

/// The bytes between rank 0 and the others, which join through a proxy, have peer information of
/// the greatest length, and exchange more.
fn bytes_through_rank_0(size: u32) -> usize {
    let mut job = Job::new(size as usize);
    let join = |job: Job, rank| {
        thread::spawn(move || {
            let peer_info = vec![7; limits::PEER_INFO_BYTES_MAX];
            let options = job.options.clone();
            let joined = Control::join(job.identity(rank), job.secret, peer_info, options);
            let (control, peer_infos) = joined.unwrap();
            assert_eq!(peer_infos.len(), size as usize);
            let own = vec![rank as u8; 1_000];
            let all = control.exchange(own, TIME_LIMIT).unwrap();
            assert!((0..size).map(|rank| vec![rank as u8; 1_000]).eq(all));
            control
        })
    };
    let mut threads = vec![join(job.clone(), 0)];
    let proxy = Proxy::new(job.ports[0], Vec::new());
    job.ports = vec![proxy.port];
    threads.extend((1..size).map(|rank| join(job.clone(), rank)));
    let controls: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let bytes = proxy.bytes();
    leave(controls);
    bytes
}

#[test]
fn bytes_through_rank_0_grow_linearly_with_the_ranks() {
    let (fewer, more) = (bytes_through_rank_0(40), bytes_through_rank_0(160));
    println!("{fewer} bytes for 40 ranks, {more} for 160");
    // There are four times as many ranks. There would be sixteen times as many bytes if rank 0 sent
    // the roster, or the result of the exchange, to all.
    assert!(more < 6 * fewer, "{fewer} bytes for 40 ranks, {more} for 160");
}

#[test]
fn ranks_whose_parent_is_stopped_get_the_roster_from_rank_0() {
    const SIZE: u32 = 36;
    let job = Job::new(SIZE as usize);
    let coordinator = job.spawn(0);
    // Rank 1 forwards the roster to ranks 9 to 16.
    let proxy = Proxy::new(job.ports[0], Vec::new());
    let mut parent = Job { ports: vec![proxy.port], ..job.clone() }.process(1);
    proxy.wait_until_joined();
    parent.stop();
    let mut controls = job.joined(&(2..SIZE).collect::<Vec<_>>());
    controls.push(coordinator.join().unwrap().unwrap().0);
    controls[0]
        .report_failure(ringfold_bootstrap::FailureReport::Abort { reason: "enough".into() });
    let cause = common_cause(&controls).to_string();
    parent.signal(Signal::CONT);
    assert_eq!(parent.failure_cause(), cause);
    leave(controls);
}

/// Rank 1 forwards the result of an exchange to ranks 9 to 16. It gets this signal after it has
/// contributed, and before the last rank has. Returns what the others got, and their controls.
fn exchange_around_rank_1(
    signal: Signal,
) -> (Vec<Result<usize, ExchangeError>>, Vec<Control>, Process) {
    const SIZE: u32 = 36;
    const BYTES: usize = 100_000;
    let job = Job::new(SIZE as usize);
    let coordinator = job.spawn(0);
    let proxy = Proxy::new(job.ports[0], Vec::new());
    let parent = Job { ports: vec![proxy.port], ..job.clone() }.exchanging_process(1, BYTES);
    let mut controls = job.joined(&(2..SIZE).collect::<Vec<_>>());
    controls.push(coordinator.join().unwrap().unwrap().0);
    let (last, others) = controls.split_first().unwrap();
    let exchange = |control: &Control| {
        let all = control.exchange(vec![7; BYTES], TIME_LIMIT);
        all.map(|all| all.iter().filter(|one| one.len() == BYTES).count())
    };
    let results = thread::scope(|scope| {
        let others: Vec<_> = others.iter().map(|it| scope.spawn(|| exchange(it))).collect();
        while proxy.bytes() < BYTES {
            thread::sleep(Duration::from_millis(5));
        }
        parent.signal(signal);
        let last = exchange(last);
        others.into_iter().map(|it| it.join().unwrap()).chain([last]).collect()
    });
    (results, controls, parent)
}

#[test]
fn ranks_whose_parent_is_stopped_get_results_of_exchanges_from_rank_0() {
    let (results, controls, mut parent) = exchange_around_rank_1(Signal::STOP);
    assert!(results.iter().all(|result| *result == Ok(36)), "{results:?}");
    parent.signal(Signal::CONT);
    assert_eq!(parent.line("exchanged "), "36");
    controls[0]
        .report_failure(ringfold_bootstrap::FailureReport::Abort { reason: "enough".into() });
    assert_eq!(parent.failure_cause(), common_cause(&controls).to_string());
    leave(controls);
}

#[test]
fn ranks_whose_parent_dies_in_an_exchange_get_one_cause() {
    let (results, controls, _dead) = exchange_around_rank_1(Signal::KILL);
    let cause = common_cause(&controls);
    assert_eq!(cause.culprits(), [Rank(1)], "{cause}");
    let is_told = |result: &Result<usize, ExchangeError>| match result {
        Ok(count) => *count == 36,
        Err(ExchangeError::Failed(failed)) => *failed == cause,
        Err(_) => false,
    };
    assert!(results.iter().all(is_told), "{results:?}");
    leave(controls);
}

//! Joining through a launcher: `ringrun`'s rendezvous, and a key-value space that speaks PMI-1.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::rendezvous::{Ended, Report, serve};
use ringfold_bootstrap::{
    Control, Identity, JoinError, Launcher, Options, Rendezvous, Secret, SecretSource, discover,
    pmi,
};
use ringfold_types::Rank;
use tokio::sync::mpsc;

use crate::world::{TIME_LIMIT, common_cause, leave};

fn join_all(identities: Vec<Identity>, secret: &Secret) -> Vec<Control> {
    let threads: Vec<_> = identities
        .into_iter()
        .map(|identity| {
            let secret = secret.clone();
            let options = Options { timeout: TIME_LIMIT, ..Options::default() };
            thread::spawn(move || {
                let peer_info = identity.rank.0.to_le_bytes().to_vec();
                let (control, peer_infos) =
                    Control::join(identity, secret, peer_info, options).unwrap();
                let expected: Vec<_> =
                    (0..control.size() as u32).map(|r| r.to_le_bytes().to_vec()).collect();
                assert_eq!(peer_infos, expected);
                control
            })
        })
        .collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

/// `ringrun`'s rendezvous, in a thread.
struct Ringrun {
    place: SocketAddr,
    told: mpsc::UnboundedReceiver<Report>,
    ended: mpsc::UnboundedSender<Ended>,
}

impl Ringrun {
    fn end(&self, rank: u32) {
        self.ended.send(Ended { rank, how: "exit status 0".into() }).unwrap();
    }
}

fn ringrun(secret: &Secret, size: usize) -> Ringrun {
    let (tell, told) = mpsc::unbounded_channel();
    let (ended, ends) = mpsc::unbounded_channel();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let place = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let secret = secret.clone();
    // The rendezvous serves until the tests end.
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            serve(listener, secret, "j", size, tell, ends).await;
        });
    });
    Ringrun { place, told, ended }
}

fn asks(place: SocketAddr, rank: u32, size: usize) -> Identity {
    Identity {
        rank: Rank(rank),
        size,
        job: "j".into(),
        rendezvous: Rendezvous::Ask { address: place.to_string() },
        launcher: Launcher::Ringrun,
        secret_source: SecretSource::None,
    }
}

#[test]
fn ringrun_names_the_coordinator_and_gets_the_reports_of_the_job() {
    let secret = Secret::generate().unwrap();
    let Ringrun { place, mut told, ended: _ended } = ringrun(&secret, 3);
    // Unauthenticated peers connect there as well.
    let _half_open: Vec<_> = (0..20).map(|_| TcpStream::connect(place).unwrap()).collect();
    let controls = join_all((0..3).map(|r| asks(place, r, 3)).collect(), &secret);
    assert_eq!(told.blocking_recv(), Some(Report::Joined));
    controls[1]
        .report_failure(ringfold_bootstrap::FailureReport::Abort { reason: "enough".into() });
    let text = common_cause(&controls).to_string();
    let Some(Report::FailureCause { text: reported, culprits }) = told.blocking_recv() else {
        panic!("no failure cause")
    };
    assert_eq!((reported, culprits), (text, vec![1]));
    leave(controls);
    let mut left: Vec<_> = (0..3).map(|_| told.blocking_recv().unwrap()).collect();
    left.sort_by_key(|report| match report {
        Report::Left { rank } => *rank,
        other => panic!("{other:?}"),
    });
    assert_eq!(left, [0, 1, 2].map(|rank| Report::Left { rank }));
}

#[test]
fn a_rank_that_asks_before_rank_0_has_published_waits() {
    let secret = Secret::generate().unwrap();
    let Ringrun { place, told: _told, ended: _ended } = ringrun(&secret, 2);
    let early = {
        let secret = secret.clone();
        thread::spawn(move || join_all(vec![asks(place, 1, 2)], &secret))
    };
    thread::sleep(Duration::from_millis(100));
    let mut controls = join_all(vec![asks(place, 0, 2)], &secret);
    controls.append(&mut early.join().unwrap());
    leave(controls);
}

#[test]
fn ranks_meet_as_often_as_they_like_and_leave_in_any_order() {
    let secret = Secret::generate().unwrap();
    let Ringrun { place, told: _told, ended: _ended } = ringrun(&secret, 3);
    let meet = || join_all((0..3).map(|r| asks(place, r, 3)).collect(), &secret);
    let first = meet();
    let second = meet();
    // The first communicator goes on beside the second.
    first[2].report_failure(ringfold_bootstrap::FailureReport::Abort { reason: "enough".into() });
    common_cause(&first);
    assert!(second.iter().all(|control| control.failure_cause().is_none()));
    leave(first);
    leave(second);
    for _ in 0..3 {
        leave(meet());
    }
}

#[test]
fn ranks_that_were_incomplete_meet_at_the_next_attempt() {
    let secret = Secret::generate().unwrap();
    let Ringrun { place, told: _told, ended: _ended } = ringrun(&secret, 2);
    let options = Options { timeout: Duration::from_millis(300), ..Options::default() };
    let gave_up = Control::join(asks(place, 0, 2), secret.clone(), Vec::new(), options);
    assert_eq!(
        gave_up.unwrap_err().to_string(),
        "1 of 2 ranks joined within 300ms; missing: rank 1"
    );
    leave(join_all(vec![asks(place, 1, 2), asks(place, 0, 2)], &secret));
}

/// Runs `join` and returns its error, which comes soon.
fn error_of<T>(join: impl FnOnce() -> Result<T, JoinError>) -> String {
    let began = Instant::now();
    let Err(error) = join() else { panic!("it has joined") };
    assert!(began.elapsed() < TIME_LIMIT / 2, "{error}");
    error.to_string()
}

#[test]
fn ranks_do_not_wait_for_one_whose_program_has_ended() {
    const ENDED: &str = "cannot join: it ended (exit status 0) before it joined";
    let secret = Secret::generate().unwrap();
    let join = |place, rank| {
        let options = Options { timeout: TIME_LIMIT, ..Options::default() };
        Control::join(asks(place, rank, 3), secret.clone(), Vec::new(), options)
    };
    // Before rank 0 asks, and while it waits.
    for is_early in [true, false] {
        let ringrun = ringrun(&secret, 3);
        let end = || ringrun.end(1);
        is_early.then(end);
        let errors = thread::scope(|scope| {
            let ranks =
                [0, 2].map(|rank| scope.spawn(move || error_of(|| join(ringrun.place, rank))));
            thread::sleep(Duration::from_millis(300));
            (!is_early).then(end);
            ranks.map(|rank| rank.join().unwrap())
        });
        assert_eq!(errors, [format!("rank 1 {ENDED}"), format!("rank 1 {ENDED}")]);
    }
    // Rank 0 itself, before it has published its address.
    let ringrun = ringrun(&secret, 3);
    let error = thread::scope(|scope| {
        let rank = scope.spawn(|| error_of(|| join(ringrun.place, 2)));
        thread::sleep(Duration::from_millis(100));
        ringrun.end(0);
        rank.join().unwrap()
    });
    assert_eq!(error, format!("rank 0 {ENDED}"));
}

/// The address of every host leads to the rank's own host, where nobody listens.
#[test]
fn a_rank_in_a_network_of_its_own_says_so() {
    let place = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    for rank in [0, 1] {
        let error = error_of(|| {
            let options = Options { timeout: TIME_LIMIT, ..Options::default() };
            let secret = Secret::generate().unwrap();
            Control::join(asks(place, rank, 2), secret, Vec::new(), options)
        });
        let begin = format!("rank {rank} cannot reach ringrun at {place} (RINGFOLD_RENDEZVOUS): ");
        assert!(error.starts_with(&begin) && error.contains("in a container"), "{error}");
    }
}

/// Serves one rank as Hydra's proxy does.
fn proxy(socket: UnixStream, space: Arc<Mutex<HashMap<String, String>>>, barrier: Arc<Barrier>) {
    let mut out = socket.try_clone().unwrap();
    for line in BufReader::new(socket).lines() {
        let line = line.unwrap();
        let value = |key| pmi::field(&line, key).unwrap().to_owned();
        let answer = match value("cmd").as_str() {
            "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".into(),
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024".into(),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1_0".into(),
            "put" => {
                space.lock().unwrap().insert(value("key"), value("value"));
                "cmd=put_result rc=0 msg=success".into()
            }
            "barrier_in" => {
                barrier.wait();
                "cmd=barrier_out".into()
            }
            "get" => match space.lock().unwrap().get(&value("key")) {
                Some(v) => format!("cmd=get_result rc=0 msg=success value={v}"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".into(),
            },
            "finalize" => {
                writeln!(out, "cmd=finalize_ack").unwrap();
                return;
            }
            other => panic!("unknown command {other}"),
        };
        writeln!(out, "{answer}").unwrap();
    }
}

/// Starts a launcher that serves the sockets of `size` ranks. Returns their ends and the key-value
/// space.
fn hydra(size: usize) -> (Vec<UnixStream>, Arc<Mutex<HashMap<String, String>>>) {
    let space = Arc::new(Mutex::new(HashMap::new()));
    space.lock().unwrap().insert("PMI_process_mapping".into(), format!("(vector,(0,1,{size}))"));
    let barrier = Arc::new(Barrier::new(size));
    let sockets = (0..size)
        .map(|_| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (space, barrier) = (Arc::clone(&space), Arc::clone(&barrier));
            thread::spawn(move || proxy(theirs, space, barrier));
            ours
        })
        .collect();
    (sockets, space)
}

/// Joins the ranks of that launcher, each with its own home directory, which has no secret.
fn join_by_hydra(sockets: &[UnixStream], more: &[(&str, &str)]) -> Vec<Control> {
    let (size, here) = (sockets.len(), std::process::id());
    thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .enumerate()
            .map(|(rank, socket)| {
                scope.spawn(move || {
                    let home = std::env::temp_dir().join(format!("ringfold-{here}-{rank}"));
                    let variable = |name: &str| match name {
                        "PMI_FD" => Some(socket.as_raw_fd().to_string()),
                        "PMI_RANK" => Some(rank.to_string()),
                        "PMI_SIZE" => Some(size.to_string()),
                        "HOME" => Some(home.to_str().unwrap().into()),
                        _ => more.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).into()),
                    };
                    let mut identity = discover(&variable).unwrap();
                    let secret = identity.secret(&variable, TIME_LIMIT).unwrap();
                    assert!(!home.exists(), "a secret was made at home");
                    let options = Options { timeout: TIME_LIMIT, ..Options::default() };
                    Control::join(identity, secret, vec![], options).unwrap().0
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn a_key_value_space_carries_the_coordinator_s_address_and_the_secret() {
    let (sockets, space) = hydra(4);
    // The proxy serves one session. The second time the ranks know the coordinator's address.
    for _ in 0..2 {
        leave(join_by_hydra(&sockets, &[]));
    }
    let space = space.lock().unwrap();
    let coordinator: SocketAddr = space["ringfold-coordinator"].parse().unwrap();
    assert!(coordinator.ip().is_loopback(), "all ranks are on one host");
    assert!(Secret::parse(space["ringfold-secret"].as_bytes()).is_some());
}

#[test]
fn a_secret_that_the_user_names_is_not_published() {
    let (sockets, space) = hydra(2);
    leave(join_by_hydra(&sockets, &[("RINGFOLD_SECRET", &ringfold_harness::secret())]));
    assert!(!space.lock().unwrap().contains_key("ringfold-secret"));
}

//! A control connection times out. Both of its ends live, or one of them is gone.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command as Program;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::state::RankLink;
use super::*;
use crate::arbiter::FailureReport;
use crate::arbiter::call_log::CallLog;
use crate::arbiter::failure_cause::FailureCause;
use crate::channel::greeting::{Greeting, Purpose};
use crate::control::local_process::LocalProcess;
use crate::control::message::{ReturnTicket, Source};
use crate::control::rank_state::RankState;
use crate::control::reconnect::ReturnPath;
use crate::control::relay::{Branch, Fetcher, Relay};
use crate::control::runtime::ControlRuntime;
use crate::control::task::{Command, ControlStream, Incoming, TaskHandle, serve};
use crate::discover::secret::Secret;

const SECRET: Secret = Secret::new([1; 32]);
const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Longer than a rank may take to reconnect after its connection was closed or reset.
const LONG: Duration = Duration::from_millis(2 * limits::RETURN_MS);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bounded = async { timeout(Duration::from_secs(60), test).await };
    runtime.block_on(bounded).expect("the test hangs");
}

fn greeting() -> Greeting {
    Greeting::new(Purpose::Return, "test", 2)
}

fn request(rank: u32) -> JoinRequest {
    let (host, local) = ("h".into(), LocalProcess::own());
    JoinRequest {
        rank,
        host,
        peer_info: Ok(Vec::new()),
        relay: None,
        meeting: 0,
        process: [0; 16],
        local,
        witness: None,
    }
}

/// A job of two ranks whose coordinator runs.
struct Fixture {
    /// The control stream of rank 0.
    own: ControlStream,
    event_tx: mpsc::Sender<Event>,
    ended: mpsc::UnboundedSender<Ended>,
    return_ticket: ReturnTicket,
    /// The messages that the coordinator sends on the connection of rank 1.
    _inbox: mpsc::UnboundedReceiver<Incoming>,
}

impl Fixture {
    fn new() -> Self {
        Self::with(request(1))
    }

    /// Rank 1 has joined by this request.
    fn with(request_1: JoinRequest) -> Self {
        let (mut coordinator, own) = Coordinator::new(2, request(0), Duration::ZERO, None);
        let (outbox, inbox) = mpsc::unbounded_channel();
        coordinator.connections = 1;
        coordinator.add_rank(request_1, RankLink { connection: 1, outbox, marks: None });
        let return_port = ReturnPort::reserve(IP, greeting(), SECRET).unwrap();
        let return_ticket = return_port.return_ticket(1);
        coordinator.return_port = Some(return_port);
        let event_tx = coordinator.event_tx.clone();
        let (ended, news) = mpsc::unbounded_channel();
        tokio::spawn(async move { coordinator.watch(&mut Some(news)).await });
        Self { own, event_tx, ended, return_ticket, _inbox: inbox }
    }

    async fn cut_at_the_coordinator(&self) {
        let cut = Event::Closed { rank: 1, connection: 1, is_cut: true };
        assert!(self.event_tx.send(cut).await.is_ok());
    }

    /// The next message that rank 0 receives.
    async fn hears(&mut self) -> FromCoordinator {
        match self.own.incoming.recv().await {
            Some(Incoming::Message(bytes)) => decode(&bytes).unwrap(),
            other => panic!("rank 0 received {other:?}"),
        }
    }

    async fn failure_cause(&mut self) -> FailureCause {
        match self.hears().await {
            FromCoordinator::FailureCause(cause) => cause,
            other => panic!("rank 0 received {other:?}"),
        }
    }

    /// Both ranks take part in an exchange.
    async fn exchanges(&mut self, rank: &Cut) {
        self.own.outgoing.send(ToCoordinator::Contribute(1, vec![0])).unwrap();
        rank.member.commands().send(Command::Contribute(vec![1])).unwrap();
        match self.hears().await {
            FromCoordinator::Contributions(1, all) => assert_eq!(all, [[0], [1]]),
            other => panic!("rank 0 received {other:?}"),
        }
        assert_eq!(rank.state.failure_cause(), None);
    }
}

/// Rank 1, whose connection to rank 0 has timed out.
struct Cut {
    member: TaskHandle,
    state: Arc<RankState>,
}

impl Cut {
    fn new(return_ticket: ReturnTicket) -> Self {
        let return_path = ReturnPath {
            rank: Rank(1),
            ip: IP,
            return_ticket,
            greeting: greeting(),
            secret: SECRET,
        };
        let (incoming_tx, incoming) = mpsc::unbounded_channel();
        let (outgoing, mark) = (mpsc::unbounded_channel().0, mpsc::unbounded_channel().0);
        incoming_tx.send(Incoming::Closed(Some(ErrorKind::TimedOut.into()))).unwrap();
        let (member, orders) = TaskHandle::new(ControlRuntime::shared().unwrap());
        let (state, _wake) = RankState::new(CallLog::default()).unwrap();
        let (return_path, _tasks) = (Some(return_path), JoinSet::new());
        let stream = ControlStream { incoming, outgoing, mark, return_path, _tasks };
        tokio::spawn(serve(Rank(1), Arc::clone(&state), stream, orders, JoinSet::new(), None));
        Self { member, state }
    }

    async fn failure_cause(&self) -> Arc<FailureCause> {
        loop {
            if let Some(cause) = self.state.failure_cause() {
                return Arc::clone(cause);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[test]
fn a_connection_that_is_cut_between_living_ends_is_made_again() {
    // The coordinator notices first, the rank does, or the rank alone.
    for (at_the_coordinator, pause) in
        [(true, LONG), (true, Duration::ZERO), (false, Duration::ZERO)]
    {
        run(async {
            let mut fixture = Fixture::new();
            if at_the_coordinator {
                fixture.cut_at_the_coordinator().await;
            }
            sleep(pause).await;
            let rank = Cut::new(fixture.return_ticket);
            fixture.exchanges(&rank).await;
        });
    }
}

#[test]
fn nobody_watches_the_process_of_a_rank_that_has_come_back() {
    let mut process = Program::new("sleep").arg("1000").spawn().unwrap();
    run(async {
        let local = LocalProcess::numbered(process.id());
        let watches = || {
            let entries = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
            let infos = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
            let line = format!("Pid:\t{}", process.id());
            infos.filter(|info| info.lines().any(|it| it == line)).count()
        };
        let wait_for = async |count| {
            while watches() != count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let mut fixture = Fixture::with(JoinRequest { local, ..request(1) });
        fixture.cut_at_the_coordinator().await;
        wait_for(1).await;
        let rank = Cut::new(fixture.return_ticket);
        fixture.exchanges(&rank).await;
        wait_for(0).await;
    });
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn unauthenticated_peers_keep_no_rank_from_coming_back() {
    run(async {
        let mut fixture = Fixture::new();
        // The coordinator's task has to listen first.
        sleep(LONG / 2).await;
        let mut unauthenticated = Vec::new();
        for _ in 0..limits::HANDSHAKES_MAX {
            unauthenticated
                .push(TcpStream::connect((IP, fixture.return_ticket.port)).await.unwrap());
        }
        let rank = Cut::new(fixture.return_ticket);
        fixture.exchanges(&rank).await;
        drop(unauthenticated);
    });
}

#[test]
fn a_rank_that_is_cut_off_and_does_not_come_back_is_silent() {
    run(async {
        let mut fixture = Fixture::new();
        fixture.cut_at_the_coordinator().await;
        let cause = fixture.failure_cause().await;
        assert_eq!(cause.culprits(), [Rank(1)]);
        assert!(matches!(cause, FailureCause::Silent { .. }), "{cause}");
    });
}

#[test]
fn a_rank_that_is_cut_off_explains_a_broken_link_to_it() {
    run(async {
        let mut fixture = Fixture::new();
        fixture.cut_at_the_coordinator().await;
        let report = FailureReport::Link { peer: 1, cause: "no answer".into() };
        fixture.own.outgoing.send(ToCoordinator::Report(report)).unwrap();
        let cause = fixture.failure_cause().await;
        assert_eq!(cause.culprits(), [Rank(1)]);
        assert!(matches!(cause, FailureCause::Silent { .. }), "{cause}");
    });
}

#[test]
fn a_rank_that_is_cut_off_and_finds_nobody_says_that_rank_0_is_silent() {
    run(async {
        // Nobody listens on this return port.
        let return_port = ReturnPort::reserve(IP, greeting(), SECRET).unwrap();
        let rank = Cut::new(return_port.return_ticket(1));
        let cause = rank.failure_cause().await;
        assert_eq!(cause.culprits(), [Rank(0)]);
        assert!(matches!(&*cause, FailureCause::Silent { .. }), "{cause}");
    });
}

/// Neither the time to return nor the grace of a broken link passes.
#[test]
fn a_death_that_a_rank_or_the_launcher_reports_is_the_cause_at_once() {
    let takes = |report_first: bool, by_launcher: bool| {
        let mut took = Duration::MAX;
        run(async {
            let mut fixture = Fixture::new();
            let begun = Instant::now();
            for is_report in [report_first, !report_first] {
                if !is_report {
                    let closed = Event::Closed { rank: 1, connection: 1, is_cut: false };
                    assert!(fixture.event_tx.send(closed).await.is_ok());
                } else if by_launcher {
                    fixture.ended.send(Ended { rank: 1, how: "killed".into() }).unwrap();
                } else {
                    let report = ToCoordinator::Report(FailureReport::Died { peer: 1 });
                    assert!(fixture.event_tx.send(Event::Message(0, report)).await.is_ok());
                }
            }
            let cause = fixture.failure_cause().await;
            assert!(matches!(&cause, FailureCause::Died { who } if who.rank == Rank(1)), "{cause}");
            took = begun.elapsed();
        });
        took
    };
    for (report_first, by_launcher) in [(true, false), (false, false), (true, true), (false, true)]
    {
        // The machine may be busy.
        let limit = Duration::from_millis(limits::RETURN_MS / 2);
        let is_quick = |_| takes(report_first, by_launcher) < limit;
        assert!((0..5).any(is_quick), "every try takes as long as a rank may take to return");
    }
}

/// A parent forwards garbage, or too few bytes of ranks. Its child asks rank 0.
#[test]
fn a_message_of_a_parent_that_is_no_result_costs_a_question_to_rank_0() {
    let result =
        |number, ranks| encode(&FromCoordinator::Contributions(number, vec![vec![7]; ranks]));
    for forwarded in [vec![], vec![0xFF; 100], result(1, 2), result(2, 3), result(1, 4)] {
        run(async {
            let greeting = Greeting::new(Purpose::Relay, "test", 3);
            let listener = crate::channel::socket::listen(&[IP], &[0]).unwrap();
            let source = Source { rank: 1, ip: None, port: listener.local_addr().unwrap().port() };
            let relay = Relay::serve(listener, greeting.clone(), SECRET, 2..3);
            relay.give(1, forwarded.into());
            let (rank, size, coordinator, secret) = (Rank(2), 3, IP, SECRET);
            let fetcher = Fetcher { rank, size, coordinator, greeting, secret };
            let (incoming_tx, incoming) = mpsc::unbounded_channel();
            let (outgoing, mut sent) = mpsc::unbounded_channel();
            let (mark, _tasks) = (mpsc::unbounded_channel().0, JoinSet::new());
            let stream = ControlStream { incoming, outgoing, mark, return_path: None, _tasks };
            let (member, orders) = TaskHandle::new(ControlRuntime::shared().unwrap());
            let (state, _wake) = RankState::new(CallLog::default()).unwrap();
            let branch = Some(Branch { fetcher, relay: None });
            tokio::spawn(serve(rank, state, stream, orders, JoinSet::new(), branch));
            let limit = Duration::from_secs(50);
            let exchanged = tokio::task::spawn_blocking(move || member.exchange(vec![7], limit));
            assert_eq!(sent.recv().await, Some(ToCoordinator::Contribute(1, vec![7])));
            let tell = |message: Vec<u8>| incoming_tx.send(Incoming::Message(message.into()));
            tell(encode(&FromCoordinator::Fetch(1, source))).unwrap();
            assert_eq!(sent.recv().await, Some(ToCoordinator::NotFetched(1)));
            tell(result(1, 3)).unwrap();
            assert_eq!(exchanged.await.unwrap().unwrap(), [[7], [7], [7]]);
        });
    }
}

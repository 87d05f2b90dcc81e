//! A control connection times out. Both of its ends live, or one of them is gone.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;

use super::state::Seat;
use super::*;
use crate::channel::{Greeting, Purpose};
use crate::judge::Complaint;
use crate::member::{Command, Heard, Line, Member, tend};
use crate::message::Invitation;
use crate::reconnect::WayBack;
use crate::seat;
use crate::secret::Secret;
use crate::verdict::Verdict;

const SECRET: Secret = Secret::new([1; 32]);
const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Longer than a rank has to come back whose connection was closed or reset.
const LONG: Duration = Duration::from_millis(2 * limits::RETURN_MS);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bounded = async { timeout(Duration::from_secs(60), test).await };
    runtime.block_on(bounded).expect("the test hangs");
}

fn greeting() -> Greeting {
    Greeting::new(Purpose::Return, "test", 2)
}

fn joining(rank: u32) -> Joining {
    Joining { rank, host: "h".into(), card: Vec::new(), relay: None, process: [0; 16] }
}

/// A job of two ranks whose coordinator runs.
struct Lab {
    /// The line of rank 0.
    own: Line,
    tell: mpsc::Sender<Event>,
    invitation: Invitation,
    /// The messages that the coordinator sends on the connection of rank 1.
    _inbox: mpsc::UnboundedReceiver<Heard>,
}

impl Lab {
    fn new() -> Self {
        let (mut hub, own) = Hub::new(2, joining(0), Duration::ZERO, None);
        let (outbox, inbox) = mpsc::unbounded_channel();
        hub.connections = 1;
        hub.seat(joining(1), Seat { connection: 1, outbox, marks: None });
        let entry = Entry::reserve(IP, greeting(), SECRET).unwrap();
        let invitation = entry.invitation(1);
        hub.entry = Some(entry);
        let tell = hub.tell.clone();
        tokio::spawn(async move { hub.watch().await });
        Self { own, tell, invitation, _inbox: inbox }
    }

    async fn cut_at_the_hub(&self) {
        let cut = Event::Closed { rank: 1, connection: 1, is_cut: true };
        assert!(self.tell.send(cut).await.is_ok());
    }

    /// The next message that rank 0 hears.
    async fn hears(&mut self) -> FromHub {
        match self.own.heard.recv().await {
            Some(Heard::Message(bytes)) => decode(&bytes).unwrap(),
            other => panic!("rank 0 hears {other:?}"),
        }
    }

    async fn verdict(&mut self) -> Verdict {
        match self.hears().await {
            FromHub::Verdict(verdict) => verdict,
            other => panic!("rank 0 hears {other:?}"),
        }
    }

    /// Both ranks take part in an exchange.
    async fn exchanges(&mut self, rank: &Cut) {
        self.own.say.send(ToHub::Offer(1, vec![0])).unwrap();
        rank.member.commands().send(Command::Offer(vec![1])).unwrap();
        match self.hears().await {
            FromHub::Offers(1, all) => assert_eq!(all, [[0], [1]]),
            other => panic!("rank 0 hears {other:?}"),
        }
        assert_eq!(rank.seat.verdict(), None);
    }
}

/// Rank 1, whose connection to rank 0 has timed out.
struct Cut {
    member: Member,
    seat: Arc<seat::Seat>,
}

impl Cut {
    fn new(invitation: Invitation) -> Self {
        let way_back =
            WayBack { rank: Rank(1), ip: IP, invitation, greeting: greeting(), secret: SECRET };
        let (hear, heard) = mpsc::unbounded_channel();
        let (say, mark) = (mpsc::unbounded_channel().0, mpsc::unbounded_channel().0);
        hear.send(Heard::Closed(Some(ErrorKind::TimedOut.into()))).unwrap();
        let (member, orders) = Member::new();
        let seat = seat::Seat::new().unwrap();
        let line = Line { heard, say, mark, way_back: Some(way_back) };
        tokio::spawn(tend(Rank(1), Arc::clone(&seat), line, orders));
        Self { member, seat }
    }

    async fn verdict(&self) -> Arc<Verdict> {
        loop {
            if let Some(verdict) = self.seat.verdict() {
                return Arc::clone(verdict);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[test]
fn a_connection_that_is_cut_between_living_ends_is_made_again() {
    // The coordinator notices first, the rank does, or the rank alone.
    for (at_the_hub, pause) in [(true, LONG), (true, Duration::ZERO), (false, Duration::ZERO)] {
        run(async {
            let mut lab = Lab::new();
            if at_the_hub {
                lab.cut_at_the_hub().await;
            }
            sleep(pause).await;
            let rank = Cut::new(lab.invitation);
            lab.exchanges(&rank).await;
        });
    }
}

#[test]
fn strangers_at_the_port_keep_no_rank_from_coming_back() {
    run(async {
        let mut lab = Lab::new();
        // The coordinator's task has to listen first.
        sleep(LONG / 2).await;
        let mut strangers = Vec::new();
        for _ in 0..limits::HANDSHAKES_MAX {
            strangers.push(TcpStream::connect((IP, lab.invitation.port)).await.unwrap());
        }
        let rank = Cut::new(lab.invitation);
        lab.exchanges(&rank).await;
        drop(strangers);
    });
}

#[test]
fn a_rank_that_is_cut_off_and_does_not_come_back_is_silent() {
    run(async {
        let mut lab = Lab::new();
        lab.cut_at_the_hub().await;
        let verdict = lab.verdict().await;
        assert_eq!(verdict.culprits(), [Rank(1)]);
        assert!(matches!(verdict, Verdict::Silent { .. }), "{verdict}");
    });
}

#[test]
fn a_rank_that_is_cut_off_explains_a_broken_link_to_it() {
    run(async {
        let mut lab = Lab::new();
        lab.cut_at_the_hub().await;
        let complaint = Complaint::Link { peer: 1, cause: "no answer".into() };
        lab.own.say.send(ToHub::Complain(complaint)).unwrap();
        let verdict = lab.verdict().await;
        assert_eq!(verdict.culprits(), [Rank(1)]);
        assert!(matches!(verdict, Verdict::Silent { .. }), "{verdict}");
    });
}

#[test]
fn a_rank_that_is_cut_off_and_finds_nobody_says_that_rank_0_is_silent() {
    run(async {
        // Nobody listens at the port of this entry.
        let entry = Entry::reserve(IP, greeting(), SECRET).unwrap();
        let rank = Cut::new(entry.invitation(1));
        let verdict = rank.verdict().await;
        assert_eq!(verdict.culprits(), [Rank(0)]);
        assert!(matches!(&*verdict, Verdict::Silent { .. }), "{verdict}");
    });
}

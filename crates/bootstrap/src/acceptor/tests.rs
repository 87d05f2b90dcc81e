//! Checks, with real sockets on loopback, which connections a full acceptor drops.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::channel::{Purpose, knock};

const SECRET: Secret = Secret::new([1; 32]);

struct Open {
    at: SocketAddr,
    members: mpsc::Receiver<Member>,
    turned_away: Arc<TurnedAway>,
}

fn greeting() -> Greeting {
    Greeting::new(Purpose::Control, "test", 2)
}

fn open() -> Open {
    let listener = address::listen(Some([127, 0, 0, 1].into()), &[0]).unwrap();
    let at = listener.local_addr().unwrap();
    let (admitted, members) = mpsc::channel(1);
    let turned_away = Arc::new(TurnedAway::default());
    let noted = Arc::clone(&turned_away);
    tokio::spawn(accept(listener, greeting(), SECRET, noted, admitted));
    Open { at, members, turned_away }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bounded = async { timeout(Duration::from_secs(60), test).await };
    runtime.block_on(bounded).expect("the test hangs");
}

/// A client that has proven that it knows the secret, and not yet sent its first message.
async fn opened(at: SocketAddr) -> (TcpStream, Arc<snow::StatelessTransportState>) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let session = knock(&mut stream, &greeting(), &SECRET).await.unwrap();
    (stream, Arc::new(session))
}

async fn mute(at: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(TcpStream::connect(at).await.unwrap());
    }
    streams
}

#[test]
fn mute_connections_give_way_before_one_that_knows_the_secret() {
    run(async {
        let mut open = open();
        let (stream, session) = opened(open.at).await;
        let strangers = mute(open.at, 2 * limits::HANDSHAKES_MAX).await;
        // Until the first wave of strangers has been dropped, so that the second is served.
        while (open.turned_away.count() as usize) < limits::HANDSHAKES_MAX {
            sleep(Duration::from_millis(10)).await;
        }
        let mut writer = Writer::new(stream, session);
        writer.send(b"hello").await.unwrap();
        assert_eq!(open.members.recv().await.unwrap().first, b"hello");
        drop(strangers);
    });
}

#[test]
fn proven_connections_wait_for_as_long_as_it_takes() {
    run(async {
        let mut open = open();
        // The channel holds one, and the acceptor the other.
        let mut clients = Vec::new();
        for i in 0..2_u8 {
            let (stream, session) = opened(open.at).await;
            let mut writer = Writer::new(stream, session);
            writer.send(&[i]).await.unwrap();
            clients.push(writer);
            sleep(Duration::from_millis(50)).await;
        }
        let strangers = mute(open.at, limits::HANDSHAKES_MAX + 50).await;
        sleep(3 * MUTE).await;
        for i in 0..2_u8 {
            assert_eq!(open.members.recv().await.unwrap().first, [i]);
        }
        drop(strangers);
    });
}

#[test]
fn opened_connections_give_way_while_mute_ones_wait_too() {
    run(async {
        let mut open = open();
        let mut opened_ones = Vec::new();
        for _ in 0..limits::HANDSHAKES_MAX - 1 {
            opened_ones.push(opened(open.at).await);
        }
        let full_since = Instant::now();
        // They are served one at a time, unless the others give way.
        let strangers = mute(open.at, 40).await;
        let (stream, session) = opened(open.at).await;
        Writer::new(stream, session).send(b"honest").await.unwrap();
        assert_eq!(open.members.recv().await.unwrap().first, b"honest");
        let waited = full_since.elapsed();
        assert!(waited < Duration::from_millis(limits::HANDSHAKE_MS - 1_000), "{waited:?}");
        drop(strangers);
    });
}

#[test]
fn a_port_for_few_members_has_fewer_places() {
    run(async {
        let listener = address::listen(Some([127, 0, 0, 1].into()), &[0]).unwrap();
        let at = listener.local_addr().unwrap();
        let (admitted, _members) = mpsc::channel(1);
        let turned_away = Arc::new(TurnedAway::default());
        let noted = Arc::clone(&turned_away);
        tokio::spawn(accept_few(listener, greeting(), SECRET, noted, admitted));
        let mut opened_ones = Vec::new();
        for _ in 0..=limits::RELAY_HANDSHAKES_MAX {
            opened_ones.push(opened(at).await);
        }
        assert!(turned_away.count() > 0, "the last one has the place of another");
    });
}

#[test]
fn opened_connections_give_way_when_there_are_no_others() {
    run(async {
        let mut open = open();
        let mut replays = Vec::new();
        for _ in 0..limits::HANDSHAKES_MAX {
            replays.push(opened(open.at).await);
        }
        let (stream, session) = opened(open.at).await;
        Writer::new(stream, session).send(b"last").await.unwrap();
        assert_eq!(open.members.recv().await.unwrap().first, b"last");
        let (first, _) = &mut replays[0];
        let ended = first.read_u8().await.unwrap_err().kind();
        assert!(matches!(ended, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset));
        replays[limits::HANDSHAKES_MAX - 1].0.write_all(b"x").await.unwrap();
    });
}

//! Peers that are no ranks: foreign services on ports where ranks look for rank 0, and a proxy
//! between ranks and rank 0.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The length of the greeting that a rank sends first.
pub(crate) const GREETING_BYTES: usize = 40;
/// The place of the digest of the sender's sources in its greeting.
const BUILD: Range<usize> = 32..40;
/// The length of the first handshake message.
pub(crate) const FIRST_BYTES: usize = 48;
/// The length of the random number that a listener sends after its greeting.
pub(crate) const CHALLENGE_BYTES: usize = 16;

/// A service on a port of the loopback address. Its threads end with the test's process.
pub(crate) struct Foreign {
    pub(crate) port: u16,
    count: Arc<AtomicUsize>,
}

impl Foreign {
    pub(crate) fn new(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = Arc::new(AtomicUsize::new(0));
        let (counted, serve) = (Arc::clone(&count), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::Relaxed);
                let (stream, serve) = (stream.unwrap(), Arc::clone(&serve));
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                thread::spawn(move || serve(stream));
            }
        });
        Self { port, count }
    }

    pub(crate) fn connections(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// Sends all bytes back.
pub(crate) fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 1024];
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..n]).is_err() {
            return;
        }
    }
}

/// Answers any bytes as a bad request.
pub(crate) fn http(mut stream: TcpStream) {
    let mut bytes = [0; GREETING_BYTES];
    if stream.read_exact(&mut bytes).is_ok() {
        let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(answer).unwrap_or_default();
    }
}

/// Answers a rank's greeting with the same one, altered by `alter`, and its handshake with `word`:
/// 1 is a welcome, 2 says that the secret is wrong.
pub(crate) fn answer_as(mut stream: TcpStream, alter: impl Fn(&mut [u8]), word: u8) {
    let mut answer = [0; GREETING_BYTES + CHALLENGE_BYTES];
    let greeting = &mut answer[..GREETING_BYTES];
    if stream.read_exact(greeting).is_err() {
        return;
    }
    greeting[11] = 1;
    alter(greeting);
    let is_read = stream.write_all(&answer).is_ok();
    if is_read && stream.read_exact(&mut [0; FIRST_BYTES]).is_ok() {
        stream.write_all(&[word]).unwrap_or_default();
    }
}

/// A proxy to a port of the loopback address. Its first client loses the connection in place of the
/// first encrypted message, and the server behind it does not notice.
pub(crate) fn half_broken(to: u16) -> Foreign {
    const HANDSHAKE_BYTES: usize = GREETING_BYTES + CHALLENGE_BYTES + 1 + FIRST_BYTES;
    let is_first = AtomicBool::new(true);
    Foreign::new(move |mut client| {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)) else { return };
        let (mut from, mut into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut into));
        if is_first.swap(false, Ordering::Relaxed) {
            let mut answer = [0; HANDSHAKE_BYTES];
            server.read_exact(&mut answer).unwrap();
            client.write_all(&answer).unwrap();
            server.read_exact(&mut [0]).unwrap();
            client.shutdown(Shutdown::Both).unwrap();
            std::mem::forget(server);
        } else {
            std::io::copy(&mut server, &mut client).unwrap_or_default();
        }
    })
}

/// A proxy to a port of the loopback address. Each side takes the other for the build `build`.
pub(crate) fn of_other_build(to: u16, build: u64) -> Foreign {
    Foreign::new(move |mut client| {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)) else { return };
        let pass = |from: &mut TcpStream, into: &mut TcpStream| {
            let mut greeting = [0; GREETING_BYTES];
            from.read_exact(&mut greeting)?;
            greeting[BUILD].copy_from_slice(&build.to_le_bytes());
            into.write_all(&greeting)
        };
        let passed = pass(&mut client, &mut server).and_then(|()| pass(&mut server, &mut client));
        if passed.is_ok() {
            let (mut from, mut into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let up = thread::spawn(move || {
                std::io::copy(&mut from, &mut into).unwrap_or_default();
                into.shutdown(Shutdown::Write).unwrap_or_default();
            });
            std::io::copy(&mut server, &mut client).unwrap_or_default();
            client.shutdown(Shutdown::Write).unwrap_or_default();
            up.join().unwrap();
        }
    })
}

/// A proxy to a port of the loopback address.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    count: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
    /// The bytes that had passed before the latest connection.
    earlier: Arc<AtomicUsize>,
    clients: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Makes a proxy. `cuts` says after how many client bytes it cuts each of the first
    /// connections. It does not cut later ones.
    pub(crate) fn new(to: u16, cuts: Vec<Option<usize>>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = Arc::new(AtomicUsize::new(0));
        let bytes = Arc::new(AtomicUsize::new(0));
        let earlier = Arc::new(AtomicUsize::new(0));
        let clients = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (counted, passed) = (Arc::clone(&count), Arc::clone(&bytes));
        let (open, before) = (Arc::clone(&clients), Arc::clone(&earlier));
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                open.lock().unwrap().push(client.try_clone().unwrap());
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                before.store(passed.load(Ordering::Relaxed), Ordering::Relaxed);
                let cut = cuts.get(counted.fetch_add(1, Ordering::Relaxed)).copied().flatten();
                let (back, forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (up, down) = (Arc::clone(&passed), Arc::clone(&passed));
                thread::spawn(move || pump(client, server, cut.unwrap_or(usize::MAX), &up));
                thread::spawn(move || pump(back, forth, usize::MAX, &down));
            }
        });
        Self { port, count, bytes, earlier, clients }
    }

    /// Ends all open connections.
    pub(crate) fn cut(&self) {
        for client in self.clients.lock().unwrap().drain(..) {
            client.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }

    /// Waits until the rank of the latest connection has joined: then it and the coordinator stop
    /// sending.
    pub(crate) fn wait_until_joined(&self) {
        let (mut passed, joined) = (0, self.earlier.load(Ordering::Relaxed) + 200);
        while passed < joined || passed != self.bytes() {
            passed = self.bytes();
            thread::sleep(Duration::from_millis(300));
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The number of bytes that passed, both ways.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, mut rest: usize, passed: &AtomicUsize) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let n_passed = n.min(rest);
        passed.fetch_add(n_passed, Ordering::Relaxed);
        if to.write_all(&bytes[..n_passed]).is_err() {
            break;
        }
        rest -= n_passed;
        if rest == 0 {
            break;
        }
    }
    to.shutdown(Shutdown::Both).unwrap_or_default();
    from.shutdown(Shutdown::Both).unwrap_or_default();
}

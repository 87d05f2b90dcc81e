//! A server of one page over HTTP, for programs that collect metrics. Clients are not trusted.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfold_types::limits::{SCRAPE_BYTES_MAX, SCRAPE_MS, SCRAPES_MAX};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// The age up to which a page is served again, so that many requests cost no more than some.
const FRESH: Duration = Duration::from_millis(100);

/// The pause after the system has refused a connection, as for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The page, and when it was made.
type Latest = Arc<Mutex<Option<(Instant, Arc<str>)>>>;

/// Serves the page that `make` returns, as `/` and `/metrics`, on the calling thread. Never returns
/// unless the system lacks descriptors at the beginning, with that error.
///
/// At most `limits::SCRAPES_MAX` clients are served at once, each for at most `limits::SCRAPE_MS`.
/// Further ones wait in the kernel.
pub fn serve(
    listener: TcpListener,
    content_type: &'static str,
    make: impl Fn() -> String + Send + Sync + 'static,
) -> io::Error {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return error,
    };
    runtime.block_on(async {
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| tokio::net::TcpListener::from_std(listener));
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => return error,
        };
        let (places, make, latest) =
            (Arc::new(Semaphore::new(SCRAPES_MAX)), Arc::new(make), Latest::default());
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { continue };
            let Ok((stream, _)) = listener.accept().await else {
                sleep(PAUSE).await;
                continue;
            };
            let (make, latest) = (Arc::clone(&make), Arc::clone(&latest));
            tokio::spawn(async move {
                let page = || fresh(&latest, &*make);
                let answered = answer(stream, content_type, page);
                // A client that is slow, or has left, gets nothing more.
                drop(timeout(Duration::from_millis(SCRAPE_MS), answered).await);
                drop(place);
            });
        }
    })
}

/// The latest page, or a new one if it is too old.
fn fresh(latest: &Latest, make: &dyn Fn() -> String) -> Arc<str> {
    let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    match &*latest {
        Some((at, page)) if at.elapsed() < FRESH => Arc::clone(page),
        _ => {
            let page = Arc::from(make());
            *latest = Some((Instant::now(), Arc::clone(&page)));
            page
        }
    }
}

/// Answers one request, and closes the connection.
async fn answer(
    mut stream: TcpStream,
    content_type: &str,
    page: impl Fn() -> Arc<str>,
) -> io::Result<()> {
    let (status, body) = match request(&mut stream).await? {
        Request::Page => ("200 OK", page()),
        Request::Other => ("404 Not Found", "the page is /metrics\n".into()),
        Request::Method => ("405 Method Not Allowed\r\nAllow: GET", "use GET\n".into()),
        Request::Long => ("431 Request Header Fields Too Large", "too long\n".into()),
        Request::Ended => return Ok(()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        if status == "200 OK" { content_type } else { "text/plain; charset=utf-8" },
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// A request, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// For the page.
    Page,
    /// For another page.
    Other,
    /// By another method than `GET`.
    Method,
    /// Longer than `limits::SCRAPE_BYTES_MAX`.
    Long,
    /// The client has left.
    Ended,
}

/// Reads a request up to the end of its headers.
async fn request(stream: &mut TcpStream) -> io::Result<Request> {
    let mut bytes = [0; SCRAPE_BYTES_MAX];
    let mut filled = 0;
    loop {
        let more = stream.read(&mut bytes[filled..]).await?;
        if more == 0 {
            return Ok(if filled == bytes.len() { Request::Long } else { Request::Ended });
        }
        filled += more;
        if bytes[..filled].windows(4).any(|it| it == b"\r\n\r\n") {
            return Ok(of_line(bytes.split(|byte| *byte == b'\r').next().unwrap_or_default()));
        }
    }
}

/// The request of this first line.
fn of_line(line: &[u8]) -> Request {
    let mut words = line.split(|byte| *byte == b' ');
    if words.next() != Some(b"GET") {
        return Request::Method;
    }
    let path = words.next().and_then(|path| path.split(|byte| *byte == b'?').next());
    match path {
        Some(b"/" | b"/metrics") => Request::Page,
        _ => Request::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, SocketAddr, TcpStream};
    use std::thread;

    use super::*;

    fn started() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(|| serve(listener, "text/x", || "the page".to_owned()));
        at
    }

    fn ask(at: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap_or_default();
        text
    }

    #[test]
    fn only_the_page_is_served() {
        let at = started();
        for path in ["/", "/metrics", "/metrics?x=1"] {
            let text = ask(at, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
            assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/x\r\n"), "{text}");
            assert!(text.contains("Content-Length: 8\r\n") && text.ends_with("\r\n\r\nthe page"));
        }
        assert!(ask(at, b"GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(at, b"POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(ask(at, b"\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert_eq!(ask(at, b"GET / HTTP/1.1\r\n"), "", "a request without an end");
        let long = [&b"GET / HTTP/1.1\r\n"[..], &[b'x'; SCRAPE_BYTES_MAX]].concat();
        assert!(!ask(at, &long[..SCRAPE_BYTES_MAX]).contains("the page"));
    }

    #[test]
    fn clients_that_say_nothing_hold_up_no_other_for_long() {
        let at = started();
        let silent: Vec<_> = (0..SCRAPES_MAX - 1).map(|_| TcpStream::connect(at)).collect();
        assert!(ask(at, b"GET / HTTP/1.1\r\n\r\n").ends_with("the page"), "one place is free");
        let more: Vec<_> = (0..SCRAPES_MAX).map(|_| TcpStream::connect(at)).collect();
        assert!(ask(at, b"GET / HTTP/1.1\r\n\r\n").ends_with("the page"), "after some seconds");
        drop((silent, more));
    }
}

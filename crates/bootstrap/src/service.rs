//! A service for several jobs: one request and one answer for each connection, encrypted and
//! authenticated by the site's secret.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ringfold_types::limits;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::channel::acceptor::{Authenticated, accept};
use crate::channel::blocking::{blocking, no_thread};
use crate::channel::connect::{Channel, attempt};
use crate::channel::frames::{decode, encode};
use crate::channel::greeting::{Greeting, HandshakeError, Purpose};
use crate::channel::socket;
use crate::discover::secret::Secret;

/// Requests that are answered at once. Further ones wait.
const ANSWERS_MAX: usize = 64;

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The server does not answer.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server holds another secret.
    #[error("it holds another secret")]
    WrongSecret,
    /// The process at that address is no such server, or one of another version.
    #[error("{0}")]
    Other(String),
}

/// The facts on which both ends of a request must agree.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The secret.
    pub secret: Secret,
    /// The digests of the sources that define the requests, the answers, and all that follows.
    pub sources: &'static [&'static str],
}

impl Shared {
    fn greeting(&self) -> Greeting {
        Greeting::new(Purpose::Aggregator, "aggregator", 0).with_sources(&self.sources.concat())
    }
}

/// Sends a request to the server at `at` (`host:port`). Returns the answer and the address that
/// gave it. Blocks for at most `timeout`. May be called by a task of a runtime.
///
/// # Errors
/// The server does not answer in time, holds another secret, or answers something else.
pub fn request<Q: Serialize + Sync, A: DeserializeOwned + Send>(
    at: &str,
    shared: &Shared,
    request: &Q,
    timeout: Duration,
) -> Result<(A, SocketAddr), RequestError> {
    // A runtime within a task of another one panics, and a thread of its own has none.
    let asking = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let late = |_| Err(HandshakeError::Io(io::ErrorKind::TimedOut.into()));
        let answer = runtime.block_on(async {
            tokio::time::timeout(timeout, exchange(at, shared, &encode(request)))
                .await
                .unwrap_or_else(late)
        });
        runtime.shutdown_background();
        answer.map_err(|error| match error {
            HandshakeError::Io(source) => RequestError::Io(source),
            HandshakeError::WrongSecret => RequestError::WrongSecret,
            other => RequestError::Other(other.to_string()),
        })
    };
    let died = || Err(io::Error::other("the asking thread panicked").into());
    thread::scope(|scope| match thread::Builder::new().spawn_scoped(scope, asking) {
        Ok(thread) => thread.join().unwrap_or_else(|_| died()),
        Err(error) => Err(no_thread(error).into()),
    })
}

async fn exchange<A: DeserializeOwned>(
    at: &str,
    shared: &Shared,
    request: &[u8],
) -> Result<(A, SocketAddr), HandshakeError> {
    let mut last = HandshakeError::Io(io::ErrorKind::NotFound.into());
    let name = at.to_owned();
    let found = blocking(move || name.to_socket_addrs().map(Vec::from_iter)).await??;
    for place in found {
        let mut channel = match attempt(place, &shared.greeting(), &shared.secret).await {
            Ok(channel) => channel,
            Err(error) => {
                last = error;
                continue;
            }
        };
        channel.writer.send(request).await?;
        let answer = channel.reader.next().await?.as_deref().and_then(decode);
        let answer = answer.ok_or(HandshakeError::NotRingfold)?;
        return Ok((answer, channel.peer));
    }
    Err(last)
}

/// Listens for requests. Must be called within a runtime.
///
/// # Errors
/// The port is taken, or the address is not this host's.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    socket::listen(&[at.ip()], &[at.port()])
}

/// Answers requests until the task is dropped, each in a task of its own, and at most `ANSWERS_MAX`
/// at once. `answer` gets a request, or `None` for one that it cannot read, and the address of this
/// host at which it came.
pub async fn serve<Q: DeserializeOwned, A, F>(
    listener: TcpListener,
    shared: Shared,
    answer: impl Fn(Option<Q>, IpAddr) -> F,
) where
    A: Serialize + Send,
    F: Future<Output = A> + Send + 'static,
{
    let (admitted, mut peers) = mpsc::channel(1);
    let (slots, shared) = (limits::HANDSHAKES_MAX, (shared.greeting(), shared.secret));
    let accepting = accept(slots, listener, shared, Arc::default(), admitted);
    let answering = async {
        let mut answers = JoinSet::new();
        while let Some(peer) = peers.recv().await {
            while answers.try_join_next().is_some() {}
            if answers.len() >= ANSWERS_MAX {
                answers.join_next().await;
            }
            let Authenticated { channel: Channel { mut writer, local, .. }, first, .. } = peer;
            let answer = answer(decode(&first), local.ip());
            let limit = Duration::from_millis(limits::HANDSHAKE_MS);
            answers.spawn(async move {
                let bytes = encode(&answer.await);
                tokio::time::timeout(limit, async {
                    writer.send(&bytes).await?;
                    writer.close().await
                })
                .await
            });
        }
    };
    tokio::join!(accepting, answering);
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;
    use tokio::sync::Notify;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn shared(sources: &'static [&'static str]) -> Shared {
        Shared { secret: Secret::new([9; 32]), sources }
    }

    /// Serves on a runtime of its own, and returns the address.
    fn serving<F: Future<Output = u32> + Send + 'static>(
        runtime: &tokio::runtime::Runtime,
        answer: impl Fn(Option<u32>, IpAddr) -> F + Send + Sync + 'static,
    ) -> String {
        let listener = runtime.block_on(async { listen("127.0.0.1:0".parse().unwrap()) }).unwrap();
        let at = listener.local_addr().unwrap().to_string();
        runtime.spawn(serve(listener, shared(&["one"]), answer));
        at
    }

    #[test]
    fn a_slow_answer_does_not_hold_up_another() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (asked, is_asked) = std::sync::mpsc::channel();
        let free = Arc::new(Notify::new());
        let hold = Arc::clone(&free);
        let at = serving(&runtime, move |request, _| {
            let (asked, free) = (asked.clone(), Arc::clone(&hold));
            async move {
                if request == Some(1) {
                    asked.send(()).unwrap();
                    free.notified().await;
                }
                request.map_or(0, |it| it + 10)
            }
        });
        let ask = |number: u32| request::<_, u32>(&at, &shared(&["one"]), &number, PATIENCE);
        thread::scope(|scope| {
            let slow = scope.spawn(|| ask(1));
            is_asked.recv_timeout(PATIENCE).unwrap();
            assert_eq!(ask(2).unwrap().0, 12);
            free.notify_one();
            assert_eq!(slow.join().unwrap().unwrap().0, 11);
        });
    }

    #[test]
    fn a_service_of_other_sources_is_refused() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let at = serving(&runtime, |_, _| async { 1 });
        let error = request::<_, u32>(&at, &shared(&["one", "two"]), &1_u32, PATIENCE).unwrap_err();
        assert!(error.to_string().contains("build"), "{error}");
        let secret = Secret::new([8; 32]);
        let other = Shared { secret, sources: &["one"] };
        let error = request::<_, u32>(&at, &other, &1_u32, PATIENCE).unwrap_err();
        assert!(matches!(error, RequestError::WrongSecret), "{error}");
    }
}

//! Calls that block, on threads of their own. The runtime's own threads panic if the system starts
//! none.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::thread;

use tokio::sync::oneshot;

/// Runs `part` on a thread of its own, while other communicators share the control thread.
///
/// # Errors
/// The system starts no thread, or `part` panicked.
pub(crate) async fn blocking<T: Send + 'static>(
    part: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    let name = thread::Builder::new().name("ringfold-wait".into());
    // The receiver may be gone when the part ends.
    name.spawn(move || drop(tell.send(part()))).map_err(no_thread)?;
    told.await.map_err(io::Error::other)
}

/// Says that a thread could not be started, and what to do.
pub(crate) fn no_thread(error: io::Error) -> io::Error {
    let text = "cannot start a thread (raise the limit of processes and threads: ulimit -u)";
    io::Error::new(error.kind(), format!("{text}: {error}"))
}

/// The addresses of a host, which may be an address itself.
///
/// # Errors
/// The name cannot be resolved, or the system starts no thread.
pub(crate) async fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    blocking(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect)).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn parts_return_and_panics_are_errors() {
        assert_eq!(blocking(|| 7).await.unwrap(), 7);
        assert!(blocking(|| panic!("as intended")).await.is_err());
        assert_eq!(lookup("::1", 5).await.unwrap(), ["[::1]:5".parse().unwrap()]);
        assert!(lookup("localhost", 5).await.unwrap().iter().all(|it| it.port() == 5));
    }
}

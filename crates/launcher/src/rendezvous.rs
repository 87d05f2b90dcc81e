//! The rendezvous of a job: a port of this process, and the address at which all ranks reach it.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};

use ringfold_bootstrap::interface::{ChooseError, Family, choose, interfaces};
use ringfold_bootstrap::rendezvous::{Ended, Report, serve};
use ringfold_bootstrap::{Secret, loopback, source_toward};
use ringfold_types::Rank;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::descriptors;
use crate::message::SECRET_BYTES;

/// A port for route look-ups. Nothing is ever sent to it.
const DISCARD: u16 = 9;

/// An open port, and its address for the ranks.
#[derive(Debug)]
pub(crate) struct RendezvousPort {
    pub(crate) listener: TcpListener,
    /// `address:port`.
    pub(crate) address: String,
}

impl RendezvousPort {
    /// Lets the ranks of `job` find each other there, until the result is dropped.
    pub(crate) fn serve(self, secret: &[u8; SECRET_BYTES], job: String, size: usize) -> Serving {
        let secret = Secret::new(*secret);
        let (tell, mut reports) = mpsc::unbounded_channel();
        let (ended, ends) = mpsc::unbounded_channel();
        let failure_cause = Arc::new(Mutex::new(None));
        let said = Arc::clone(&failure_cause);
        let task = tokio::spawn(async move {
            let note = async {
                while let Some(report) = reports.recv().await {
                    record(&mut said.lock().unwrap_or_else(PoisonError::into_inner), report);
                }
            };
            tokio::join!(serve(self.listener, secret, &job, size, tell, ends), note);
        });
        Serving { task, failure_cause, ended }
    }
}

/// A rendezvous that serves ranks.
#[derive(Debug)]
pub(crate) struct Serving {
    task: JoinHandle<()>,
    failure_cause: Arc<Mutex<Option<String>>>,
    ended: mpsc::UnboundedSender<Ended>,
}

impl Serving {
    /// Tells the ranks that still wait for this one to join how its program has ended.
    pub(crate) fn end(&self, rank: Rank, how: String) {
        self.ended.send(Ended { rank: rank.0, how }).unwrap_or_default();
    }

    /// The failure cause that rank 0 has reported, if it has.
    pub(crate) fn report(&self) -> Option<String> {
        self.failure_cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Records a report. The first failure cause explains later ones, until the ranks have joined
/// again.
fn record(cause: &mut Option<String>, report: Report) {
    match report {
        Report::FailureCause { text, .. } => drop(cause.get_or_insert(text)),
        Report::Joined => *cause = None,
        _ => {}
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why there is no rendezvous.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The name of a host has no address.
    #[error(
        "host {host} cannot be resolved (check its spelling; if only ssh knows the name, pass \
         --rendezvous-addr ADDRESS)"
    )]
    Unresolved {
        /// The first other host.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The source address toward the host could not be found.
    #[error(
        "cannot find the address at which host {host} reaches this one \
         (pass --rendezvous-addr ADDRESS)"
    )]
    Route {
        /// The first other host.
        host: String,
        /// The error of the route look-up.
        source: io::Error,
    },
    /// No interface of this host is allowed.
    #[error(
        "no network interface to use (set RINGFOLD_SOCKET_IFNAME to others, or pass \
         --rendezvous-addr ADDRESS)"
    )]
    Interface(#[from] ChooseError),
    /// The given address does not belong to this host, or the port is taken.
    #[error("cannot listen at {address}{}", descriptors::remedy(source))]
    Listen {
        /// The address.
        address: String,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Opens a port. If all ranks are here (`first_other` is `None`), it is on the loopback interface.
/// Otherwise it is at the address `given`, at the interface that `interfaces` names, or at the
/// source address toward the first other host.
pub(crate) async fn open(
    first_other: Option<&str>,
    given: Option<&str>,
    interfaces: Option<&str>,
) -> Result<RendezvousPort, RendezvousError> {
    let wanted = match (given, first_other) {
        (Some(given), _) => resolve(given).map_err(|source| listen_error(given, source))?,
        (None, None) => SocketAddr::new(loopback(), 0),
        (None, Some(host)) => {
            let named = interfaces.map(address_on).transpose()?;
            SocketAddr::new(named.map_or_else(|| route_to(host), Ok)?, 0)
        }
    };
    let listener =
        TcpListener::bind(wanted).await.map_err(|source| listen_error(wanted, source))?;
    let bound = listener.local_addr().map_err(|source| listen_error(wanted, source))?;
    Ok(RendezvousPort { listener, address: bound.to_string() })
}

/// An address of the first interface that `names` allows.
fn address_on(names: &str) -> Result<IpAddr, RendezvousError> {
    let all = interfaces().map_err(|source| listen_error(names, source))?;
    Ok(choose(&all, Some(&names.into()), Family::Any, false)?.address)
}

fn listen_error(address: impl ToString, source: io::Error) -> RendezvousError {
    RendezvousError::Listen { address: address.to_string(), source }
}

/// Resolves an address or a name of this host, and a port after a colon. An IPv6 address may stand
/// in brackets, and does so before a port.
fn resolve(given: &str) -> io::Result<SocketAddr> {
    let closed = given.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match (closed, given.split_once(':')) {
        (Some((host, "")), _) => (host, None),
        (Some((host, port)), _) => (host, Some(port.strip_prefix(':').unwrap_or(port))),
        (None, Some((host, port))) if !port.contains(':') => (host, Some(port)),
        // Two colons or more without brackets are an IPv6 address without a port.
        (None, _) => (given, None),
    };
    let port = port.map_or(Ok(0), |port| {
        port.parse::<u16>()
            .map_err(|_| io::Error::other(format!("'{port}' is not a port from 0 to 65535")))
    })?;
    first((host, port).to_socket_addrs()?)
}

/// The source address of packets to `host`. Sends none.
fn route_to(host: &str) -> Result<IpAddr, RendezvousError> {
    let bare = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let unresolved = |source| RendezvousError::Unresolved { host: bare.to_owned(), source };
    let target = (bare, DISCARD).to_socket_addrs().and_then(first).map_err(unresolved)?;
    let unroutable = |source| RendezvousError::Route { host: bare.to_owned(), source };
    source_toward(target).map_err(unroutable)
}

fn first(mut addresses: impl Iterator<Item = SocketAddr>) -> io::Result<SocketAddr> {
    addresses.next().ok_or_else(|| io::Error::other("the name has no address"))
}

#[cfg(test)]
mod tests {
    use ringfold_types::Chain;

    use super::{address_on, resolve, route_to};

    #[test]
    fn routes_are_found() {
        assert_eq!(route_to("127.0.0.1").unwrap().to_string(), "127.0.0.1");
        assert_eq!(route_to("me@127.0.0.1").unwrap().to_string(), "127.0.0.1");
    }

    #[test]
    fn interfaces_are_found() {
        assert!(address_on("=lo").unwrap().is_loopback());
        let error = Chain(&address_on("=nosuch").unwrap_err()).to_string();
        assert!(error.starts_with("no network interface to use (set RINGFOLD_SOCKET_IFNAME"));
        assert!(error.contains(": no interface matches `=nosuch`; this host has "), "{error}");
    }

    #[test]
    fn addresses_are_read() {
        assert_eq!(resolve("10.0.0.1").unwrap().to_string(), "10.0.0.1:0");
        assert_eq!(resolve("10.0.0.1:70").unwrap().to_string(), "10.0.0.1:70");
        assert_eq!(resolve("::1").unwrap().to_string(), "[::1]:0");
        assert_eq!(resolve("[::1]").unwrap().to_string(), "[::1]:0");
        assert_eq!(resolve("[::1]:70").unwrap().to_string(), "[::1]:70");
        assert_eq!(resolve("[fe80::1%lo]:70").unwrap().ip().to_string(), "fe80::1");
        assert_eq!(resolve("localhost:70").unwrap().port(), 70);
        for wrong in ["10.0.0.1:x", "10.0.0.1:99999", "[::1]x", "[::1", "::1]", "[]", ""] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
        let error = resolve("10.0.0.1:99999").unwrap_err().to_string();
        assert_eq!(error, "'99999' is not a port from 0 to 65535");
    }
}

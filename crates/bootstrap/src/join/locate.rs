//! Finding the coordinator: rank 0 listens and publishes its address, and the other ranks look it
//! up.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringfold_types::Rank;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout_at};

use super::dial::{Dial, is_closed};
use super::error::JoinError;
use super::joiner::{Candidates, Joiner};
use crate::channel::blocking::blocking;
use crate::channel::greeting::Purpose;
use crate::channel::socket;
use crate::discover::address;
use crate::discover::identity::Rendezvous;
use crate::discover::pmi;
use crate::discover::pmi::error::PmiError;
use crate::rendezvous;
use crate::rendezvous::LauncherLink;
use crate::rendezvous::registry::Ended;

/// The key under which rank 0 publishes the coordinator's address in a launcher's key-value space.
const COORDINATOR_KEY: &str = "ringfold-coordinator";
/// The variable by which `ringrun` names its address.
const RENDEZVOUS: &str = "RINGFOLD_RENDEZVOUS";

impl Joiner {
    pub(super) async fn open(
        &self,
        rendezvous: Rendezvous,
    ) -> Result<(TcpListener, Option<LauncherLink>), JoinError> {
        let bind = self.options.bind;
        match rendezvous {
            // `join` has handled this case.
            Rendezvous::Alone => Err(JoinError::Invalid { rank: self.rank, size: self.size }),
            Rendezvous::Ports { hosts, ports, .. } => {
                let is_here = hosts.iter().all(|host| address::is_loopback(host));
                let here = match bind {
                    Some(ip) => vec![ip],
                    None if is_here => self.blocking(move || address::loopbacks(&hosts)).await?,
                    None => Vec::new(),
                };
                let place = match ports.as_slice() {
                    [first, .., last] => format!("any port from {first} to {last}"),
                    [only] => format!("port {only}"),
                    [] => "no port".into(),
                };
                Ok((self.listen(&here, &ports, place)?, None))
            }
            Rendezvous::Ask { address: launcher } => {
                let place = launcher.clone();
                let toward = move || address::source_toward(&place);
                let here = match bind {
                    Some(ip) => ip,
                    None => self.blocking(toward).await?.map_err(self.unroutable(&launcher))?,
                };
                let listener = self.listen(&[here], &[0], here.to_string())?;
                let coordinator = self.advertised(&listener, here)?;
                let candidates = self.launcher(&launcher)?;
                let greeting = self.greeting(Purpose::Rendezvous);
                let mut dial = Dial::new(self, &greeting, &candidates);
                let link = loop {
                    let channel = dial.connect().await?;
                    let peer = channel.peer;
                    let published = rendezvous::publish(channel, coordinator);
                    match timeout_at(self.deadline, published).await.unwrap_or_else(late) {
                        Ok(link) => break link,
                        Err(cause) => dial.lost(peer, cause).await?,
                    }
                };
                Ok((listener, Some(link.ok_or(JoinError::TooMany)?)))
            }
            Rendezvous::Kvs(client) => {
                let here = match bind {
                    Some(ip) => ip,
                    None if client.is_one_host() => address::loopback(),
                    None => address::default_source(),
                };
                let listener = self.listen(&[here], &[0], here.to_string())?;
                let coordinator = self.advertised(&listener, here)?;
                let rest = self.rest();
                self.blocking(move || publish(client, coordinator, rest)).await??;
                Ok((listener, None))
            }
            Rendezvous::Listening(listener) => {
                let place =
                    listener.local_addr().map_or_else(|e| e.to_string(), |at| at.to_string());
                let listener = socket::serve(listener);
                Ok((listener.map_err(|source| JoinError::Listen { place, source })?, None))
            }
        }
    }

    /// In the other ranks: finds the addresses where the coordinator may listen.
    pub(super) async fn find(&self, rendezvous: Rendezvous) -> Result<Candidates, JoinError> {
        match rendezvous {
            // Only rank 0 listens.
            Rendezvous::Alone | Rendezvous::Listening(_) => {
                Err(JoinError::Invalid { rank: self.rank, size: self.size })
            }
            Rendezvous::Ports { hosts, named_by, ports } => {
                Ok(Candidates { hosts, named_by, ports, is_launcher: false })
            }
            Rendezvous::Ask { address: launcher } => {
                let candidates = self.launcher(&launcher)?;
                let greeting = self.greeting(Purpose::Rendezvous);
                let mut dial = Dial::new(self, &greeting, &candidates);
                loop {
                    let channel = dial.connect().await?;
                    let peer = channel.peer;
                    let asked = rendezvous::ask(channel, self.rank.0);
                    match timeout_at(self.deadline, asked).await.unwrap_or_else(late) {
                        Ok(Ok(coordinator)) => {
                            return Ok(Candidates::at(coordinator, "the launcher"));
                        }
                        Ok(Err(Ended { rank, how })) => {
                            let reason = format!("it ended ({how}) before it joined");
                            return Err(JoinError::Peer { peer: Rank(rank), reason });
                        }
                        Err(cause) => dial.lost(peer, cause).await?,
                    }
                }
            }
            Rendezvous::Kvs(client) => {
                let rest = self.rest();
                let coordinator = self.blocking(move || look_up(client, rest)).await??;
                let coordinator =
                    coordinator.map_err(|text| self.no_coordinator(&text, "no address"))?;
                Ok(Candidates::at(coordinator, "the launcher's key-value space"))
            }
        }
    }

    fn listen(
        &self,
        ips: &[IpAddr],
        ports: &[u16],
        place: String,
    ) -> Result<TcpListener, JoinError> {
        socket::listen(ips, ports).map_err(|source| JoinError::Listen { place, source })
    }

    fn advertised(&self, listener: &TcpListener, here: IpAddr) -> Result<SocketAddr, JoinError> {
        let unknown = |source| JoinError::Listen { place: here.to_string(), source };
        let port = listener.local_addr().map_err(unknown)?.port();
        let ip = match self.options.advertise {
            Some(ip) => ip,
            None if here.is_unspecified() => address::default_source(),
            None => here,
        };
        Ok(SocketAddr::new(ip, port))
    }

    /// Runs `part` on a thread of its own, because other communicators share the control thread.
    async fn blocking<T: Send + 'static>(
        &self,
        part: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        blocking(part).await.map_err(|source| JoinError::System {
            rank: self.rank,
            action: "use the launcher's rendezvous",
            source,
        })
    }

    /// The time until the deadline, which is not zero.
    fn rest(&self) -> Duration {
        let rest = self.deadline.saturating_duration_since(Instant::now());
        rest.max(Duration::from_millis(1))
    }

    /// The address of the launcher, from its `host:port`.
    fn launcher(&self, address: &str) -> Result<Candidates, JoinError> {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let port = port.parse().map_err(|_| self.no_coordinator(address, "expected host:port"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Candidates {
            hosts: vec![host],
            named_by: RENDEZVOUS,
            ports: vec![port],
            is_launcher: true,
        })
    }

    fn no_coordinator(&self, place: &str, cause: &str) -> JoinError {
        let (rank, timeout) = (self.rank, self.options.timeout);
        JoinError::NoCoordinator { rank, place: place.into(), timeout, cause: cause.into() }
    }

    /// There is no route to the launcher at `place`.
    fn unroutable(&self, place: &str) -> impl Fn(io::Error) -> JoinError {
        let ip = place.parse().map(|place: SocketAddr| place.ip());
        move |e| JoinError::NoLauncher {
            rank: self.rank,
            place: place.to_owned(),
            named_by: RENDEZVOUS.to_owned(),
            cause: e.to_string(),
            is_elsewhere: ip.as_ref().is_ok_and(|ip| is_closed(*ip, &e)),
        }
    }
}

/// Publishes the coordinator's address in a launcher's key-value space. Blocks until all ranks have
/// looked for it, for at most `timeout`.
fn publish(
    mut client: pmi::Client,
    coordinator: SocketAddr,
    timeout: Duration,
) -> Result<(), PmiError> {
    client.put(COORDINATOR_KEY, &coordinator.to_string())?;
    client.set_timeout(timeout)?;
    client.barrier()?;
    client.set_coordinator(coordinator);
    client.finalize()
}

/// Looks the coordinator's address up in a launcher's key-value space. Blocks for at most
/// `timeout`. The inner error is a text that is no address.
fn look_up(
    mut client: pmi::Client,
    timeout: Duration,
) -> Result<Result<SocketAddr, String>, PmiError> {
    client.set_timeout(timeout)?;
    client.barrier()?;
    let text = client.get(COORDINATOR_KEY)?;
    let Ok(coordinator) = text.parse() else { return Ok(Err(text)) };
    client.set_coordinator(coordinator);
    client.finalize()?;
    Ok(Ok(coordinator))
}

/// The error of a launcher that accepted a connection and did not answer until the deadline.
fn late<T>(_: tokio::time::error::Elapsed) -> io::Result<T> {
    Err(io::Error::other("the launcher does not answer, or does not know of rank 0 yet"))
}

//! Meeting the other ranks: from an identity and a secret to a `Control` and everyone's card.

use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::acceptor::accept;
use crate::address;
use crate::call_log::History;
use crate::channel::{Greeting, Purpose};
use crate::control::{Control, Link, Seat};
use crate::descriptors;
use crate::dial::{Dial, Target};
use crate::hub::{Entrance, Hub};
use crate::identity::{Identity, Rendezvous};
use crate::local;
use crate::member::{Heard, Line, Member, tend};
use crate::message::{FromHub, Invitation, Joining, Refusal, ToHub, decode};
use crate::pmi;
use crate::reconnect::{Entry, WayBack};
use crate::relay::{self, Parent, Relay};
use crate::rendezvous::{self, Report};
use crate::secret::Secret;
use crate::turned_away::TurnedAway;

mod error;

pub use error::JoinError;

/// The key under which rank 0 publishes the hub's address in a launcher's key-value space.
const HUB_KEY: &str = "ringfold-hub";
/// The others wait this much longer than rank 0, so that it is rank 0 who says what is missing.
const LAST_WORD: Duration = Duration::from_secs(2);
const GUESTS_MAX: usize = 64;

/// How to join.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to wait for all ranks.
    pub timeout: Duration,
    /// The address that rank 0 listens on; chosen from the rendezvous if `None`.
    pub bind: Option<IpAddr>,
    /// The address under which the others reach rank 0, where it differs from `bind`.
    pub advertise: Option<IpAddr>,
    /// This host's name, for messages; the system's if `None`.
    pub host: Option<String>,
    /// How long rank 0 waits for the others when it leaves.
    pub linger: Duration,
}

impl Default for Options {
    /// A minute to join, five seconds to leave.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            bind: None,
            advertise: None,
            host: None,
            linger: Duration::from_secs(5),
        }
    }
}

type Cards = Vec<Vec<u8>>;

impl Control {
    /// Meets the other ranks. `card` is what this rank says of itself (addresses, host, version);
    /// everyone's comes back, in rank order. All ranks must call it; blocks until all have or
    /// `options.timeout` is over.
    ///
    /// # Errors
    /// See `JoinError`; within the timeout and a few seconds, on every rank.
    pub fn join(
        identity: Identity,
        secret: Secret,
        card: Vec<u8>,
        options: Options,
    ) -> Result<(Self, Cards), JoinError> {
        let (rank, size) = (identity.rank, identity.size);
        if rank.index() >= size || size > limits::RANKS_MAX {
            return Err(JoinError::Invalid { rank, size });
        }
        if card.len() > limits::CARD_BYTES_MAX {
            return Err(JoinError::CardTooLong { bytes: card.len() });
        }
        let system = |action| move |source| JoinError::System { rank, action, source };
        if let Rendezvous::Alone = identity.rendezvous {
            let alone = local::controls(1).map_err(system("make an eventfd"))?.pop();
            return alone.map(|c| (c, vec![card])).ok_or(JoinError::Invalid { rank, size });
        }
        let seat = Seat::new().map_err(system("make an eventfd"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system("start an event loop"))?;
        let (mut member, orders) = Member::new();
        let (tell, told) = std_mpsc::sync_channel(1);
        let deadline = Instant::now() + options.timeout;
        let (job, hub) = (identity.job, JoinSet::new());
        let mut joiner = Joiner { rank, size, job, secret, options, deadline, hub, relay: None };
        let (ours, rendezvous) = (Arc::clone(&seat), identity.rendezvous);
        // A log of the calling thread alone shall hear of the ranks' meeting, too.
        let log = tracing::dispatcher::get_default(Clone::clone);
        let work = move || {
            runtime.block_on(async {
                let heard = tracing::dispatcher::set_default(&log);
                let enrolled = joiner.enrol(rendezvous, card).await;
                drop(heard);
                let told = match enrolled {
                    Ok((line, cards)) => {
                        let told = tell.send(Ok(cards));
                        tend(rank, ours, line, orders).await;
                        joiner.hub.join_next().await;
                        told
                    }
                    Err(e) => {
                        // The others learn of it before this process may end.
                        joiner.hub.join_next().await;
                        tell.send(Err(e))
                    }
                };
                told.unwrap_or_default();
            });
            // A name that is still being looked up shall not keep anybody.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("ringfold-ctl".into()).spawn(work);
        member.runs_on(thread.map_err(system("start a thread"))?);
        let died = |_| io::Error::other("the control thread ended early");
        let cards = told.recv().map_err(died).map_err(system("join"))??;
        Ok((Self::new(rank, size, seat, Link::Member(member)), cards))
    }
}

/// One rank on its way into the job.
struct Joiner {
    rank: Rank,
    size: usize,
    job: String,
    secret: Secret,
    options: Options,
    deadline: Instant,
    /// In rank 0, the task that is the hub.
    hub: JoinSet<()>,
    /// Where other ranks get the roster from this one.
    relay: Option<Relay>,
}

impl Joiner {
    async fn enrol(
        &mut self,
        rendezvous: Rendezvous,
        card: Vec<u8>,
    ) -> Result<(Line, Cards), JoinError> {
        let host = self.options.host.clone();
        let host = host.unwrap_or_else(address::host_name);
        let mut joining = Joining { rank: self.rank.0, host, card, relay: None };
        if self.rank == Rank(0) {
            let mut line = self.preside(rendezvous, joining).await?;
            let cards = self.roster(&mut line, None).await?;
            return Ok((line, cards));
        }
        let place = self.find(rendezvous).await?;
        let greeting = self.greeting(Purpose::Control);
        let mut dial = self.dial(&greeting, &place);
        loop {
            let channel = dial.connect().await?;
            let peer = channel.peer;
            let relay = self.open_relay(channel.local.ip(), &place);
            joining.relay = relay.as_ref().map(|(port, _)| *port);
            let mut line = Line::over(channel, ToHub::Join(joining.clone()));
            match self.seated(&mut line).await? {
                Ok(invitation) => {
                    line.way_back = invitation.map(|invitation| WayBack {
                        rank: self.rank,
                        ip: peer.ip(),
                        invitation,
                        greeting: self.greeting(Purpose::Return),
                        secret: self.secret.clone(),
                    });
                    self.relay = relay.map(|(_, relay)| relay);
                    let cards = self.roster(&mut line, Some(peer.ip())).await?;
                    return Ok((line, cards));
                }
                // The coordinator has not taken this rank in, so that it may come again.
                Err(cause) => dial.lost(peer, cause).await?,
            }
        }
    }

    /// Rank 0: listens, says where, and runs the hub.
    async fn preside(&mut self, rendezvous: Rendezvous, first: Joining) -> Result<Line, JoinError> {
        let size = self.size;
        descriptors::provide(size).map_err(|descriptors::TooFew { needed, limit }| {
            JoinError::Descriptors { size, needed, limit }
        })?;
        let (listener, report) = self.open(rendezvous).await?;
        let place = listener.local_addr().map_or_else(|e| e.to_string(), |at| at.to_string());
        let entry = listener.local_addr().and_then(|at| {
            Entry::reserve(at.ip(), self.greeting(Purpose::Return), self.secret.clone())
        });
        let entry = entry.inspect_err(|e| {
            tracing::warn!("a rank whose connection breaks cannot come back: {e}");
        });
        let (hub, line) = Hub::new(self.size, first, self.options.linger, report);
        let (admitted, guests) = mpsc::channel(GUESTS_MAX);
        let turned_away = Arc::new(TurnedAway::default());
        let (greeting, noted) = (self.greeting(Purpose::Control), Arc::clone(&turned_away));
        let acceptor = accept(listener, greeting, self.secret.clone(), noted, admitted);
        self.hub.spawn(hub.run(Entrance {
            guests,
            turned_away,
            deadline: self.deadline,
            place,
            acceptor: tokio::spawn(acceptor),
            entry: entry.ok(),
        }));
        Ok(line)
    }

    async fn open(
        &self,
        rendezvous: Rendezvous,
    ) -> Result<(TcpListener, Option<mpsc::UnboundedSender<Report>>), JoinError> {
        let bind = self.options.bind;
        match rendezvous {
            // `join` has dealt with that.
            Rendezvous::Alone => Err(JoinError::Invalid { rank: self.rank, size: self.size }),
            Rendezvous::Ports { hosts, ports, .. } => {
                let is_here = hosts.iter().all(|host| address::is_loopback(host));
                let here = is_here.then_some(Ipv4Addr::LOCALHOST.into());
                let place = match ports.as_slice() {
                    [first, .., last] => format!("any port from {first} to {last}"),
                    [only] => format!("port {only}"),
                    [] => "no port".into(),
                };
                Ok((self.listen(bind.or(here), &ports, place)?, None))
            }
            Rendezvous::Ask { address: launcher } => {
                let toward = || address::source_toward(&launcher);
                let here = bind.map_or_else(toward, Ok).map_err(self.unroutable(&launcher))?;
                let listener = self.listen(Some(here), &[0], here.to_string())?;
                let hub = self.advertised(&listener, here)?;
                let place = self.launcher(&launcher)?;
                let greeting = self.greeting(Purpose::Rendezvous);
                let mut dial = self.dial(&greeting, &place);
                let reports = loop {
                    let channel = dial.connect().await?;
                    let peer = channel.peer;
                    let published = rendezvous::publish(channel, hub);
                    match timeout_at(self.deadline, published).await.unwrap_or_else(late) {
                        Ok(reports) => break reports,
                        Err(cause) => dial.lost(peer, cause).await?,
                    }
                };
                Ok((listener, Some(reports.ok_or(JoinError::TooMany)?)))
            }
            Rendezvous::Kvs(mut client) => {
                let here = match bind {
                    Some(ip) => ip,
                    None if client.is_one_host() => Ipv4Addr::LOCALHOST.into(),
                    None => address::default_source(),
                };
                let listener = self.listen(Some(here), &[0], here.to_string())?;
                let hub = self.advertised(&listener, here)?;
                client.put(HUB_KEY, &hub.to_string())?;
                self.barrier(&mut client)?;
                client.led_to(hub);
                client.finalize()?;
                Ok((listener, None))
            }
        }
    }

    /// The others: where to look for the coordinator.
    async fn find(&self, rendezvous: Rendezvous) -> Result<Place, JoinError> {
        match rendezvous {
            Rendezvous::Alone => Err(JoinError::Invalid { rank: self.rank, size: self.size }),
            Rendezvous::Ports { hosts, named_by, ports } => Ok(Place { hosts, named_by, ports }),
            Rendezvous::Ask { address: launcher } => {
                let place = self.launcher(&launcher)?;
                let greeting = self.greeting(Purpose::Rendezvous);
                let mut dial = self.dial(&greeting, &place);
                loop {
                    let channel = dial.connect().await?;
                    let peer = channel.peer;
                    let asked = rendezvous::ask(channel, self.rank.0);
                    match timeout_at(self.deadline, asked).await.unwrap_or_else(late) {
                        Ok(hub) => return Ok(Place::at(hub, "the launcher")),
                        Err(cause) => dial.lost(peer, cause).await?,
                    }
                }
            }
            Rendezvous::Kvs(mut client) => {
                self.barrier(&mut client)?;
                let hub = client.get(HUB_KEY)?;
                let hub: SocketAddr = hub.parse().map_err(|_| self.no_hub(&hub, "no address"))?;
                client.led_to(hub);
                client.finalize()?;
                Ok(Place::at(hub, "the launcher's key-value space"))
            }
        }
    }

    /// Waits until the coordinator has taken this rank in. The inner error is that the connection
    /// ended before.
    async fn seated(&self, line: &mut Line) -> Result<io::Result<Option<Invitation>>, JoinError> {
        let hung_up = || io::Error::other("it hung up before it had taken this rank in");
        match timeout_at(self.deadline + LAST_WORD, line.heard.recv()).await {
            Ok(Some(Heard::Message(bytes))) => match decode(&bytes) {
                Some(FromHub::Seated(invitation)) => Ok(Ok(invitation)),
                Some(FromHub::Refused(refusal)) => Err(self.refused(refusal)),
                _ => Err(self.lost("it sent an unexpected message")),
            },
            Ok(Some(Heard::Closed(Some(cause)))) => Ok(Err(cause)),
            Ok(Some(Heard::Closed(None) | Heard::Mark(_)) | None) => Ok(Err(hung_up())),
            Err(_) => Err(self.lost("it said nothing in time")),
        }
    }

    /// Listens for the ranks to which this one hands on the roster, if there are any; the port. If
    /// that fails, the coordinator serves them.
    fn open_relay(&self, local: IpAddr, place: &Place) -> Option<(u16, Relay)> {
        let children = relay::children(self.rank, self.size);
        if children.is_empty() {
            return None;
        }
        // On the host of rank 0 a name may well lead to the loopback address.
        let is_one_host = place.hosts.iter().all(|host| address::is_loopback(host));
        let is_reached_there = !local.is_loopback() || is_one_host;
        let listening = address::listen(is_reached_there.then_some(local), &[0]);
        let listening = listening.and_then(|l| Ok((l.local_addr()?.port(), l)));
        let (port, listener) = listening
            .inspect_err(|e| tracing::debug!("rank {} hands on no roster: {e}", self.rank))
            .ok()?;
        let (greeting, secret) = (self.greeting(Purpose::Relay), self.secret.clone());
        let until = self.deadline + LAST_WORD;
        Some((port, Relay::serve(listener, greeting, secret, children, until)))
    }

    /// Waits until every rank is there, gets everyone's card, and hands it on. `coordinator` is the
    /// address at which this rank reached rank 0.
    async fn roster(
        &self,
        line: &mut Line,
        mut coordinator: Option<IpAddr>,
    ) -> Result<Cards, JoinError> {
        let mut fetching = None;
        loop {
            let fetched = async {
                match &mut fetching {
                    Some(fetching) => Pin::new(fetching).await,
                    None => pending().await,
                }
            };
            let bytes = tokio::select! {
                word = self.word(line) => word?,
                fetched = fetched => {
                    fetching = None;
                    match fetched {
                        Ok(roster) => Arc::from(roster),
                        Err(e) => {
                            tracing::debug!("rank {} asks rank 0 for the roster: {e}", self.rank);
                            line.say.send(ToHub::NoRoster).unwrap_or_default();
                            continue;
                        }
                    }
                }
            };
            match decode(&bytes) {
                Some(FromHub::Roster(cards)) if cards.len() == self.size => {
                    if let Some(relay) = &self.relay {
                        relay.give(bytes);
                    }
                    return Ok(cards);
                }
                Some(FromHub::Refused(refusal)) => return Err(self.refused(refusal)),
                Some(FromHub::Fetch(parent)) => match coordinator.take() {
                    Some(coordinator) => {
                        fetching = Some(Box::pin(self.fetch(parent, coordinator)));
                    }
                    None => return Err(self.lost("it named two ranks that have the roster")),
                },
                // Ranks that have the roster may be at work already, and in trouble.
                Some(FromHub::Ask) => {
                    line.say.send(ToHub::Answer(History::default())).unwrap_or_default();
                }
                Some(FromHub::Verdict(verdict)) => {
                    let (rank, verdict) = (self.rank, verdict.to_string());
                    return Err(JoinError::Failed { rank, verdict });
                }
                _ => return Err(self.lost("it sent an unexpected message")),
            }
        }
    }

    async fn fetch(&self, parent: Parent, coordinator: IpAddr) -> io::Result<Vec<u8>> {
        let at = SocketAddr::new(parent.ip.unwrap_or(coordinator), parent.port);
        let (greeting, place) = (self.greeting(Purpose::Relay), Place::at(at, "rank 0"));
        let latest = self.deadline + LAST_WORD / 2;
        relay::fetch(self.target(&greeting, &place), at, latest).await
    }

    /// The coordinator's next message.
    async fn word(&self, line: &mut Line) -> Result<Arc<[u8]>, JoinError> {
        match timeout_at(self.deadline + LAST_WORD, line.heard.recv()).await {
            Ok(Some(Heard::Message(bytes))) => Ok(bytes),
            Ok(Some(Heard::Closed(Some(cause)))) => Err(self.lost(&cause.to_string())),
            Ok(Some(Heard::Closed(None) | Heard::Mark(_)) | None) => Err(self.lost("it hung up")),
            Err(_) => Err(self.lost("it said nothing in time")),
        }
    }

    fn refused(&self, refusal: Refusal) -> JoinError {
        let (rank, size, timeout) = (self.rank, self.size, self.options.timeout);
        match refusal {
            Refusal::Duplicate => JoinError::Duplicate { rank },
            Refusal::Invalid => JoinError::Invalid { rank, size },
            Refusal::Lost { rank } => JoinError::Lost { rank: Rank(rank) },
            Refusal::Missing { mut ranks, turned_away } => {
                ranks.truncate(size);
                let missing = ranks.into_iter().map(Rank).collect();
                let turned_away = crate::judge::cut(turned_away);
                JoinError::Missing { size, missing, timeout, turned_away }
            }
        }
    }

    fn dial<'a>(&'a self, greeting: &'a Greeting, place: &'a Place) -> Dial<'a> {
        Dial::new(self.target(greeting, place))
    }

    fn target<'a>(&'a self, greeting: &'a Greeting, place: &'a Place) -> Target<'a> {
        let Self { rank, size, secret, deadline, .. } = self;
        Target {
            rank: *rank,
            size: *size,
            hosts: &place.hosts,
            named_by: place.named_by,
            ports: &place.ports,
            greeting,
            secret,
            timeout: self.options.timeout,
            deadline: *deadline,
        }
    }

    fn greeting(&self, purpose: Purpose) -> Greeting {
        Greeting::new(purpose, &self.job, self.size)
    }

    fn listen(
        &self,
        ip: Option<IpAddr>,
        ports: &[u16],
        place: String,
    ) -> Result<TcpListener, JoinError> {
        address::listen(ip, ports).map_err(|source| JoinError::Listen { place, source })
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

    /// Blocks the control thread, which has nothing else to do yet.
    fn barrier(&self, client: &mut pmi::Client) -> Result<(), JoinError> {
        let rest = self.deadline.saturating_duration_since(Instant::now());
        client.set_patience(rest.max(Duration::from_millis(1)))?;
        Ok(client.barrier()?)
    }

    /// Where the launcher answers, from its `host:port`.
    fn launcher(&self, address: &str) -> Result<Place, JoinError> {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let port = port.parse().map_err(|_| self.no_hub(address, "expected host:port"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Place { hosts: vec![host], named_by: "RINGFOLD_RENDEZVOUS", ports: vec![port] })
    }

    fn lost(&self, cause: &str) -> JoinError {
        JoinError::HubLost { rank: self.rank, cause: cause.into() }
    }

    fn no_hub(&self, place: &str, cause: &str) -> JoinError {
        let (rank, timeout) = (self.rank, self.options.timeout);
        JoinError::NoHub { rank, place: place.into(), timeout, cause: cause.into() }
    }

    fn unroutable(&self, place: &str) -> impl Fn(io::Error) -> JoinError {
        move |e| self.no_hub(place, &e.to_string())
    }
}

/// Where the coordinator, or the launcher, may listen.
struct Place {
    /// A name, or an address, or several addresses of one host.
    hosts: Vec<String>,
    /// What names that host.
    named_by: &'static str,
    /// Candidates, in order.
    ports: Vec<u16>,
}

impl Place {
    fn at(address: SocketAddr, named_by: &'static str) -> Self {
        Self { hosts: vec![address.ip().to_string()], named_by, ports: vec![address.port()] }
    }
}

/// The error of a launcher that took a connection and did not answer until the deadline.
fn late<T>(_: tokio::time::error::Elapsed) -> io::Result<T> {
    Err(io::Error::other("the launcher does not answer, or does not know of rank 0 yet"))
}

//! Questions to the launcher of a running job: the door of the newest group, for processes that it
//! starts in place of dead ranks, and its vote where half of the ranks survive.

use std::fmt;
use std::io;
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;

use ringfold_types::limits;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{FromLauncher, ToLauncher};
use crate::channel::blocking::lookup;
use crate::channel::connect::{Channel, attempt};
use crate::channel::frames::{decode, encode};
use crate::channel::greeting::{Greeting, HandshakeError, Purpose};
use crate::control::runtime::ControlRuntime;
use crate::discover::identity::{Identity, Rendezvous};
use crate::discover::secret::Secret;

/// The pause before another attempt to reach the launcher.
const PAUSE: Duration = Duration::from_millis(50);

/// The launcher of this process, which knows the door of the newest group.
#[derive(Clone)]
pub struct LauncherPlace {
    address: String,
    greeting: Greeting,
    secret: Secret,
    rank: u32,
}

impl fmt::Debug for LauncherPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LauncherPlace({})", self.address)
    }
}

/// The door of a group, as the launcher shows it. Dropping it takes the sign down.
#[derive(Debug)]
pub struct DoorSign {
    _stays: oneshot::Sender<()>,
    _runtime: Arc<ControlRuntime>,
}

impl LauncherPlace {
    /// The launcher of a process with this identity, and the job's secret. `None` if the launcher
    /// keeps no doors.
    #[must_use]
    pub fn of(identity: &Identity, secret: Secret) -> Option<Self> {
        let Rendezvous::Ask { address } = &identity.rendezvous else { return None };
        let greeting = Greeting::new(Purpose::Rendezvous, &identity.job, identity.size);
        Some(Self { address: address.clone(), greeting, secret, rank: identity.rank.0 })
    }

    /// Has the launcher show the door with this text to newcomers. Blocks until it does, for at
    /// most `limit`.
    ///
    /// # Errors
    /// The launcher does not answer.
    pub fn show(&self, door: String, limit: Duration) -> Result<DoorSign, String> {
        let (stays, down) = oneshot::channel();
        let (tell, told) = std_mpsc::sync_channel(1);
        let runtime = ControlRuntime::shared().map_err(|e| e.to_string())?;
        let place = self.clone();
        runtime.spawn(async move {
            let request = ToLauncher::Door(door);
            match timeout(limits::timeout(limit), place.ask(&request)).await {
                Ok(Ok((FromLauncher::Published, mut channel))) => {
                    tell.send(Ok(())).unwrap_or_default();
                    tokio::select! {
                        _ = channel.reader.next() => {}
                        _ = down => {}
                    }
                }
                Ok(Ok(_)) => {
                    tell.send(Err("the launcher refuses it".to_owned())).unwrap_or_default()
                }
                Ok(Err(cause)) => tell.send(Err(cause)).unwrap_or_default(),
                Err(_) => tell.send(Err("the launcher is silent".to_owned())).unwrap_or_default(),
            }
        });
        let died = |_| "the control thread ended early".to_owned();
        told.recv().map_err(died)??;
        Ok(DoorSign { _stays: stays, _runtime: runtime })
    }

    /// Waits until the launcher knows a door. Returns its text. Blocks for at most `limit`.
    ///
    /// # Errors
    /// There is no door in time, or no rank is left that could open one.
    pub fn seek(&self, limit: Duration) -> Result<String, String> {
        let (tell, told) = std_mpsc::sync_channel(1);
        let runtime = ControlRuntime::shared().map_err(|e| e.to_string())?;
        let place = self.clone();
        runtime.spawn(async move {
            let request = ToLauncher::Seek(place.rank);
            let found = match timeout(limits::timeout(limit), place.ask(&request)).await {
                Ok(Ok((FromLauncher::Door(door), _))) => Ok(door),
                Ok(Ok((FromLauncher::NobodyLeft, _))) => {
                    Err("no rank is left that could admit this process".to_owned())
                }
                Ok(Ok(_)) => Err("the launcher sent an unexpected message".to_owned()),
                Ok(Err(cause)) => Err(cause),
                Err(_) => Err(format!("no rank has asked for newcomers within {limit:?}")),
            };
            tell.send(found).unwrap_or_default();
        });
        let died = |_| "the control thread ended early".to_owned();
        told.recv().map_err(died)?
    }

    /// Asks for the launcher's vote in `group` for these `members`, which are half of it. The
    /// launcher gives it to the first that ask, and to no others ever. Waits for at most `limit`.
    ///
    /// # Errors
    /// The launcher does not answer.
    pub(crate) async fn vote(
        &self,
        [group, members]: [[u8; 32]; 2],
        limit: Duration,
    ) -> Result<bool, String> {
        match timeout(limit, self.ask(&ToLauncher::Vote { group, members })).await {
            Ok(Ok((FromLauncher::Vote(is_given), _))) => Ok(is_given),
            Ok(Ok(_)) => Err("it sent an unexpected message".to_owned()),
            Ok(Err(cause)) => Err(cause),
            Err(_) => Err(format!("it has not answered within {limit:?}")),
        }
    }

    /// Sends a request and returns the answer. Tries again while nobody listens there.
    async fn ask(&self, request: &ToLauncher) -> Result<(FromLauncher, Channel), String> {
        loop {
            match self.ask_once(request).await {
                Ok(answered) => return Ok(answered),
                Err(HandshakeError::Io(cause)) => {
                    tracing::debug!("the launcher at {}: {cause}", self.address);
                }
                Err(cause) => return Err(format!("the launcher at {}: {cause}", self.address)),
            }
            sleep(PAUSE).await;
        }
    }

    async fn ask_once(
        &self,
        request: &ToLauncher,
    ) -> Result<(FromLauncher, Channel), HandshakeError> {
        let (host, port) = self.address.rsplit_once(':').unwrap_or((&self.address, ""));
        let port = port.parse().map_err(io::Error::other)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let bound = Duration::from_millis(limits::HANDSHAKE_MS);
        let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
        let mut last = io::Error::from(io::ErrorKind::NotFound).into();
        for at in lookup(host, port).await? {
            let attempted = timeout(bound, attempt(at, &self.greeting, &self.secret)).await;
            match attempted.unwrap_or_else(late) {
                Ok(mut channel) => {
                    channel.writer.send(&encode(request)).await?;
                    let answer = channel.reader.next().await?;
                    let closed = || io::Error::other("it closed the connection");
                    let answer = decode(&answer.ok_or_else(closed)?);
                    return Ok((answer.ok_or(HandshakeError::NotRingfold)?, channel));
                }
                Err(cause) => last = cause,
            }
        }
        Err(last)
    }
}

//! The port of a group: anybody may connect, and only children that know the group's key get
//! through.
//!
//! Connections greet beside the group's data and cost it nothing. At most
//! `limits::AGGREGATOR_GREETINGS_MAX` greet at a time, and as many begin between two heartbeats.
//! The oldest gives way to a new one, and further ones wait in the kernel.

use std::fmt::Display;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use ringfold_transport::offload::handshake::{Acceptor, PAYLOAD_BYTES_MAX, Place, payload_bytes};
use ringfold_transport::offload::header::{Header, Kind};
use ringfold_types::limits;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::connection::Connection;

const HANDSHAKE: Duration = Duration::from_millis(limits::HANDSHAKE_MS);
const BEAT: Duration = Duration::from_millis(limits::OFFLOAD_BEAT_MS);
const GREETINGS_MAX: usize = limits::AGGREGATOR_GREETINGS_MAX;
/// Refusals that are each worth a line of the log. After them, only those whose number is a power
/// of two are.
const NAMED: u32 = 16;

/// A child that has proven itself.
pub(crate) struct Proven {
    pub(crate) place: Place,
    pub(crate) connection: Connection,
    /// Whether the child can use a link in place of the connection.
    pub(crate) has_carrier: bool,
}

/// Sends every proven child to `children`, until the receiver is dropped.
pub(crate) async fn accept(
    listener: TcpListener,
    (group, key): (u32, [u8; 32]),
    children: mpsc::Sender<Proven>,
) {
    let mut greetings: JoinSet<(SocketAddr, Result<Proven, String>)> = JoinSet::new();
    let mut oldest_first: Vec<AbortHandle> = Vec::new();
    let mut refill = interval(BEAT);
    refill.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut left, mut refused, mut failures) = (GREETINGS_MAX, 0_u32, 0_u32);
    loop {
        tokio::select! {
            accepted = listener.accept(), if left > 0 => match accepted {
                Ok((stream, peer)) => {
                    left -= 1;
                    oldest_first.retain(|greeting| !greeting.is_finished());
                    if oldest_first.len() >= GREETINGS_MAX {
                        oldest_first.remove(0).abort();
                    }
                    oldest_first.push(greetings.spawn(async move {
                        (peer, greet(stream, peer, group, key).await)
                    }));
                }
                // The system lacks descriptors or memory. Others may return some.
                Err(error) => {
                    left = 0;
                    failures = failures.saturating_add(1);
                    if failures.is_power_of_two() {
                        tracing::warn!(
                            group,
                            "cannot accept a connection: {error} ({failures} so far)"
                        );
                    }
                }
            },
            Some(ended) = greetings.join_next() => match ended {
                Ok((_, Ok(proven))) => if children.send(proven).await.is_err() {
                    return;
                },
                Ok((peer, Err(reason))) => {
                    refused = refused.saturating_add(1);
                    if refused <= NAMED || refused.is_power_of_two() {
                        tracing::warn!(group, "refused {peer}: {reason} ({refused} so far)");
                    } else {
                        tracing::debug!(group, "refused {peer}: {reason}");
                    }
                }
                Err(error) if error.is_cancelled() => {}
                Err(error) => tracing::error!(group, "a greeting panicked: {error}"),
            },
            _ = refill.tick() => left = GREETINGS_MAX,
            () = children.closed() => return,
        }
    }
}

/// Lets a peer prove itself. Returns the reason after the peer has got it.
async fn greet(
    stream: TcpStream,
    peer: SocketAddr,
    group: u32,
    key: [u8; 32],
) -> Result<Proven, String> {
    tune(&stream).map_err(ended)?;
    let mut connection = Connection::new(stream, peer);
    let late = |_| Err(format!("it did not prove itself within {HANDSHAKE:?}"));
    let proven = timeout(HANDSHAKE, shake(&mut connection, group, key)).await;
    match proven.unwrap_or_else(late) {
        Ok((place, has_carrier)) => {
            connection.widen();
            Ok(Proven { place, connection, has_carrier })
        }
        Err(reason) => {
            connection.part_with(&refusal(group, 0, &reason)).await;
            Err(reason)
        }
    }
}

async fn shake(
    connection: &mut Connection,
    group: u32,
    key: [u8; 32],
) -> Result<(Place, bool), String> {
    let (header, payload) = message(connection, group).await?;
    let acceptor = Acceptor::new(key, &header, &payload).map_err(|e| e.to_string())?;
    connection.queue(&acceptor.challenge());
    let (header, payload) = message(connection, group).await?;
    let unproven = "it did not prove that it knows the group's key";
    let has_carrier = acceptor.accept(&header, &payload).ok_or(unproven)?;
    Ok((acceptor.place(), has_carrier))
}

/// Sends what is queued, and receives a message of the handshake.
async fn message(connection: &mut Connection, group: u32) -> Result<(Header, Vec<u8>), String> {
    poll_fn(|cx| connection.poll_flush(cx)).await.map_err(ended)?;
    let head = poll_fn(|cx| connection.poll_header(cx)).await.map_err(ended)?;
    let header = Header::decode(&head).map_err(|e| e.to_string())?;
    let bytes = header.bytes as usize;
    if payload_bytes(header.kind) != Some(bytes) || bytes > PAYLOAD_BYTES_MAX {
        return Err("a message out of place".into());
    }
    if header.group != group {
        return Err(format!("it asks for group {}, and this is group {group}", header.group));
    }
    connection.message = Some((header, vec![0; bytes]));
    poll_fn(|cx| connection.poll_payload(cx)).await.map_err(ended)
}

fn ended(error: impl Display) -> String {
    format!("its connection ended: {error}")
}

/// A message that refuses or ends, with its reason cut to its limit.
pub(crate) fn refusal(group: u32, epoch: u32, reason: &str) -> Vec<u8> {
    let end = reason.floor_char_boundary(limits::OFFLOAD_REASON_BYTES_MAX);
    let place = Place { group, epoch, child: 0 };
    place.message(Kind::Refused, &reason.as_bytes()[..end])
}

/// Sends small messages at once, and notices a child whose host has vanished.
fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let quiet = socket2::TcpKeepalive::new().with_time(Duration::from_secs(10));
    socket.set_tcp_keepalive(&quiet.with_interval(Duration::from_secs(2)).with_retries(5))?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(20)))
}

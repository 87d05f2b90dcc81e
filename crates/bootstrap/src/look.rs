//! Looks at the records of a group from outside, on all of its hosts.
//!
//! Each rank answers at the port where it also regroups, with the records in the folder of its
//! host. The key of the group's looks stands in these records, which only their user may read. It
//! derives from the group's secret, and opens nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringfold_types::limits;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::channel::blocking::blocking;
use crate::channel::connect::{Channel, attempt};
use crate::channel::frames::{decode, encode};
use crate::channel::greeting::{Greeting, HandshakeError, Purpose};
use crate::discover::secret::Secret;
use crate::record::folder::{Here, PackedRecord};
use crate::record::read::{LookPort, Record};

/// The time between the attempts to reach ranks of one address. A stopped rank does not answer.
const NEXT_ATTEMPT: Duration = Duration::from_millis(20);

/// Ranks of one address that a look asks before it gives the address up.
const ATTEMPTS_MAX: usize = 16;

/// Bytes of a question.
pub(crate) const QUESTION_BYTES_MAX: usize = 16;

/// A question to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Asks where all ranks of the group answer.
    Places,
    /// Asks for the records of the group on the host of the rank.
    Records,
}

/// The answer to `Question::Places`: the address of each rank that has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Places(pub(crate) Vec<Option<SocketAddr>>);

/// The answer to `Question::Records`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Records {
    here: Here,
    processes: Vec<(PackedRecord, Option<char>)>,
}

/// The records of one host at one moment.
#[derive(Clone, Debug)]
pub struct HostLook {
    /// The digest of the folder of the records, which tells hosts of one name apart.
    pub folder: [u8; 16],
    /// The moment of the look, for [`Record::time_of`].
    pub now: [u64; 2],
    /// Each record, with the letter of the state of its process; `None` after its end.
    pub processes: Vec<(Record, Option<char>)>,
}

/// A host as two looks show it.
#[derive(Clone, Debug)]
pub struct FarHost {
    /// The address of the rank that answered.
    pub address: IpAddr,
    /// The first look and the second one.
    pub looks: [HostLook; 2],
}

/// The ranks of a group on other hosts.
#[derive(Clone, Debug, Default)]
pub struct FarHosts {
    /// The hosts that answered.
    pub seen: Vec<FarHost>,
    /// The ranks that were not seen, by the address where they do not answer, if they have one.
    pub silent: BTreeMap<Option<IpAddr>, Vec<u64>>,
    /// Why the addresses are not known.
    pub unknown: Option<String>,
}

/// The key of looks at the group with this secret and of this job.
pub(crate) fn key_of(secret: &Secret, job: &str) -> [u8; 32] {
    secret.derive(&["look", job])
}

/// The greeting and the secret of looks with this key.
pub(crate) fn credentials_of(key: [u8; 32]) -> (Greeting, Secret) {
    (Greeting::new(Purpose::Look, "look", 0), Secret::new(key))
}

/// Answers the questions of one asker until it goes. `id` is the number of the group.
pub(crate) async fn answer(
    channel: Channel,
    first: Vec<u8>,
    places: impl Fn() -> Places,
    id: [u64; 2],
) {
    let Channel { mut reader, mut writer, .. } = channel;
    reader.set_bytes_max(QUESTION_BYTES_MAX);
    let mut question = decode::<Question>(&first);
    while let Some(asked) = question {
        let answer = match asked {
            Question::Places => encode(&places()),
            // Files in memory, but many of them.
            Question::Records => match blocking(move || records(id)).await {
                Ok(records) => encode(&records),
                Err(_) => return,
            },
        };
        if writer.send(&answer).await.is_err() {
            return;
        }
        question = reader.next().await.ok().flatten().and_then(|bytes| decode(&bytes));
    }
}

fn records(id: [u64; 2]) -> Records {
    let (here, processes) = Here::look(id);
    Records { here, processes }
}

impl Records {
    pub(crate) fn unpack(self) -> HostLook {
        let Here { folder, now } = self.here;
        let records = self.processes.into_iter();
        let processes = records.filter_map(|(it, state)| Some((it.unpack()?, state))).collect();
        HostLook { folder, now, processes }
    }
}

/// A group with ranks on other hosts.
#[derive(Clone, Debug)]
pub struct FarGroup {
    /// The number of the group.
    pub id: [u64; 2],
    /// The places of this host where ranks of the group answer.
    pub ports: Vec<LookPort>,
    /// The ranks of the group on this host.
    pub near: BTreeSet<u64>,
}

/// Looks twice at the ranks of a group on other hosts. The looks are at least `between` apart.
/// Blocks for at most about `limit`.
#[must_use]
pub fn look_around(group: &FarGroup, between: Duration, limit: Duration) -> FarHosts {
    let unknown = |cause: String| FarHosts { unknown: Some(cause), ..FarHosts::default() };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return unknown(error.to_string()),
    };
    let until = Instant::now() + limit;
    let far = runtime.block_on(async {
        match places(&group.ports, Instant::now() + limit / 3).await {
            Ok((key, Places(places))) => look(group, places, key, between, until).await,
            Err(cause) => unknown(cause),
        }
    });
    runtime.shutdown_background();
    far
}

/// The places of all ranks, by the first process of this host that answers, and the key.
async fn places(ports: &[LookPort], until: Instant) -> Result<([u8; 32], Places), String> {
    let mut asking = JoinSet::new();
    for (number, port) in (0..).zip(ports.iter().copied()) {
        asking.spawn(async move {
            sleep(NEXT_ATTEMPT * number).await;
            let (_, places) = begin(port.address, port.key, Question::Places).await?;
            Ok::<_, HandshakeError>((port.key, places))
        });
    }
    let mut last = "they do not answer".to_owned();
    while let Ok(Some(asked)) = timeout_at(until, asking.join_next()).await {
        match asked {
            Ok(Ok(places)) => return Ok(places),
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => {}
        }
    }
    Err(format!("the processes of this host do not say where the others are: {last}"))
}

/// Connects to a rank, and asks it a first question.
async fn begin<A: DeserializeOwned>(
    at: SocketAddr,
    key: [u8; 32],
    question: Question,
) -> Result<(Channel, A), HandshakeError> {
    let (greeting, secret) = credentials_of(key);
    let mut channel = attempt(at, &greeting, &secret).await?;
    let answer = ask(&mut channel, question).await?;
    Ok((channel, answer))
}

async fn ask<A: DeserializeOwned>(channel: &mut Channel, question: Question) -> io::Result<A> {
    channel.writer.send(&encode(&question)).await?;
    let answer = channel.reader.next().await?;
    answer.and_then(|bytes| decode(&bytes)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Looks at the ranks in these places that are not near.
async fn look(
    group: &FarGroup,
    places: Vec<Option<SocketAddr>>,
    key: [u8; 32],
    between: Duration,
    until: Instant,
) -> FarHosts {
    let mut by_address = BTreeMap::<_, Vec<_>>::new();
    for (rank, at) in (0..).zip(places).take(limits::RANKS_MAX) {
        if !group.near.contains(&rank) {
            by_address.entry(at.map(|at| at.ip())).or_default().push((rank, at));
        }
    }
    let (id, mut looking) = (group.id, JoinSet::new());
    for ranks in by_address.values().cloned() {
        looking.spawn(async move { look_at(id, ranks, key, between, until).await });
    }
    let mut seen = Vec::<FarHost>::new();
    while let Some(found) = looking.join_next().await {
        seen.extend(found.unwrap_or_default());
    }
    // A host may have several addresses.
    seen.sort_by_key(|it| (it.looks[0].folder, it.address));
    seen.dedup_by_key(|it| it.looks[0].folder);
    seen.sort_by_key(|it| it.address);
    let known: BTreeSet<u64> = seen.iter().flat_map(|it| it.looks[1].ranks(id)).collect();
    let mut silent = BTreeMap::<_, Vec<u64>>::new();
    for (address, ranks) in by_address {
        let unseen = ranks.into_iter().map(|(rank, _)| rank).filter(|rank| !known.contains(rank));
        unseen.for_each(|rank| silent.entry(address).or_default().push(rank));
    }
    FarHosts { seen, silent, unknown: None }
}

/// Looks twice at the ranks of one address, which may be of several hosts.
async fn look_at(
    id: [u64; 2],
    ranks: Vec<(u64, Option<SocketAddr>)>,
    key: [u8; 32],
    between: Duration,
    until: Instant,
) -> Vec<FarHost> {
    let mut missing: BTreeSet<u64> = ranks.iter().map(|(rank, _)| *rank).collect();
    let mut attempts = JoinSet::new();
    let places = ranks.into_iter().filter_map(|(_, at)| at).take(ATTEMPTS_MAX);
    for (number, at) in (0..).zip(places) {
        attempts.spawn(async move {
            sleep(NEXT_ATTEMPT * number).await;
            begin::<Records>(at, key, Question::Records).await.ok()
        });
    }
    let mut first = Vec::<(Channel, HostLook)>::new();
    let last = until.checked_sub(2 * between).unwrap_or(until);
    while let Ok(Some(attempted)) = timeout_at(last, attempts.join_next()).await {
        let Ok(Some((channel, records))) = attempted else { continue };
        let look = records.unpack();
        if first.iter().all(|(_, it)| it.folder != look.folder) {
            missing = &missing - &look.ranks(id).collect();
            first.push((channel, look));
        }
        if missing.is_empty() {
            break;
        }
    }
    sleep(between).await;
    let mut seen = Vec::new();
    for (mut channel, first) in first {
        let asked = timeout_at(until, ask::<Records>(&mut channel, Question::Records)).await;
        if let Ok(Ok(second)) = asked {
            let (address, looks) = (channel.peer.ip().to_canonical(), [first, second.unpack()]);
            seen.push(FarHost { address, looks });
        }
    }
    seen
}

impl HostLook {
    /// The ranks of a group in these records.
    fn ranks(&self, id: [u64; 2]) -> impl Iterator<Item = u64> {
        let groups = self.processes.iter().flat_map(|(record, _)| &record.groups);
        groups.filter(move |it| it.id == id).map(|it| it.rank)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::mpsc;

    use super::*;
    use crate::channel::acceptor::accept_any;
    use crate::channel::socket;

    const SOON: Duration = Duration::from_secs(30);

    #[test]
    fn only_the_key_of_a_group_opens_its_looks() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = socket::listen(&[[127, 0, 0, 1].into()], &[0]).unwrap();
            let address = listener.local_addr().unwrap();
            let other = (Greeting::new(Purpose::Regroup, "a job", 2), Secret::new([1; 32]));
            let (admitted, mut peers) = mpsc::channel(1);
            let shared = vec![other.clone(), credentials_of([7; 32])];
            tokio::spawn(accept_any(4, 0, listener, shared, Arc::default(), admitted));
            tokio::spawn(async move {
                while let Some(peer) = peers.recv().await {
                    assert_eq!(peer.by, 1, "it came by the second key");
                    let known = move || Places(vec![None, Some(address)]);
                    tokio::spawn(answer(peer.channel, peer.first, known, [3, 4]));
                }
            });
            let port = |key| LookPort { address, key };
            let until = Instant::now() + SOON;
            let refused = places(&[port([8; 32])], until).await.unwrap_err();
            assert!(refused.contains("another secret"), "{refused}");
            // The secret of the job is not the key.
            assert!(places(&[port([1; 32])], until).await.is_err());
            let (key, found) = places(&[port([8; 32]), port([7; 32])], until).await.unwrap();
            assert_eq!((key, &found), ([7; 32], &Places(vec![None, Some(address)])));
            // A process without records shows none of the group.
            let group = FarGroup { id: [3, 4], ports: vec![port(key)], near: BTreeSet::new() };
            let seen = look(&group, found.0, key, Duration::ZERO, until).await;
            assert_eq!(seen.silent.into_values().flatten().collect::<Vec<_>>(), [0, 1]);
        });
    }
}

//! The parts of a communicator, and the way in which its ranks make groups among themselves.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use ringfold_bootstrap::interface::Choice;
use ringfold_bootstrap::local::controls;
use ringfold_bootstrap::{Control, Secret, default_source, listen_at, loopback};
use ringfold_topology::{Layout, Occupancy};
use ringfold_transport::Transport;
use ringfold_transport::local::Local;

use super::agree::Heritage;
use super::discover::Discovered;
use super::error::InitError;
use crate::router::{Router, Via};

/// The parts of a communicator.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) layout: Layout,
    /// The ranks of this machine, and its CPUs.
    pub(crate) occupancy: Occupancy,
    pub(crate) router: Router,
    pub(crate) control: Control,
    /// The interface on which this rank listens for peers, if it needs one.
    pub(crate) interface: Option<Choice>,
    /// The way in which the members make groups among themselves.
    pub(crate) origin: Origin,
}

impl Parts {
    /// Makes a group of one, which needs no transport.
    ///
    /// # Errors
    /// The process lacks descriptors.
    pub(crate) fn alone() -> Result<Self, InitError> {
        let Some(control) = controls(1).map_err(InitError::Descriptors)?.pop() else {
            unreachable!("one was asked for")
        };
        Ok(Self {
            layout: Layout::one_host(1),
            occupancy: Occupancy { ranks: 1, cpus: 1 },
            router: Router::new(Vec::new(), vec![0], vec!["none"]),
            control,
            interface: None,
            origin: Origin::Alone,
        })
    }
}

/// The way in which the ranks of a communicator make groups among themselves.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// There is only one rank.
    Alone,
    /// The ranks are threads of this process.
    Threads(Arc<ThreadGroups>),
    /// The ranks are processes that have joined.
    Joined(Joined),
}

/// The facts about this process and its first group that later groups need.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(super) found: Arc<Discovered>,
    /// The secret of the group.
    pub(super) secret: Secret,
    pub(super) heritage: Arc<Heritage>,
}

impl Origin {
    /// Listens for the members of a group in which this rank may be rank 0. Returns `None` if
    /// groups need no connections. `layout` is that of the parent group.
    ///
    /// # Errors
    /// No port is free, or the system has no randomness.
    pub(crate) fn open_listener(
        &self,
        layout: &Layout,
    ) -> Result<Option<GroupListener>, InitError> {
        let Self::Joined(Joined { found, .. }) = self else { return Ok(None) };
        let ip = match &found.interface {
            _ if layout.hosts() == 1 => loopback(),
            Some(choice) => choice.address,
            None => default_source(),
        };
        GroupListener::open(ip).map(Some).map_err(InitError::GroupPort)
    }
}

/// The socket on which a rank listens for the members of a group.
#[derive(Debug)]
pub(crate) struct GroupListener {
    pub(crate) socket: TcpListener,
    pub(crate) address: GroupAddress,
}

/// The address of a group, for the other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupAddress {
    pub(crate) socket: SocketAddr,
    /// A fresh random number, which makes the key of the group its own.
    pub(crate) nonce: u128,
}

impl GroupListener {
    fn open(ip: IpAddr) -> io::Result<Self> {
        let socket = listen_at(ip)?;
        let at = socket.local_addr()?;
        let [nonce @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            Secret::generate()?.derive(&["nonce"]);
        let address = GroupAddress { socket: at, nonce: u128::from_le_bytes(nonce) };
        Ok(Self { socket, address })
    }
}

impl GroupAddress {
    /// The words of an address, for the exchange with other ranks. Without one they are 0.
    pub(crate) fn to_words(address: Option<Self>) -> [u64; 5] {
        let Some(Self { socket, nonce }) = address else { return [0; 5] };
        let ip = match socket.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let [low, high] = halves(ip.to_bits());
        let [first, last] = halves(nonce);
        [low, high, socket.port().into(), first, last]
    }

    /// The address of these words, or `None` if the rank does not listen.
    pub(crate) fn from_words([low, high, port, first, last]: [u64; 5]) -> Option<Self> {
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        let whole = |low, high| u128::from(low) | u128::from(high) << u64::BITS;
        let ip = Ipv6Addr::from_bits(whole(low, high)).to_canonical();
        Some(Self { socket: SocketAddr::new(ip, port), nonce: whole(first, last) })
    }
}

/// The low and the high half.
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn halves(whole: u128) -> [u64; 2] {
    [whole as u64, (whole >> u64::BITS) as u64]
}

/// Groups of threads: the first rank of each leaves the parts of the other ranks here.
#[derive(Debug)]
pub(crate) struct ThreadGroups {
    /// The threads and CPUs of this process. Ranks outside a group use the CPUs too.
    occupancy: Occupancy,
    channels: usize,
    /// The parts of each rank that has not taken them, by group.
    groups: Mutex<BTreeMap<GroupId, Vec<Option<Parts>>>>,
}

/// The number of a group among those of its parent, and its color.
pub(crate) type GroupId = (u64, u64);

impl ThreadGroups {
    /// No groups yet, of threads with this occupancy and this number of channels.
    pub(crate) fn new(occupancy: Occupancy, channels: usize) -> Self {
        Self { occupancy, channels, groups: Mutex::default() }
    }

    /// Makes the parts of the ranks of a group, in rank order, over these ends of a transport.
    ///
    /// # Errors
    /// The process lacks descriptors.
    pub(crate) fn parts(&self, ends: Vec<Box<dyn Transport>>) -> Result<Vec<Parts>, InitError> {
        let size = ends.len();
        let controls = controls(size).map_err(InitError::Descriptors)?;
        let layout = Layout::one_host(size).with_occupancy(self.occupancy);
        let layout = layout.with_channels(self.channels);
        let groups = Arc::new(Self::new(self.occupancy, self.channels));
        let part = |(end, control)| Parts {
            layout: layout.clone(),
            occupancy: self.occupancy,
            router: Router::new(vec![Via::Messages(end)], vec![0; size], vec!["local"; size]),
            control,
            interface: None,
            origin: Origin::Threads(Arc::clone(&groups)),
        };
        Ok(ends.into_iter().zip(controls).map(part).collect())
    }

    /// Makes the parts of a group of `size` ranks, and leaves them here.
    ///
    /// # Errors
    /// The process lacks descriptors.
    pub(crate) fn leave(&self, id: GroupId, size: usize) -> Result<(), InitError> {
        let ends = Local::mesh(size).map_err(InitError::Descriptors)?;
        let parts = self.parts(ends.into_iter().map(|end| Box::new(end) as _).collect())?;
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.insert(id, parts.into_iter().map(Some).collect());
        Ok(())
    }

    /// Takes the parts of rank `index` of a group.
    ///
    /// # Errors
    /// The first rank of the group could not make them.
    pub(crate) fn take(&self, id: GroupId, index: usize) -> Result<Parts, InitError> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = groups.get_mut(&id).and_then(|parts| parts.get_mut(index)?.take());
        if groups.get(&id).is_some_and(|parts| parts.iter().all(Option::is_none)) {
            groups.remove(&id);
        }
        let missing = || InitError::Descriptors(io::Error::other("rank 0 of the group lacks some"));
        parts.ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_exchange() {
        for ip in ["10.1.2.3:65535", "[2001:db8::7]:1", "127.0.0.1:4711"] {
            let address = GroupAddress { socket: ip.parse().unwrap(), nonce: u128::MAX - 5 };
            assert_eq!(
                GroupAddress::from_words(GroupAddress::to_words(Some(address))),
                Some(address)
            );
        }
        assert_eq!(GroupAddress::from_words(GroupAddress::to_words(None)), None);
        assert_eq!(GroupAddress::from_words([1, 2, 1 << 16, 4, 5]), None, "no port");
    }
}

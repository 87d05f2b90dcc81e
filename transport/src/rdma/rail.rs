//! The ports that this rank uses.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ringfold_topology::machine::slow;
use ringfold_types::limits::RAILS_MAX;

use super::card::{Label, RailCard, digest};
use super::diagnostics;
use super::gid::choose;
use super::partition::{Entry, Key, Partition};
use super::settings::Settings;
use super::sys::{
    About, Assigned, Channel, Completion, Connector, Context, Cq, DEVICES, Event, Gid, GidKind,
    Inbox, Mr, Port, addresses, devices,
};
use super::table::{Device, Domain, Listener};
use super::wire::Wire;

/// Completions that a queue has room for that cannot grow, where the device allows. A power of two
/// needs a queue of twice the size in some devices.
const QUEUE_ENTRIES: u32 = (1 << 13) - 1;
/// Bytes of the payload of a long question. It fills a packet of the greatest usual MTU: 4,096
/// bytes on InfiniBand and RoCE, and 9,000 over iWARP.
pub(super) const PROBE_BYTES: usize = 3 * 4096;
/// Entries of a table of GIDs that are searched.
const GIDS_MAX: u32 = 256;

/// Usable ports of open devices.
#[derive(Debug)]
pub struct Rails(pub(super) Vec<Rail>);

/// The reason why no port can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no rdma because {why}")]
pub struct Unusable {
    why: String,
    is_unknown: bool,
}

/// The reason why a port is not used. The texts follow its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The settings leave the port out.
    LeftOut,
    /// The port cannot be used.
    Unable(String),
    /// A setting names what the port does not have.
    Unknown(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Unable(why)
    }
}

/// A port, its GID, and completion queues for the queue pairs on it.
#[derive(Debug)]
pub(super) struct Rail {
    pub(super) device: Arc<Device>,
    /// The events of the device.
    pub(super) listener: Arc<Listener>,
    /// The protection domain of the endpoint's queue pairs and memory.
    pub(super) pd: Arc<Domain>,
    pub(super) port: Port,
    /// The GID by which peers reach the port; over iWARP, an IP address.
    pub(super) gid: Gid,
    /// The partition of the port.
    pub(super) partition: Entry,
    /// The reason for the choice of the GID.
    pub(super) why: &'static str,
    /// The listener and maker of connections, over iWARP.
    pub(super) connector: Option<Connector>,
    /// The time of the last connection, or of the start of the listener.
    pub(super) connected_at: Instant,
    pub(super) channel: Arc<Channel>,
    /// The last known state of the port.
    pub(super) is_up: bool,
    /// The port still has a GID and a partition.
    has_address: bool,
    /// The criteria by which they were chosen.
    choice: Choice,
    /// The device is gone.
    pub(super) is_gone: bool,
    /// The port's place in the fabric.
    pub(super) label: Label,
    /// The network of the port.
    pub(super) wire: Wire,
    queues: Vec<Queue>,
    /// The place of this rank among those of its host.
    pub(super) local_rank: usize,
    /// Whether the device's queues can grow, once that was tried.
    grows: Option<bool>,
    /// The memory for questions, once there is some.
    probe: Option<Arc<Mr>>,
}

/// The criteria for a port's GID and partition: those that the user set, and the address by which
/// the job connects.
#[derive(Clone, Copy, Debug)]
struct Choice {
    gid_index: Option<u8>,
    partition: Option<Partition>,
    near: Option<IpAddr>,
}

/// The state of a port after a refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The port is up, at the address that peers know.
    Up,
    /// The port is up at another address, so all paths by it must be made again. With the change.
    Moved(String),
    /// The port cannot be used for now. With the reason.
    Down(&'static str),
}

#[derive(Debug)]
struct Queue {
    cq: Arc<Cq>,
    /// The completions that the queue has room for.
    entries: u32,
    /// The completions that queue pairs may have there together.
    reserved: u32,
    /// The queue was asked to notify, and the notification was not taken yet.
    is_asked: bool,
    /// Completions have come since the queue was asked, so the notification is probably under way.
    has_answered: bool,
}

impl Rails {
    /// Opens every usable port that the settings allow. Devices that the process has open are not
    /// opened again. `near` is the address by which the job
    /// connects. Logs the ports, and the reason for each port that is left out.
    ///
    /// # Errors
    /// The host has no usable port, or no libibverbs.
    pub fn open(settings: &Settings, near: Option<IpAddr>) -> Result<Self, Unusable> {
        let unusable = |why| Unusable { why, is_unknown: false };
        // Without kernel devices there is no need to load the library.
        let is_there = std::fs::read_dir(DEVICES).is_ok_and(|mut devices| devices.next().is_some());
        let found = if is_there { devices().map_err(unusable)? } else { Vec::new() };
        if found.is_empty() {
            return Err(unusable(format!("this host has no RDMA device (none in {DEVICES})")));
        }
        Self::among(found, settings, near)
    }

    /// As `open`, for these devices of the host. One that can never be used has the reason.
    pub(super) fn among(
        devices: Vec<(String, Option<&'static str>)>,
        settings: &Settings,
        near: Option<IpAddr>,
    ) -> Result<Self, Unusable> {
        let mut rails = Vec::new();
        let (mut without, mut is_unknown) = (Vec::new(), false);
        for (name, lack) in devices {
            if let Some(lack) = lack {
                if settings.devices.allows(&name, 1) {
                    without.push(format!("{name} {lack}"));
                }
                continue;
            }
            if !(1..=u8::MAX).any(|number| settings.devices.allows(&name, number)) {
                continue;
            }
            let device = match Device::open(&name) {
                Ok(device) => device,
                Err(why) => {
                    without.push(format!("{name} {why}"));
                    continue;
                }
            };
            for number in 1..=device.limits.ports {
                match Rail::open(&name, number, settings, near) {
                    Ok(rail) if rails.len() < RAILS_MAX => rails.push(rail),
                    Ok(_) => {
                        let what = format!("is beyond the {RAILS_MAX} ports that a rank uses");
                        without.push(format!("{name}:{number} {what}"));
                    }
                    Err(Refusal::LeftOut) => {}
                    Err(Refusal::Unable(why)) => without.push(format!("{name}:{number} {why}")),
                    Err(Refusal::Unknown(why)) => {
                        without.push(format!("{name}:{number} {why}"));
                        is_unknown = true;
                    }
                }
            }
        }
        without.extend(leave_out_slow(&mut rails, settings));
        for (at, rail) in rails.iter().enumerate() {
            tracing::info!("rdma rail {at}: {rail}: {}", rail.why);
        }
        if rails.is_empty() {
            let none = "RINGFOLD_IB_HCA allows no port".to_owned();
            let why = if without.is_empty() { none } else { without.join("; ") };
            return Err(Unusable { why, is_unknown });
        }
        without.iter().for_each(|why| tracing::info!("rdma: not used: {why}"));
        Ok(Self(rails))
    }

    /// No rails: data goes by TCP, where it may.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// The kinds of networks that the rails are on, a letter each: `e` for RoCE, `i` for
    /// InfiniBand, `w` for iWARP. Ranks that share a letter may try to connect.
    #[must_use]
    pub fn networks(&self) -> String {
        let letter = |rail: &Rail| match rail.gid.kind {
            GidKind::InfiniBand => 'i',
            GidKind::RoceV1 | GidKind::RoceV2 => 'e',
            GidKind::Iwarp => 'w',
        };
        let letters: BTreeSet<char> = self.0.iter().map(letter).collect();
        letters.into_iter().collect()
    }

    /// Explains why ranks without a common network cannot connect, and what to do about it. Both
    /// arguments are in the form of `networks`. The text follows the names of the ranks.
    #[must_use]
    pub fn apart(some: &str, others: &str) -> String {
        let kind = |letter| match letter {
            'i' => Some(GidKind::InfiniBand),
            'e' => Some(GidKind::RoceV2),
            'w' => Some(GidKind::Iwarp),
            _ => None,
        };
        let [some, others] =
            [some, others].map(|it| it.chars().filter_map(kind).collect::<Vec<_>>());
        diagnostics::apart(&some, &others)
    }

    pub(super) fn cards(&self) -> Vec<RailCard> {
        self.0.iter().map(Rail::card).collect()
    }
}

impl Unusable {
    /// Returns whether a setting names what a port does not have, and no port does.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.is_unknown
    }
}

/// Removes the ports that are slow beside others, unless the user named the ports. Returns the
/// names of those ports, with the reasons.
pub(super) fn leave_out_slow(rails: &mut Vec<Rail>, settings: &Settings) -> Vec<String> {
    if settings.devices.names_ports() {
        return Vec::new();
    }
    let ports: Vec<_> =
        rails.iter().map(|rail| (rail.gid.kind.network(), rail.port.gigabits)).collect();
    let remove = |at: &usize| {
        format!("{} {}", rails.remove(*at).name(), diagnostics::slow(ports[*at], &ports))
    };
    slow(&ports).iter().rev().map(remove).collect()
}

impl Rail {
    /// Opens a port if it may and can be used.
    pub(super) fn open(
        name: &str,
        number: u8,
        settings: &Settings,
        near: Option<IpAddr>,
    ) -> Result<Self, Refusal> {
        if !settings.devices.allows(name, number) {
            return Err(Refusal::LeftOut);
        }
        let cannot = |what: &str, error: &io::Error| Refusal::Unable(format!("{what}: {error}"));
        let device = Device::open(name)?;
        // Changes that come after the queries below are events.
        let listener = device.listen().map_err(|e| cannot("gives no events", &e))?;
        let context = &device.context;
        let port = context.port(number).map_err(|e| cannot("does not answer", &e))?;
        if !port.is_active {
            let advice = "check its cable, and that its interface is up (`rdma link`, `ip link`)";
            return Err(format!("is down; {advice}").into());
        }
        let &Settings { gid_index, partition, .. } = settings;
        let choice = Choice { gid_index, partition, near };
        let (connector, gid, why) = if context.is_iwarp() {
            let found = Connector::new(context, number, |gids| choose(gids, near, &[]));
            let (connector, (gid, why)) =
                found.map_err(|e| cannot("is iWARP, and takes no connections", &e))?;
            (Some(connector), gid, why)
        } else {
            let (gid, why) = address(context, &port, gid_index, near)?;
            (None, gid, why)
        };
        let partition = match &connector {
            Some(_) => Entry::DEFAULT,
            None => {
                Entry::choose(partitions(context, &port), partition).map_err(Refusal::Unknown)?
            }
        };
        let channel = Channel::new(context).map_err(|e| cannot("gives no events", &e))?;
        let is_apart = settings.apart.is_some();
        let pd = if is_apart { device.domain_apart() } else { Ok(Arc::clone(&device.domain)) };
        let pd = pd.map_err(|e| cannot("has no protection domain left", &e))?;
        let (is_up, is_gone) = (true, false);
        let queues = Vec::new();
        let first = context.gid(number, 0).unwrap_or(gid);
        let wire = Wire::new(&gid, &first, settings.devices.place(name, number));
        Ok(Self {
            device,
            listener,
            pd,
            port,
            gid,
            partition,
            why,
            connector,
            connected_at: Instant::now(),
            channel,
            is_up,
            has_address: true,
            choice,
            is_gone,
            label: Label::default(),
            wire,
            queues,
            local_rank: 0,
            grows: None,
            probe: None,
        })
    }

    pub(super) const fn is_iwarp(&self) -> bool {
        self.connector.is_some()
    }

    pub(super) fn card(&self) -> RailCard {
        let Port { lid, mtu, needs_grh, .. } = self.port;
        let (name, prefix) = (digest(&self.name()), self.wire.prefix.unwrap_or(0));
        let (gid, kind, label) = (self.gid.bytes, self.gid.kind, self.label);
        let partition = Key(self.partition.key);
        RailCard { gid, lid, mtu, kind, needs_grh, partition, name, prefix, label }
    }

    /// Returns whether the port's network may let packets overtake each other, as is usual on
    /// InfiniBand.
    pub(super) fn is_adaptive(&self, settings: &Settings) -> bool {
        settings.adaptive_routing.unwrap_or(self.gid.kind == GidKind::InfiniBand)
    }

    /// Device and port, for people.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.device.context.name(), self.port.number)
    }

    /// Queries whether the port is up. The device may not have reported a change yet.
    pub(super) fn query_state(&mut self) -> bool {
        let is_active =
            || self.device.context.port(self.port.number).is_ok_and(|port| port.is_active);
        self.is_up = !self.is_gone && self.has_address && is_active();
        self.is_up
    }

    /// Queries the port's state, and the address and partition by which peers find it. A port that
    /// is down keeps those that peers know.
    pub(super) fn refresh(&mut self) -> Seen {
        self.is_up = false;
        let port = match self.device.context.port(self.port.number) {
            Ok(port) if port.is_active => port,
            _ => return Seen::Down("went down"),
        };
        let is_iwarp = self.is_iwarp();
        let gid = if is_iwarp { Some(self.gid) } else { self.find_gid(&port) };
        let partition = if is_iwarp { Some(self.partition) } else { self.find_partition(&port) };
        self.has_address = gid.is_some() && partition.is_some();
        let Some(gid) = gid else { return Seen::Down("has lost its address") };
        let Some(partition) = partition else { return Seen::Down("has lost its partition key") };
        self.is_up = true;
        let old_partition = std::mem::replace(&mut self.partition, partition);
        let old_lid = std::mem::replace(&mut self.port, port).lid;
        let old_gid = std::mem::replace(&mut self.gid, gid);
        let name = self.name();
        if old_gid.bytes != gid.bytes {
            self.wire.prefix = None;
            return Seen::Moved(format!("the GID of {name} changed from {old_gid} to {gid}"));
        }
        if old_lid != port.lid && gid.kind == GidKind::InfiniBand {
            let lid = port.lid;
            return Seen::Moved(format!("the LID of {name} changed from {old_lid} to {lid}"));
        }
        if old_partition != partition {
            let what = format!("the partition key of {name} changed from {old_partition}");
            return Seen::Moved(format!("{what} to {partition}"));
        }
        Seen::Up
    }

    /// Finds the GID by which peers reach the port from now on. It is the present one, or another
    /// of its kind and family, or the one at the user's index.
    fn find_gid(&self, port: &Port) -> Option<Gid> {
        let gids =
            (0..port.gids.min(GIDS_MAX)).filter_map(|at| self.device.context.gid(port.number, at));
        let is_alike = |gid: &Gid| {
            let families = [gid, &self.gid].map(|it| (it.ipv4().is_some(), it.is_link_local()));
            let is_infiniband = gid.kind == GidKind::InfiniBand;
            gid.kind == self.gid.kind && (is_infiniband || families[0] == families[1])
        };
        let mut alike = gids.filter(is_alike);
        if let Some(wanted) = self.choice.gid_index {
            return alike.find(|gid| gid.index == u32::from(wanted));
        }
        let alike = alike.collect::<Vec<_>>();
        let present = alike.iter().find(|gid| gid.bytes == self.gid.bytes).copied();
        present.or_else(|| choose(&alike, self.choice.near, &assigned()).map(|(gid, _)| gid))
    }

    /// Finds the partition of the port from now on. It is the present one, unless the user set one
    /// or the port has lost it.
    fn find_partition(&self, port: &Port) -> Option<Entry> {
        let table = partitions(&self.device.context, port);
        let present = self.choice.partition.unwrap_or(Partition::Key(self.partition.key));
        let other = |_| Entry::choose(table.clone(), self.choice.partition);
        Entry::choose(table.clone(), Some(present)).or_else(other).ok()
    }

    /// Bytes of payload of a packet.
    pub(super) const fn mtu_bytes(&self) -> u32 {
        128 << self.port.mtu
    }

    /// Returns the registration of the memory to which all peers write the payload of questions,
    /// and from which this rank sends it. Nobody reads it.
    pub(super) fn probe(&mut self) -> io::Result<Arc<Mr>> {
        if let Some(probe) = &self.probe {
            return Ok(Arc::clone(probe));
        }
        let made = Arc::new(Inbox::new(PROBE_BYTES)?.expose_to_questions(&self.pd)?);
        Ok(Arc::clone(self.probe.insert(made)))
    }

    /// Returns whether the device's queues can grow.
    pub(super) fn can_grow(&mut self) -> bool {
        let grows =
            || Cq::new(&self.channel, 1, self.local_rank).and_then(|cq| cq.resize(3)).is_ok();
        *self.grows.get_or_insert_with(grows)
    }

    /// Returns a queue with room for so many more completions. One queue grows with the queue
    /// pairs, so a poll looks at one, however many peers there are. Where it cannot grow, there are
    /// others.
    pub(super) fn queue(&mut self, entries: u32) -> io::Result<Arc<Cq>> {
        let most = self.device.limits.completions;
        let found = self.queues.iter_mut().find_map(|queue| queue.reserve(entries, most).ok());
        if let Some(found) = found {
            return Ok(found);
        }
        let least = if self.can_grow() { entries } else { entries.max(QUEUE_ENTRIES.min(most)) };
        let size = queue_size(least, most).ok_or_else(|| too_many(entries))?;
        let cq = Cq::new(&self.channel, size, self.local_rank)?;
        let (is_asked, has_answered) = (false, false);
        let made = Arc::clone(&cq);
        self.queues.push(Queue { cq, entries: size, reserved: entries, is_asked, has_answered });
        Ok(made)
    }

    /// Makes room for so many more completions in a queue.
    pub(super) fn reserve(&mut self, cq: &Arc<Cq>, entries: u32) -> io::Result<()> {
        let most = self.device.limits.completions;
        let queue = self.queues.iter_mut().find(|queue| Arc::ptr_eq(&queue.cq, cq));
        queue.ok_or(io::ErrorKind::NotFound)?.reserve(entries, most).map(drop)
    }

    /// Takes the events of the device that have come.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> {
        self.device.read_events();
        let is_ours = || self.queues.iter().any(|queue| queue.cq.has_failed());
        self.listener.take().into_iter().filter_map(move |event| match event.about {
            About::Queue => is_ours().then_some(Event { about: About::Device, ..event }),
            _ => Some(event),
        })
    }

    /// Takes completions from all queues.
    pub(super) fn poll(&mut self, into: &mut Vec<Completion>) -> io::Result<()> {
        for queue in &mut self.queues {
            let before = into.len();
            while queue.cq.poll(into)? {}
            queue.has_answered |= queue.is_asked && into.len() > before;
        }
        Ok(())
    }

    /// Lets the channel notify at the next completion, and not before. A queue that was asked and
    /// has not answered is not asked again, because every request is a system call.
    pub(super) fn notify(&mut self) -> io::Result<()> {
        if self.queues.iter().any(|queue| queue.has_answered) {
            self.silence();
        }
        for queue in &mut self.queues {
            if !queue.is_asked {
                queue.cq.notify()?;
                queue.is_asked = true;
            }
            queue.has_answered = false;
        }
        Ok(())
    }

    /// Takes the notifications that have come. Returns whether there was one.
    pub(super) fn silence(&mut self) -> bool {
        let mut rang = false;
        while self.queues.iter().any(|queue| queue.is_asked)
            && let Some(notification) = self.channel.notification()
        {
            rang = true;
            let queues = self.queues.iter_mut();
            queues
                .filter(|queue| queue.cq.has_sent(&notification))
                .for_each(|queue| queue.is_asked = false);
        }
        rang
    }
}

impl Queue {
    /// Makes room for so many more completions, of `most` at most.
    fn reserve(&mut self, entries: u32, most: u32) -> io::Result<Arc<Cq>> {
        let reserved = self.reserved + entries;
        if reserved > self.entries {
            let size = queue_size(reserved, most).ok_or_else(|| too_many(reserved))?;
            self.cq.resize(size)?;
            // A device may forget that it was asked to notify.
            (self.entries, self.is_asked) = (size, false);
        }
        self.reserved = reserved;
        Ok(Arc::clone(&self.cq))
    }
}

/// The size of a queue with room for so many completions, of `most` at most. Devices round it up to
/// a power of two, and some keep one place free.
fn queue_size(entries: u32, most: u32) -> Option<u32> {
    (entries <= most).then(|| ((entries + 1).next_power_of_two() - 1).min(most))
}

fn too_many(entries: u32) -> io::Error {
    io::Error::other(format!("{entries} completions are more than a queue can hold"))
}

/// The addresses of this network namespace; none if they cannot be listed.
fn assigned() -> Vec<Assigned> {
    addresses().unwrap_or_default()
}

/// Returns the table of a port's partition keys.
fn partitions(context: &Context, port: &Port) -> impl Iterator<Item = Entry> + Clone {
    let number = port.number;
    (0..port.partition_keys).filter_map(move |index| {
        context.partition_key(number, index).map(|key| Entry { index, key })
    })
}

/// Returns the GID to use on a port with the reason, or the reason why there is none.
fn address(
    context: &Context,
    port: &Port,
    wanted: Option<u8>,
    near: Option<IpAddr>,
) -> Result<(Gid, &'static str), Refusal> {
    let mut gids = (0..port.gids.min(GIDS_MAX)).filter_map(|index| context.gid(port.number, index));
    match wanted {
        Some(index) => {
            let found = gids.find(|gid| gid.index == u32::from(index));
            let none = || {
                let what = format!("has no GID {index}, which RINGFOLD_IB_GID_INDEX names");
                Refusal::Unknown(what)
            };
            Ok((found.ok_or_else(none)?, "RINGFOLD_IB_GID_INDEX names it"))
        }
        None => choose(&gids.collect::<Vec<_>>(), near, &assigned())
            .ok_or_else(|| "has no GID; give its interface an IP address".to_owned().into()),
    }
}

impl fmt::Display for Rail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Port { number, gigabits, .. } = self.port;
        let (name, network) = (self.device.context.name(), diagnostics::network(self.gid.kind));
        write!(f, "{name}:{number}, {network}, {gigabits} Gb/s, ")?;
        if self.is_iwarp() {
            return write!(f, "address {}", self.gid);
        }
        write!(f, "MTU {}, ", self.mtu_bytes())?;
        write!(f, "GID {} ({})", self.gid.index, self.gid)?;
        if self.partition.key == Entry::DEFAULT.key {
            return Ok(());
        }
        let limited = if self.partition.is_limited() { " (a limited member)" } else { "" };
        write!(f, ", partition key {}{limited}", self.partition)
    }
}

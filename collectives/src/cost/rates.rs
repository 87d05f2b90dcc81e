//! The rates of a call: those of its links by the layout's prices, those of the ways within a host
//! by shares of a link's price, and those of turns on a CPU. The shares and turns were measured.

use ringfold_topology::Layout;
use ringfold_topology::prices::LinkPrice;
use ringfold_types::Collective;

use crate::algorithm::{Algorithm, Needs};

/// The rates of one class of links. All times are in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkCost {
    /// Time from one rank's send of a short message to the other's receipt.
    pub(crate) latency_ps: u128,
    /// The time for which one more message keeps its sender busy.
    pub(crate) message_ps: u128,
    /// The time of one more byte.
    pub(crate) byte_ps: u128,
    /// The CPU time of both ends together, for one more message and for one more byte.
    pub(crate) work_ps: [u128; 2],
}

impl From<LinkPrice> for LinkCost {
    fn from(price: LinkPrice) -> Self {
        let LinkPrice { latency_ps, message_ps, byte_ps, work_ps } = price;
        Self {
            latency_ps: latency_ps.into(),
            message_ps: message_ps.into(),
            byte_ps: byte_ps.into(),
            work_ps: work_ps.map(u128::from),
        }
    }
}

/// The rates that hold for a layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Links within hosts.
    pub(crate) near: LinkCost,
    /// Links between hosts. The ranks of a host share the time of a byte.
    pub(crate) far: LinkCost,
    /// Combining one byte that arrives, in cache, in picoseconds.
    pub(crate) combined_byte_ps: u128,
    /// Number of rails of a host, each with that rate.
    rails: u128,
    /// Whether the hosts are containers of one machine.
    is_one_machine: bool,
}

impl Rates {
    /// The rates of the links between the ranks of `layout`.
    pub(crate) fn of(layout: &Layout) -> Self {
        let prices = layout.prices();
        let (combined_byte_ps, _) = prices.combining_ps();
        // TCP's rate is that of all interfaces together.
        let rails = if layout.has_rdma() { layout.rails_per_host() as u128 } else { 1 };
        Self {
            near: prices.link(prices.within()).into(),
            far: prices.link(layout.links_between()).into(),
            combined_byte_ps: combined_byte_ps.into(),
            rails,
            is_one_machine: layout.is_one_machine(),
        }
    }

    /// The time of one byte between hosts, if `ranks` ranks of a host send at a time. It is that of
    /// the NIC, or of the sender's CPU if that takes longer.
    pub(crate) fn far_byte_ps(&self, ranks: u128) -> u128 {
        (self.far.byte_ps * ranks.div_ceil(self.rails)).max(self.far.work_ps[1] / 2)
    }

    /// The same, if the network takes `quarters` quarters of its time. Within a machine CPUs move
    /// the bytes, so only time beyond that of the sender's CPU is a network's.
    pub(crate) fn congested_byte_ps(&self, ranks: u128, quarters: u128) -> u128 {
        let byte_ps = self.far_byte_ps(ranks);
        let of_cpu = if self.is_one_machine { self.far.work_ps[1] / 2 } else { 0 };
        byte_ps + (byte_ps - of_cpu) * (quarters - 4) / 4
    }

    /// The part of the time of a byte between hosts in which no CPU moves it.
    pub(crate) fn network_byte_ps(&self, byte_ps: u128) -> u128 {
        byte_ps.saturating_sub(self.far.work_ps[1] / 2)
    }

    /// Reading one byte of a staging buffer to combine it, in one pass with those of all ranks.
    pub(super) const fn read_byte_ps(&self) -> u128 {
        self.combined_byte_ps * 22 / 50
    }

    /// The same in CPU time, with more than two ranks: for one byte of the result, and for each
    /// rank.
    pub(super) const fn read_work_ps(&self) -> [u128; 2] {
        [self.combined_byte_ps * 150 / 50, self.combined_byte_ps * 10 / 50]
    }

    /// The rates within a host of an algorithm that takes `steps` steps on `size` ranks.
    pub(super) fn within_host(&self, algorithm: &Algorithm, size: usize, steps: usize) -> LinkCost {
        let shares = match algorithm.needs {
            Needs::Windows => IN_WINDOWS,
            Needs::Staging { .. } if algorithm.collective == Collective::Broadcast => FROM_ROOT,
            // One step means one turn for each piece.
            Needs::Staging { .. } if size == 2 && steps == 1 => SWAPPED,
            Needs::Staging { .. } if size > 2 => SIGNALLED,
            Needs::Staging { .. } => STAGED,
            Needs::Links | Needs::Rendezvous | Needs::Provider { .. } => return self.near,
        };
        shares.of(&self.near)
    }
}

/// The rates of a way within a host, as shares of a link's rates: the parts, and their number.
struct Shares {
    latency: [u128; 2],
    message: [u128; 2],
    byte: [u128; 2],
    work: [[u128; 2]; 2],
}

impl Shares {
    const fn of(&self, link: &LinkCost) -> LinkCost {
        const fn share(of: u128, [parts, all]: [u128; 2]) -> u128 {
            of * parts / all
        }
        LinkCost {
            latency_ps: share(link.latency_ps, self.latency),
            message_ps: share(link.message_ps, self.message),
            byte_ps: share(link.byte_ps, self.byte),
            work_ps: [share(link.work_ps[0], self.work[0]), share(link.work_ps[1], self.work[1])],
        }
    }
}

/// Ranks of one host that exchange tokens, and read and write each other's windows.
const IN_WINDOWS: Shares = Shares {
    latency: [245, 500],
    message: [62, 100],
    byte: [100, 100],
    work: [[50, 90], [20, 100]],
};

/// Two ranks of one host that exchange tokens, and copy into and out of staging buffers. After each
/// token a rank first reads the other's memory.
const STAGED: Shares = Shares {
    latency: [500, 500],
    message: [200, 100],
    byte: [44, 100],
    work: [[200, 90], [50, 100]],
};

/// More than two ranks that use staging buffers. A rank signals all others at once.
const SIGNALLED: Shares = Shares { work: [[115, 90], [50, 100]], ..STAGED };

/// Ranks that copy from the root's staging buffer what the root has copied there. The shares of
/// CPU time are fits of calls on shared CPUs. With a CPU each, ranks were not measured.
const FROM_ROOT: Shares = Shares { byte: [100, 100], work: [[115, 90], [75, 100]], ..STAGED };

/// Two ranks that swap staging buffers: each writes to lines that are in its caches already.
const SWAPPED: Shares =
    Shares { latency: [454, 500], message: [150, 100], byte: [33, 100], ..STAGED };

/// Bytes of a message between ranks of one host that fit the cache line which announces it.
const SHORT_BYTES: u128 = 48;

/// The extra CPU time of a longer message, in picoseconds. Ranks that share CPUs share the nearer
/// caches too, so the message's memory has left them in the meantime.
const LONGER_PS: u128 = 300_000;

/// The extra CPU time of each message within a host, if the messages are longer than short ones.
/// `bytes` are those of all messages.
pub(crate) const fn longer_ps(messages: u128, bytes: u128) -> u128 {
    if bytes > messages * SHORT_BYTES { LONGER_PS } else { 0 }
}

/// A switch from one rank to another of the same CPU, in picoseconds, where all ranks wait for all.
pub(crate) const TURN_PS: u128 = 800_000;

/// The same where ranks wait for one other: for a root, or along chains and trees. A waiting rank
/// may yield to others that wait too.
pub(super) const SWITCH_PS: u128 = 2_200_000;

/// The time to wake a rank of an oversubscribed host, or of containers that share its CPUs. It
/// waited while others waited for the network, so it is asleep.
pub(crate) const WOKEN_PS: u128 = 20_000_000;

/// How much slower a ring or a chain is, in quarters, where ranks share CPUs and links within hosts
/// alternate with links between hosts. Chains of broadcasts are not, as measured.
pub(super) const MIXED_QUARTERS: u128 = 6;

/// The part of a network's time that adds to that of the CPUs, as a divisor, where containers share
/// the CPUs of one machine. Meanwhile other ranks work.
pub(super) const NETWORK_PART: u128 = 3;

/// How much slower links are, in quarters, when all ranks send to all through the switches, many
/// send to one, or partners exchange.
pub(crate) const CONGESTED_QUARTERS: u128 = 5;

/// The same for ranks that share CPUs and send to one rank at a time: partners send long messages,
/// and neither is there to receive them.
const PARTNERS_QUARTERS: u128 = 8;

/// The same for partners.
pub(super) const fn partners_quarters(oversubscribed: bool) -> u128 {
    if oversubscribed { PARTNERS_QUARTERS } else { CONGESTED_QUARTERS }
}

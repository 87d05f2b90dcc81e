//! The rates from which prices are made: of links, of turns on a CPU and of combining. They were
//! measured.

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

/// Links between ranks of one host: a cache line changes owners twice, and both ranks copy the
/// data.
pub(crate) const SAME_HOST: LinkCost =
    LinkCost { latency_ps: 500_000, message_ps: 100_000, byte_ps: 100, work_ps: [90_000, 100] };

/// Ranks of one host that exchange tokens, and read and write each other's windows.
const IN_WINDOWS: LinkCost =
    LinkCost { latency_ps: 245_000, message_ps: 62_000, byte_ps: 100, work_ps: [50_000, 20] };

/// Two ranks of one host that exchange tokens, and copy into and out of staging buffers. After each
/// token a rank first reads the other's memory.
const STAGED: LinkCost =
    LinkCost { latency_ps: 500_000, message_ps: 200_000, byte_ps: 44, work_ps: [200_000, 50] };

/// More than two ranks that use staging buffers. A rank signals all others at once.
const SIGNALLED: LinkCost = LinkCost { work_ps: [115_000, 50], ..STAGED };

/// Two ranks that swap staging buffers: each writes to lines that are in its caches already.
const SWAPPED: LinkCost =
    LinkCost { latency_ps: 454_000, message_ps: 150_000, byte_ps: 33, work_ps: [200_000, 50] };

/// Links between hosts: TCP over a switch, 20 Gbit/s for all ranks of a host together.
pub(crate) const ACROSS_HOSTS: LinkCost = LinkCost {
    latency_ps: 20_000_000,
    message_ps: 2_000_000,
    byte_ps: 400,
    work_ps: [6_000_000, 300],
};

impl LinkCost {
    /// The rates within a host of an algorithm that takes `steps` steps on `size` ranks.
    pub(super) fn within_host(algorithm: &Algorithm, size: usize, steps: usize) -> Self {
        match algorithm.needs {
            Needs::Windows => IN_WINDOWS,
            // One step means one turn for each piece.
            Needs::Staging { .. } if size == 2 && steps == 1 => SWAPPED,
            Needs::Staging { .. } if size > 2 => SIGNALLED,
            Needs::Staging { .. } => STAGED,
            Needs::Links | Needs::Rendezvous => SAME_HOST,
        }
    }
}

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

/// The same along chains and trees. There a waiting rank may yield to others that wait too.
pub(super) const SWITCH_PS: u128 = 2_200_000;

/// From one host to another that is a container of the same machine, with CPUs for all ranks.
pub(super) const NEIGHBOUR_PS: u128 = 4_000_000;

/// The same where the containers share CPUs. A waiting rank is asleep by then.
pub(super) const CONTAINER_PS: u128 = 12_000_000;

/// The time to wake a rank of an oversubscribed host. It waited while others waited for the
/// network, so it is asleep.
pub(crate) const WOKEN_PS: u128 = 20_000_000;

/// How much slower an all-reduce is, in quarters, where ranks share CPUs and links within hosts
/// alternate with links between hosts.
pub(super) const MIXED_QUARTERS: u128 = 6;

/// Combining one byte that arrives, in cache, in picoseconds.
pub(crate) const COMBINED_BYTE_PS: u128 = 50;

/// Reading one byte of a staging buffer to combine it, in one pass with those of all ranks.
pub(super) const READ_BYTE_PS: u128 = 22;

/// The same in CPU time, with more than two ranks: for one byte of the result, and for each rank.
pub(super) const READ_WORK_PS: [u128; 2] = [150, 10];

/// How much slower links are, in quarters, when all ranks send to all through the switches and many
/// send to one.
const CONGESTED_QUARTERS: u128 = 5;

/// The same where the ranks that send to one share CPUs: on a line of 1 Gbit/s for each, the sender
/// notices a lost packet late.
const OVERSUBSCRIBED_QUARTERS: u128 = 8;

/// How much slower links are, in quarters, when all ranks send to all at once.
pub(crate) const fn congested_quarters(oversubscribed: bool) -> u128 {
    if oversubscribed { OVERSUBSCRIBED_QUARTERS } else { CONGESTED_QUARTERS }
}

/// The same for partners. Each of them sends to one rank at a time.
pub(super) const EXCHANGE_QUARTERS: u128 = CONGESTED_QUARTERS;

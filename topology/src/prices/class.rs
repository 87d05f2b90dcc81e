//! The classes of links between ranks.

use std::fmt;
use std::str::FromStr;

use ringfold_types::same_name;

/// A class of links between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkClass {
    /// Shared memory between cores that share a last-level cache.
    Cache,
    /// Shared memory between cores of one socket.
    Socket,
    /// Shared memory across the sockets of a host, or between cores of unknown places.
    Sockets,
    /// TCP or RDMA between hosts that are containers of one machine.
    Container,
    /// TCP between machines.
    Tcp,
    /// RDMA between machines, over rails of this rate in Gbit/s: one of [`RAIL_RATES`], or 0 where
    /// it is unknown or lower.
    Rdma(u32),
}

/// The rates of RDMA rails, in Gbit/s, that are classes of their own.
pub const RAIL_RATES: [u32; 8] = [0, 25, 50, 100, 200, 400, 800, 1600];

impl LinkClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 5 + RAIL_RATES.len()] = {
        let mut all = [Self::Cache; 5 + RAIL_RATES.len()];
        [all[1], all[2], all[3], all[4]] =
            [Self::Socket, Self::Sockets, Self::Container, Self::Tcp];
        let mut at = 0;
        while at < RAIL_RATES.len() {
            all[5 + at] = Self::Rdma(RAIL_RATES[at]);
            at += 1;
        }
        all
    };

    /// The class of RDMA rails of `gbps` Gbit/s: that of the highest rate which is not higher.
    #[must_use]
    pub fn rdma(gbps: u32) -> Self {
        let rate = RAIL_RATES.into_iter().rev().find(|rate| *rate <= gbps);
        Self::Rdma(rate.unwrap_or(0))
    }

    /// Whether links of this class are between hosts.
    #[must_use]
    pub const fn is_between_hosts(self) -> bool {
        matches!(self, Self::Container | Self::Tcp | Self::Rdma(_))
    }

    /// The number of the class in `ALL`. An RDMA rate without a class of its own counts as unknown.
    pub(super) const fn number(self) -> usize {
        match self {
            Self::Cache => 0,
            Self::Socket => 1,
            Self::Sockets => 2,
            Self::Container => 3,
            Self::Tcp => 4,
            Self::Rdma(gbps) => {
                let mut at = RAIL_RATES.len() - 1;
                while at > 0 && RAIL_RATES[at] != gbps {
                    at -= 1;
                }
                5 + at
            }
        }
    }
}

impl fmt::Display for LinkClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cache => f.pad("cache"),
            Self::Socket => f.pad("socket"),
            Self::Sockets => f.pad("sockets"),
            Self::Container => f.pad("container"),
            Self::Tcp => f.pad("tcp"),
            Self::Rdma(0) => f.pad("rdma"),
            Self::Rdma(gbps) => f.pad(&format!("rdma-{gbps}")),
        }
    }
}

/// A word that is not the name of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidLinkClass;

impl fmt::Display for InvalidLinkClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a class of links; use one of")?;
        LinkClass::ALL.iter().try_for_each(|class| write!(f, " {class}"))
    }
}

impl std::error::Error for InvalidLinkClass {}

impl FromStr for LinkClass {
    type Err = InvalidLinkClass;

    fn from_str(text: &str) -> Result<Self, InvalidLinkClass> {
        let named = |class: &Self| same_name(&class.to_string(), text);
        Self::ALL.into_iter().find(named).ok_or(InvalidLinkClass)
    }
}

//! Prices: the times of messages on each class of links, and of combining. They stand beside the
//! places of the ranks, and `cost` puts algorithms in order by them.
//!
//! * `class`: the classes of links; `link`: the price of one class;
//! * `profile`: prices that were measured on a machine, and their text form;
//! * `rates`: the rates of NICs, which scale default prices.
//!
//! Prices are integers, and a pure function of the statements of all ranks. So all have the same.

mod class;
mod link;
mod profile;
mod rates;
#[cfg(test)]
mod tests;

use std::fmt;

pub use class::{InvalidLinkClass, LinkClass, RAIL_RATES};
pub use link::LinkPrice;
pub use profile::{InvalidProfile, Profile};
pub use rates::{Locality, Rates};

/// The prices of all classes of links and of combining, with their origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    /// By number of class.
    links: [(LinkPrice, Origin); LinkClass::ALL.len()],
    combining: (u64, Origin),
    within: LinkClass,
    rails: LinkClass,
}

/// The origin of a price, the most trusted last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The default of ringfold.
    #[default]
    Default,
    /// The default, with the time of a byte at the rate of the slowest rank's NICs.
    NicRate,
    /// A profile.
    Profile,
}

/// The time to combine one byte that arrives, in cache, in picoseconds.
const COMBINING_PS: u64 = 50;

impl Default for Prices {
    fn default() -> Self {
        Self {
            links: LinkClass::ALL.map(|class| (LinkPrice::of(class), Origin::Default)),
            combining: (COMBINING_PS, Origin::Default),
            within: LinkClass::Sockets,
            rails: LinkClass::Rdma(0),
        }
    }
}

impl Prices {
    /// The price of a class of links.
    #[must_use]
    pub const fn link(&self, class: LinkClass) -> LinkPrice {
        self.links[class.number()].0
    }

    /// The origin of the price of a class of links.
    #[must_use]
    pub const fn origin(&self, class: LinkClass) -> Origin {
        self.links[class.number()].1
    }

    /// The time to combine one byte that arrives, in cache, in picoseconds; and its origin.
    #[must_use]
    pub const fn combining_ps(&self) -> (u64, Origin) {
        self.combining
    }

    /// The class of the links within hosts: the narrowest that is sure to hold for all ranks.
    #[must_use]
    pub const fn within(&self) -> LinkClass {
        self.within
    }

    /// The class of RDMA rails that every rank has at least.
    #[must_use]
    pub const fn rails(&self) -> LinkClass {
        self.rails
    }

    /// These prices, with links of class `within` within hosts.
    #[must_use]
    pub fn with_links_within(self, within: LinkClass) -> Self {
        Self { within, ..self }
    }

    /// These prices, with the NICs' `rates` in place of default rates. A profile counts more.
    #[must_use]
    pub fn with_rates(mut self, rates: Rates) -> Self {
        self.rails = LinkClass::rdma(rates.rdma_gbps);
        let (price, origin) = &mut self.links[LinkClass::Tcp.number()];
        if rates.tcp_mbps > 0 && *origin < Origin::Profile {
            (*price, *origin) = (price.at_rate(rates.tcp_mbps), Origin::NicRate);
        }
        let (_, origin) = &mut self.links[self.rails.number()];
        if self.rails != LinkClass::Rdma(0) {
            *origin = Origin::NicRate.max(*origin);
        }
        self
    }

    /// These prices, with those of `profile` in their place.
    #[must_use]
    pub fn with_profile(mut self, profile: &Profile) -> Self {
        for (class, price) in profile.links() {
            self.links[class.number()] = (*price, Origin::Profile);
        }
        if let Some(byte_ps) = profile.combining_ps() {
            self.combining = (byte_ps, Origin::Profile);
        }
        self
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Default => "default",
            Self::NicRate => "NIC rate",
            Self::Profile => "profile",
        })
    }
}

//! The classes of links in `--link`: "what if the network were RDMA of 400 Gbit/s".

use ringfold_topology::prices::{LinkClass, Prices, Rates};

/// A class of links that the user supposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(super) class: LinkClass,
    /// Gbit/s of a network by TCP, if the user gave it.
    tcp_gbps: Option<u32>,
}

/// The names of kinds of networks whose rate may follow.
const RDMA: [&str; 4] = ["rdma", "infiniband", "ib", "roce"];
const TCP: [&str; 2] = ["tcp", "ethernet"];

/// The units that may follow a rate, without `/` and blanks.
const UNITS: [&str; 7] = ["", "g", "gb", "gbit", "gbits", "gbps", "gbe"];

/// The highest rate in Gbit/s.
const GBPS_MAX: u32 = 1_000_000;

impl Link {
    /// Reads a class by its name, or a kind of network and its rate, as in `RDMA 400G`.
    pub(super) fn named(text: &str) -> Result<Self, String> {
        let joints = [' ', '-', '_', ':', '/'];
        let plain: String =
            text.to_ascii_lowercase().chars().filter(|c| !joints.contains(c)).collect();
        let wanted = || {
            "give a network, as in rdma-400, 'RDMA 400G' or tcp-25, or one of the classes cache, \
             socket, sockets, container, tcp and rdma"
                .to_owned()
        };
        let Some(first) = plain.find(|c: char| c.is_ascii_digit()) else {
            let kind = if RDMA.contains(&&*plain) { "rdma" } else { &plain };
            let kind = if TCP.contains(&kind) { "tcp" } else { kind };
            let class = kind.parse().map_err(|_| wanted())?;
            return Ok(Self { class, tcp_gbps: None });
        };
        let (kind, rest) = plain.split_at(first);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (rate, unit) = rest.split_at(end);
        if !UNITS.contains(&unit) {
            return Err(wanted());
        }
        let rate = rate.parse().ok().filter(|rate| (1..=GBPS_MAX).contains(rate));
        let rate = rate.ok_or_else(|| format!("give a rate from 1 to {GBPS_MAX} Gbit/s"))?;
        if RDMA.contains(&kind) {
            Ok(Self { class: LinkClass::rdma(rate), tcp_gbps: None })
        } else if TCP.contains(&kind) {
            Ok(Self { class: LinkClass::Tcp, tcp_gbps: Some(rate) })
        } else {
            Err(wanted())
        }
    }

    /// The prices if there were such links.
    pub(super) fn suppose(self, prices: Prices) -> Prices {
        match self.class {
            LinkClass::Rdma(rdma_gbps) => prices.with_rates(Rates { tcp_mbps: 0, rdma_gbps }),
            LinkClass::Tcp => {
                let tcp_mbps = self.tcp_gbps.unwrap_or(0) * 1000;
                prices.with_rates(Rates { tcp_mbps, rdma_gbps: 0 })
            }
            LinkClass::Container => prices,
            within => prices.with_links_within(within),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_several_spellings() {
        let named = |text| Link::named(text).unwrap();
        let rdma = Link { class: LinkClass::Rdma(400), tcp_gbps: None };
        for text in
            ["rdma-400", "RDMA 400G", "rdma400", "rdma:400", "ib-400gbps", "RoCE 400 Gbit/s"]
        {
            assert_eq!(named(text), rdma, "{text}");
        }
        let tcp = Link { class: LinkClass::Tcp, tcp_gbps: Some(25) };
        assert_eq!(["tcp-25", "TCP 25G", "Ethernet 25"].map(named), [tcp; 3]);
        assert_eq!(named("rdma-300").class, LinkClass::Rdma(200), "the next class below");
        assert_eq!(
            ["ib", "TCP", "Sockets"].map(|text| named(text).class),
            [LinkClass::Rdma(0), LinkClass::Tcp, LinkClass::Sockets,]
        );
        for text in ["", "fast", "rdma-fast", "rdma-400k", "400", "cache-5", "pigeon 400G"] {
            assert!(Link::named(text).unwrap_err().contains("rdma-400"), "{text}");
        }
        for text in ["rdma-0", "tcp-99999999999"] {
            assert!(Link::named(text).unwrap_err().contains("1 to 1000000 Gbit/s"), "{text}");
        }
    }
}

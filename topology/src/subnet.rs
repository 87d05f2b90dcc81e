//! The subnets of a port's IP addresses.
//!
//! Ports in one subnet reach each other without a router. Subnets are compared by a digest of
//! network and prefix length. Link-local and loopback networks are equal everywhere, and networks
//! of one or two addresses connect no other hosts. So neither identifies a network.

use std::net::Ipv6Addr;

use ringfold_types::Digest;

use crate::evidence::Attached;

/// Prefix length of the IPv6 network that holds all mapped IPv4 addresses.
const MAPPED: u8 = 96;

/// The longest prefix that leaves room for a third address.
const PREFIX_MAX: u8 = 126;

/// The subnet of an address (IPv4 as mapped IPv6) with the prefix length of its network, of 128.
#[must_use]
pub fn of_address(bytes: [u8; 16], prefix: u8) -> Option<Attached> {
    let address = Ipv6Addr::from(bytes);
    let (is_everywhere, shortest) = match address.to_ipv4_mapped() {
        Some(v4) => {
            let is_everywhere =
                v4.is_link_local() || v4.is_loopback() || v4.is_multicast() || v4.is_unspecified();
            (is_everywhere, MAPPED + 1)
        }
        None => {
            let is_link_local = address.segments()[0] & 0xffc0 == 0xfe80;
            let is_everywhere = is_link_local
                || address.is_loopback()
                || address.is_multicast()
                || address.is_unspecified();
            (is_everywhere, 1)
        }
    };
    if is_everywhere || !(shortest..=PREFIX_MAX).contains(&prefix) {
        return None;
    }
    let network = u128::from(address) & (u128::MAX << (128 - prefix));
    let network = Digest::default().number(network).number(prefix.into()).finish();
    Some(Attached::Subnet { network, address: Digest::default().number(address.into()).finish() })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn parts(text: &str) -> ([u8; 16], u8) {
        let (address, prefix) = text.split_once('/').unwrap();
        let prefix: u8 = prefix.parse().unwrap();
        match address.parse().unwrap() {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().octets(), 96 + prefix),
            IpAddr::V6(v6) => (v6.octets(), prefix),
        }
    }

    /// The digest of the subnet's network and prefix length.
    fn network(attached: Attached) -> Option<u64> {
        match attached {
            Attached::Subnet { network, .. } => Some(network),
            Attached::Switch(_) | Attached::Rail(..) => None,
        }
    }

    fn subnet(text: &str) -> Option<u64> {
        let (bytes, prefix) = parts(text);
        of_address(bytes, prefix).and_then(network)
    }

    #[test]
    fn addresses_of_one_network_are_in_one_subnet() {
        for (one, other) in [
            ("10.0.0.1/24", "10.0.0.254/24"),
            ("10.0.0.8/28", "10.0.0.1/28"),
            ("192.168.7.7/8", "192.0.0.1/8"),
            ("10.1.2.1/30", "10.1.2.2/30"),
            ("fd00:1::1/64", "fd00:1::ffff:2/64"),
            ("2001:db8::1/126", "2001:db8::2/126"),
        ] {
            assert_ne!(subnet(one), None, "{one}");
            assert_eq!(subnet(one), subnet(other), "{one} {other}");
        }
    }

    #[test]
    fn another_network_or_prefix_is_another_subnet() {
        let texts = [
            "10.0.0.1/24",
            "10.0.1.1/24",
            "10.0.0.1/25",
            "10.0.0.1/23",
            "10.0.0.9/28",
            "10.0.0.17/28",
            "fd00:1::1/64",
            "fd00:2::1/64",
        ];
        for (i, one) in texts.iter().enumerate() {
            assert!(texts[..i].iter().all(|other| subnet(one) != subnet(other)), "{one}");
        }
    }

    #[test]
    fn some_networks_tell_nothing() {
        for text in [
            "169.254.3.4/16",
            "127.0.0.1/8",
            "10.0.0.1/31",
            "10.0.0.1/32",
            "10.0.0.1/0",
            "fe80::1/64",
            "::1/128",
            "fd00::1/127",
            "fd00::1/128",
            "fd00::1/0",
        ] {
            assert_eq!(subnet(text), None, "{text}");
        }
        let (bytes, _) = parts("10.0.0.1/24");
        assert_eq!(of_address(bytes, 64), None, "shorter than the mapped network");
        assert_eq!(of_address(bytes, 255), None);
    }
}

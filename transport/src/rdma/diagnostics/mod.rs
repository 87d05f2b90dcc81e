//! Explanations of device errors, and other texts about devices, for people.
//!
//! * `rail_log`: the log lines about rails, one for each outage;
//! * `examine`: the checks of a host's RDMA.

mod examine;
mod rail_log;

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv6Addr;
use std::time::Duration;

use ringfold_topology::machine::Network;
use ringfold_types::Rank;

use super::address::PARTITIONS_APART;
use super::card::RailCard;
use super::partition::Key;
use super::sys::GidKind;

pub use self::examine::{Examined, Finding, Port, State, examine};
pub(super) use self::rail_log::{RailEvent, RailLog, log};

/// The status of work that was flushed because its queue pair had failed before.
pub(super) const FLUSHED: u32 = 5;
/// The status of work that the device has repeated in vain.
pub(super) const EXHAUSTED: u32 = 12;

/// Explains the status of failed work for `peer`. `silence` is the time that the device tries
/// before it gives up.
pub(super) fn status(status: u32, vendor: u32, peer: &str, silence: Duration) -> String {
    let what = match status {
        1 => "it was longer than the receive buffer; this is a bug of ringfold",
        9 => {
            "the peer's device took it for an invalid request, as after packets repeated wrongly; \
             update driver and firmware on both hosts"
        }
        2 => "the port or device went down, or broke its queue pair; see `rdma link` and `dmesg`",
        4 | 8 => "memory that is not registered was used; this is a bug of ringfold",
        FLUSHED => "the connection was ended by a device or the peer; see `dmesg` on both hosts",
        7 => "the answer is invalid; check firmware and cable",
        10 => "the peer refused access to its memory; this is a bug of ringfold",
        11 => "the peer's device failed in it; see `dmesg` there",
        EXHAUSTED => return silent(peer, silence),
        13 => "the peer had nothing posted to receive into; this is a bug of ringfold",
        19 => "the device is broken; see `dmesg`",
        _ => "an error of the device; see `dmesg`",
    };
    format!("work for {peer} failed with status {status} (vendor's {vendor:#x}): {what}")
}

/// Explains that nothing has come from `peer` for `silence`.
pub(super) fn silent(peer: &str, silence: Duration) -> String {
    let seconds = silence.as_secs_f64();
    format!(
        "retries exhausted: {peer} did not answer for {seconds:.1} s; check the cable, the \
         port, the process, and the MTU of the switches between by `ringfold doctor`, and on \
         InfiniBand the partition keys of both ports (RINGFOLD_IB_TIMEOUT and \
         RINGFOLD_IB_RETRY_CNT set how long to try)"
    )
}

/// Explains that no packet has passed on a new path for so long.
pub(super) fn unproven(time: Duration) -> String {
    format!(
        "no packet came through in {} ms; check cable, VLAN and GIDs of both ports, and on \
         InfiniBand whether the subnet manager has both in the partition of their keys \
         (RINGFOLD_IB_PKEY)",
        time.as_millis()
    )
}

/// Explains that short packets pass between two ports, and packets of so many bytes do not.
pub(super) fn only_short(bytes: u32, ours: &str, theirs: &str) -> String {
    format!(
        "packets of {bytes} bytes do not pass between {ours} and {theirs}: check the MTU of the \
         switches between"
    )
}

/// The description of a peer: its rank, its host and port as far as it has told them, and its
/// address.
pub(super) fn peer(rank: Rank, host: &str, port: &str, gid: [u8; 16]) -> String {
    let host = if host.is_empty() { String::new() } else { format!("host {host}, ") };
    let port = if port.is_empty() { String::new() } else { format!("{port}, ") };
    format!("rank {rank} ({host}{port}{})", Ipv6Addr::from(gid).to_canonical())
}

/// Explains that a port of that rate is left out beside ports of these `rates`. The text follows
/// the port's name.
pub(super) fn slow((network, gigabits): (Network, u32), ports: &[(Network, u32)]) -> String {
    let of_network = ports.iter().filter(|port| port.0 == network);
    let best = of_network.map(|port| port.1).max().unwrap_or(gigabits);
    format!(
        "has {gigabits} Gbit/s, less than a quarter of the {best} Gbit/s of the fastest port; \
         RINGFOLD_IB_HCA can name it"
    )
}

/// Explains the packet size between ends with different MTUs, which are given as verbs count them.
pub(super) fn different_mtus(ours: u8, theirs: u8) -> Option<String> {
    let [ours, theirs] = [ours, theirs].map(|mtu| 128_u32 << mtu);
    let (less, more) = (ours.min(theirs), ours.max(theirs));
    (less < more).then(|| {
        format!(
            "MTU {ours} here and {theirs} there, so packets carry {less} of {more} bytes; give \
             both interfaces the same (`ip link set ... mtu ...`)"
        )
    })
}

/// Returns the time that a device tries: one wait of that encoded length, and `retries` more.
pub(super) fn silence(timeout: u8, retries: u8) -> Duration {
    Duration::from_nanos(4096 << timeout.min(31)) * (u32::from(retries) + 1)
}

/// Returns the time that a device may take to send a lost packet again. By InfiniBand's rules it is
/// up to four times the encoded wait.
pub(super) fn retransmission(timeout: u8) -> Duration {
    4 * silence(timeout, 0)
}

/// The ways to let more memory be locked.
pub(super) const MEMLOCK: &str = "`ulimit -l unlimited`, memlock in /etc/security/limits.conf, \
                                  LimitMEMLOCK=infinity for a service";

/// Explains why a device cannot be opened.
pub(super) fn opening(error: &io::Error) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "this user must be allowed to read and write /dev/infiniband/uverbs*, as rdma-core's \
             udev rules allow everyone, and a container's rules for devices too"
        }
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "in a container hand in /dev/infiniband; else load ib_uverbs"
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (`ulimit -n`)",
        Some(libc::ENOMEM | libc::EAGAIN) => "too little memory, or too little may be locked",
        _ => "see `dmesg`, and who may open /dev/infiniband/uverbs*",
    };
    format!("cannot be opened: {error}; {advice}")
}

/// Explains why memory cannot be registered.
pub(super) fn registration(error: &io::Error, bytes: usize) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => {
            format!("; too little memory may be locked (`ulimit -l` says how much): {MEMLOCK}")
        }
        _ => String::new(),
    };
    format!("cannot register {bytes} bytes of memory: {error}{advice}")
}

/// Explains why no port of one host pairs with a port of the other. The text follows the names of
/// the ports.
pub(super) fn unpaired(some: &[RailCard], others: &[RailCard]) -> String {
    let mut alike = others.iter().flat_map(|other| some.iter().map(move |one| (one, other)));
    let mut alike_too = alike.clone();
    if alike_too.any(|(one, other)| one.kind == other.kind)
        && !alike.any(|(one, other)| one.kind == other.kind && one.partition.meets(other.partition))
    {
        let keys = |cards: &[RailCard]| {
            let keys: BTreeSet<Key> = cards.iter().map(|card| card.partition).collect();
            Vec::from_iter(keys.iter().map(Key::to_string)).join("/")
        };
        let [ours, theirs] = [some, others].map(keys);
        return format!("have the partition keys {ours} and {theirs}; {PARTITIONS_APART}");
    }
    let kinds = |cards: &[RailCard]| cards.iter().map(|card| card.kind).collect::<Vec<_>>();
    apart(&kinds(some), &kinds(others))
}

/// Explains why no rail of one host reaches a rail of the other, by their kinds. The text follows
/// the names of the rails.
pub(super) fn apart(some: &[GidKind], others: &[GidKind]) -> String {
    let [ours, theirs] = [some, others].map(networks);
    if ours.iter().all(|network| !theirs.contains(network)) {
        let all = ours.union(&theirs).copied().collect::<Vec<_>>();
        let advice = match all[..] {
            ["InfiniBand", "RoCE"] => {
                "one is InfiniBand and the other Ethernet: give both the same link layer, if they \
                 can have either (`mlxconfig -d DEVICE set LINK_TYPE_P1=1` is InfiniBand, 2 is \
                 Ethernet), and one network"
            }
            ["RoCE", "iWARP"] => {
                "these do not understand each other: let both be the same, if they can \
                 (`devlink dev param show`)"
            }
            _ => "these do not understand each other",
        };
        let [ours, theirs] = [ours, theirs].map(|it| Vec::from_iter(it).join("/"));
        return format!("are {ours} and {theirs}, and {advice}; RINGFOLD_IB_HCA leaves ports out");
    }
    if some.iter().all(|kind| !others.contains(kind)) {
        return "are RoCE v1 and v2; give the interfaces of both IP addresses, or name a GID of \
                the same version by RINGFOLD_IB_GID_INDEX"
            .to_owned();
    }
    "have no kind of address in common; give their interfaces addresses of one family and subnet"
        .to_owned()
}

/// The names of the networks of those kinds.
fn networks(kinds: &[GidKind]) -> BTreeSet<&'static str> {
    kinds.iter().copied().map(network).collect()
}

/// The name of the network of that kind.
pub(super) const fn network(kind: GidKind) -> &'static str {
    match kind {
        GidKind::InfiniBand => "InfiniBand",
        GidKind::RoceV1 | GidKind::RoceV2 => "RoCE",
        GidKind::Iwarp => "iWARP",
    }
}

/// The error of a device that does not destroy a queue pair.
pub(super) fn destruction(rail: &str, error: &io::Error) -> String {
    format!(
        "{rail} cannot destroy a queue pair ({error}), by which the peer may still write; see \
         `dmesg`, and reset the device"
    )
}

/// Explains why a connection cannot be set up.
pub(super) fn connection(error: &io::Error) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            "; no route from this port to the peer's: check addresses and cable"
        }
        Some(libc::ETIMEDOUT) => {
            "; nobody answers for the peer's address: check cable, VLAN and RINGFOLD_IB_GID_INDEX"
        }
        Some(libc::ENOMEM) => "; too little memory, or `ulimit -l` too small",
        _ => "",
    };
    format!("{error}{advice}")
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn different_mtus_are_explained() {
        let text = different_mtus(5, 3).unwrap();
        let start = "MTU 4096 here and 1024 there, so packets carry 1024 of 4096 bytes; ";
        assert!(text.starts_with(start), "{text}");
        assert_eq!(different_mtus(4, 4), None);
    }

    #[test]
    fn exhausted_retries_are_explained() {
        let gid = Ipv4Addr::new(10, 1, 0, 2).to_ipv6_mapped().octets();
        let peer = peer(Rank(5), "h2", "rxe_h2r1:1", gid);
        let text = status(12, 0x81, &peer, silence(14, 3));
        let start = "retries exhausted: rank 5 (host h2, rxe_h2r1:1, 10.1.0.2) did not answer for \
                     0.3 s; check the cable, the port, the process";
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("MTU") && text.contains("`ringfold doctor`"), "{text}");
        assert_eq!(
            super::peer(Rank(5), "", "", gid),
            "rank 5 (10.1.0.2)",
            "as long as it is silent"
        );
        assert!(status(2, 0, "rank 5", silence(14, 3)).contains("went down"));
    }

    #[test]
    fn a_device_that_cannot_be_opened_comes_with_advice() {
        for (error, advice) in [
            (libc::EACCES, "this user must be allowed to read and write /dev/infiniband/uverbs*"),
            (libc::ENOENT, "in a container hand in /dev/infiniband"),
            (libc::EMFILE, "`ulimit -n`"),
            (libc::EIO, "`dmesg`"),
        ] {
            let text = opening(&io::Error::from_raw_os_error(error));
            assert!(text.starts_with("cannot be opened: ") && text.contains(advice), "{text}");
        }
        let text = registration(&io::Error::from_raw_os_error(libc::ENOMEM), 64);
        assert!(text.contains("`ulimit -l unlimited`"), "{text}");
    }

    #[test]
    fn partition_keys_are_named_where_they_alone_differ() {
        let port = |kind, key| RailCard { kind, partition: Key(key), ..RailCard::default() };
        let own = [port(GidKind::InfiniBand, 0xffff), port(GidKind::InfiniBand, 0x8002)];
        let text = unpaired(&own, &[port(GidKind::InfiniBand, 0x8001)]);
        assert!(text.starts_with("have the partition keys 0x8002/0xffff and 0x8001; "), "{text}");
        let text = unpaired(&own, &[port(GidKind::RoceV2, 0x8001)]);
        assert!(text.starts_with("are InfiniBand and RoCE"), "{text}");
    }

    #[test]
    fn the_kind_of_network_is_compared_before_the_address() {
        use GidKind::{InfiniBand, Iwarp, RoceV1, RoceV2};
        for (some, others, what) in [
            (&[InfiniBand][..], &[RoceV2][..], "are InfiniBand and RoCE, and one is InfiniBand"),
            (&[RoceV1], &[InfiniBand], "LINK_TYPE_P1=1"),
            (&[RoceV2, RoceV2], &[Iwarp], "are RoCE and iWARP, and these do not understand"),
            (&[Iwarp], &[InfiniBand, RoceV2], "are iWARP and InfiniBand/RoCE, and these do not"),
            (&[RoceV1], &[RoceV2], "are RoCE v1 and v2; give"),
            (&[RoceV2, InfiniBand], &[RoceV2], "have no kind of address in common; give"),
        ] {
            let text = apart(some, others);
            assert!(text.contains(what), "{some:?} {others:?}: {text}");
        }
    }
}

//! The text form of prices, and prices from the statements of all ranks.

use ringfold_types::limits::{PRICE_BYTE_PS_MAX, PRICE_NS_MAX, PRICES_BYTES_MAX};

use super::*;
use crate::{Layout, Occupancy};

const TEXT: &str = "
    # measured on two hosts
    ringfold-prices 1
    cache 245 80 33           # CPU work as by default
    tcp 21000 1500 9000 5000 250
    rdma-400 2000 300 21
    combining 40
";

fn link(latency_ns: u64, message_ns: u64, byte_ps: u64, work: [u64; 2]) -> LinkPrice {
    let work_ps = [work[0] * 1000, work[1]];
    LinkPrice { latency_ps: latency_ns * 1000, message_ps: message_ns * 1000, byte_ps, work_ps }
}

#[test]
fn classes_are_read_as_they_are_written() {
    for (number, class) in LinkClass::ALL.into_iter().enumerate() {
        assert_eq!((class.to_string().parse(), class.number()), (Ok(class), number));
    }
    assert_eq!("Cache".parse(), Ok(LinkClass::Cache));
    assert_eq!("RDMA_400".parse(), Ok(LinkClass::Rdma(400)));
    for word in ["", "rdma-", "rdma-0", "rdma-30", "shm"] {
        assert_eq!(word.parse::<LinkClass>(), Err(InvalidLinkClass), "{word}");
    }
    let rates = [0, 10, 25, 40, 399, 400, 1601].map(|gbps| LinkClass::rdma(gbps).to_string());
    assert_eq!(rates, ["rdma", "rdma", "rdma-25", "rdma-25", "rdma-200", "rdma-400", "rdma-1600"]);
}

#[test]
fn a_profile_is_read_as_it_was_written() {
    let profile: Profile = TEXT.parse().unwrap();
    let of = |class| profile.links().find(|it| *it.0 == class).map(|it| *it.1);
    assert_eq!(of(LinkClass::Cache), Some(link(245, 80, 33, [90, 100])));
    assert_eq!(of(LinkClass::Tcp), Some(link(21_000, 1_500, 9_000, [5_000, 250])));
    assert_eq!((of(LinkClass::Socket), profile.combining_ps()), (None, Some(40)));
    assert_eq!(profile.to_string().parse(), Ok(profile));
    assert_eq!(Profile::default().to_string().parse(), Ok(Profile::default()));
    let mut whole = Profile::default();
    for class in LinkClass::ALL {
        whole.set_link(class, link(u64::MAX / 1000, 0, u64::MAX, [PRICE_NS_MAX + 1, 0]));
    }
    whole.set_combining(0);
    let text = whole.to_string();
    assert!(text.contains(&format!("tcp {PRICE_NS_MAX} 1 {PRICE_BYTE_PS_MAX} {PRICE_NS_MAX} 1")));
    assert!(text.len() <= PRICES_BYTES_MAX);
    assert_eq!(text.parse(), Ok(whole));
}

#[test]
fn nonsense_names_its_line() {
    for (text, wanted) in [
        ("shm 1 2 3", "a class of links"),
        ("tcp 1 2", "class latency_ns"),
        ("tcp 1 2 3 4", "class latency_ns"),
        ("tcp 1 2 3 4 5 6", "class latency_ns"),
        ("tcp 0 2 3", "whole numbers"),
        ("tcp 1 -2 3", "whole numbers"),
        ("tcp 1 2 3.5", "whole numbers"),
        ("tcp 1 2 99999999999999999999", "whole numbers"),
        ("tcp 1000000001 2 3", "whole numbers"),
        ("cache 1 2 3", "one line for each class"),
        ("combining 1", "one line for combining"),
        ("combining", "combining byte_ps"),
        ("ringfold-prices 1", "a class of links"),
    ] {
        let text = format!("ringfold-prices 1\ncombining 5\ncache 1 1 1\n{text}");
        let error = text.parse::<Profile>().unwrap_err();
        let InvalidProfile::Line { line: 4, wanted: said } = error else { panic!("{error:?}") };
        assert!(said.contains(wanted), "{text}: {error}");
    }
    for text in ["", "tcp 1 2 3", "ringfold-prices 2\ntcp 1 2 3"] {
        let error = text.parse::<Profile>().unwrap_err().to_string();
        assert_eq!(error, "line 1: expected ringfold-prices 1", "{text}");
    }
    let long = format!("ringfold-prices 1\n{}", "#".repeat(PRICES_BYTES_MAX));
    assert_eq!(long.parse::<Profile>(), Err(InvalidProfile::TooLong));
}

/// Cuts a profile, and changes each of its bytes. Each result is read or refused, and each profile
/// that is read survives writing.
#[test]
fn a_damaged_profile_is_read_or_refused() {
    let (mut read, mut refused) = (0, 0);
    let mut check = |bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        match text.parse::<Profile>() {
            Ok(profile) => {
                assert_eq!(profile.to_string().parse(), Ok(profile));
                read += 1;
            }
            Err(_) => refused += 1,
        }
    };
    for at in 0..TEXT.len() {
        check(&TEXT.as_bytes()[..at]);
        for byte in [b' ', b'\n', b'#', b'0', b'9', b'-', b'x'] {
            let mut changed = TEXT.as_bytes().to_vec();
            changed[at] = byte;
            check(&changed);
        }
    }
    assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
}

#[test]
fn a_profile_counts_more_than_a_rate_and_a_rate_more_than_a_default() {
    let prices = Prices::default();
    let tcp =
        |prices: &Prices| (prices.link(LinkClass::Tcp).byte_ps, prices.origin(LinkClass::Tcp));
    assert_eq!(tcp(&prices), (400, Origin::Default));
    let rates = Rates { tcp_mbps: 100, rdma_gbps: 400 };
    let by_rate = prices.clone().with_rates(rates);
    assert_eq!(tcp(&by_rate), (80_000, Origin::NicRate));
    assert_eq!(by_rate.rails(), LinkClass::Rdma(400));
    assert_eq!(by_rate.link(by_rate.rails()).byte_ps, 20);
    assert_eq!(by_rate.origin(by_rate.rails()), Origin::NicRate);
    // Messages between containers of a machine pass no NIC.
    let container = LinkClass::Container;
    assert_eq!(by_rate.link(container), prices.link(container));
    assert_eq!(by_rate.origin(container), Origin::Default);
    let profile = TEXT.parse().unwrap();
    for both in
        [by_rate.with_profile(&profile), prices.clone().with_profile(&profile).with_rates(rates)]
    {
        assert_eq!(tcp(&both), (9_000, Origin::Profile));
        assert_eq!(both.origin(both.rails()), Origin::Profile);
        assert_eq!(both.combining_ps(), (40, Origin::Profile));
        assert_eq!(both.origin(LinkClass::Socket), Origin::Default);
    }
    assert_eq!(prices.clone().with_rates(Rates::default()), prices, "nothing is known");
}

#[test]
fn the_slowest_rank_has_the_rate() {
    let of = |all: &[(u32, u32)]| {
        let rates = |(tcp_mbps, rdma_gbps): &(u32, u32)| Rates {
            tcp_mbps: *tcp_mbps,
            rdma_gbps: *rdma_gbps,
        };
        let Rates { tcp_mbps, rdma_gbps } =
            Rates::of_all(&all.iter().map(rates).collect::<Vec<_>>());
        (tcp_mbps, rdma_gbps)
    };
    assert_eq!(of(&[(100_000, 400), (25_000, 200)]), (25_000, 200));
    assert_eq!(of(&[(100_000, 400), (0, 0)]), (0, 0), "the other one may be as slow as a default");
    assert_eq!(of(&[(1_000, 400), (0, 400)]), (1_000, 400));
    assert_eq!((of(&[(0, 0)]), of(&[])), ((0, 0), (0, 0)));
}

#[test]
fn seats_give_the_narrowest_class_that_holds_for_all() {
    let locality = |socket, cache| Locality { socket, cache };
    let near = locality(Some(0), Some(3));
    assert_eq!(Locality::class(&[near, near]), LinkClass::Cache);
    assert_eq!(Locality::class(&[near, locality(Some(0), Some(4))]), LinkClass::Socket);
    assert_eq!(Locality::class(&[near, locality(Some(0), None)]), LinkClass::Socket);
    assert_eq!(Locality::class(&[near, locality(Some(1), Some(5))]), LinkClass::Sockets);
    assert_eq!(Locality::class(&[near, Locality::default()]), LinkClass::Sockets);
    assert_eq!(Locality::class(&[]), LinkClass::Sockets);
}

#[test]
fn a_layout_knows_the_class_between_its_hosts() {
    let prices = Prices::default().with_rates(Rates { tcp_mbps: 0, rdma_gbps: 200 });
    let layout = Layout::hosts_of(2, 4).with_prices(prices);
    assert_eq!(layout.links_between(), LinkClass::Tcp);
    let by_rdma = layout.clone().with_rdma(true);
    assert_eq!(by_rdma.links_between(), LinkClass::Rdma(200));
    let of_machine = by_rdma.with_occupancy(Occupancy { ranks: 4, cpus: 8 });
    assert_eq!(of_machine.links_between(), LinkClass::Container);
}

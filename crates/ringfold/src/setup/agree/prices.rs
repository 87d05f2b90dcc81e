//! The prices of links, which all ranks derive from the same statements: the profile of rank 0, the
//! rates of all NICs, and the places of all cores.

use ringfold_topology::Layout;
use ringfold_topology::prices::{LinkClass, LinkPrice, Locality, Prices, Profile, Rates};
use ringfold_types::Rank;
use ringfold_types::limits::PRICES_BYTES_MAX;

use crate::config::{Config, profile};
use crate::setup::error::InitError;
use crate::setup::members::Members;
use crate::setup::peer_info::PeerInfo;

/// The first byte of a statement that rank 0 has no usable profile. No profile begins with it.
const UNUSABLE: char = '!';

/// The statement of rank 0 about prices: the text of its profile, or the reason why the file that
/// the settings name cannot be used. Empty on other ranks, and without such a file.
pub(crate) fn statement(config: &Config, rank: Rank) -> String {
    // Only rank 0 needs the file.
    let path = config.prices_file.as_deref().filter(|_| rank == Rank(0));
    match path.map(profile) {
        None => String::new(),
        Some(Ok(profile)) => profile.to_string(),
        Some(Err(error)) => {
            let reason = format!("{UNUSABLE}{error}");
            reason[..reason.floor_char_boundary(PRICES_BYTES_MAX)].to_owned()
        }
    }
}

/// Sends rank 0's `statement` to all ranks. Each passes its own; rank 0's counts. Returns an empty
/// profile, without an exchange, if rank 0 has none.
///
/// # Errors
/// The exchange fails, or rank 0's profile cannot be used or read: the same error on every rank.
pub(super) fn exchange(statement: &str, members: &Members<'_>) -> Result<Profile, InitError> {
    let longest = members.infos[0].prices.profile_bytes;
    if longest == 0 {
        return Ok(Profile::default());
    }
    let own = if members.rank().0 == 0 { statement } else { "" };
    let all = members.exchange(own.as_bytes(), longest)?;
    let text = String::from_utf8_lossy(&all[0]);
    match text.strip_prefix(UNUSABLE) {
        Some(reason) => Err(InitError::Prices { reason: reason.to_owned() }),
        None => text.parse().map_err(InitError::Profile),
    }
}

/// The prices of all links. The most trusted source of each counts: the profile, then the slowest
/// rank's NICs, then the defaults.
pub(super) fn agreed(infos: &[PeerInfo], layout: &Layout, profile: &Profile) -> Prices {
    let rates: Vec<Rates> = infos.iter().map(|info| info.prices.rates).collect();
    let within = (0..).take(layout.hosts()).filter_map(|host| {
        let ranks = layout.ranks_on(host);
        let localities = ranks.iter().map(|rank| infos[rank.index()].prices.locality);
        (ranks.len() > 1).then(|| Locality::class(&localities.collect::<Vec<_>>()))
    });
    let within = within.max().unwrap_or(LinkClass::Sockets);
    let prices = Prices::default().with_links_within(within);
    prices.with_rates(Rates::of_all(&rates)).with_profile(profile)
}

/// Describes the prices of the links of `layout`, for the log.
pub(super) fn lines(layout: &Layout) -> Vec<String> {
    let prices = layout.prices();
    let within = (layout.ranks_per_host().1 > 1).then(|| prices.within());
    let between = (layout.hosts() > 1).then(|| layout.links_between());
    let line = |class| {
        let LinkPrice { latency_ps, message_ps, byte_ps, .. } = prices.link(class);
        let [latency, message] = [latency_ps, message_ps].map(|ps| ps / 1000);
        let origin = prices.origin(class);
        format!("{class}: latency {latency} ns, message {message} ns, byte {byte_ps} ps ({origin})")
    };
    within.into_iter().chain(between).map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use ringfold_bootstrap::Control;
    use ringfold_bootstrap::local::controls;
    use ringfold_topology::prices::Origin;

    use super::*;
    use crate::setup::peer_info::PriceSummary;

    /// A rank on this host, with its socket and cache, and the rates of its NICs.
    fn info(host: &str, locality: [u16; 2], [tcp_mbps, rdma_gbps]: [u32; 2]) -> PeerInfo {
        let locality = Locality { socket: Some(locality[0]), cache: Some(locality[1]) };
        let rates = Rates { tcp_mbps, rdma_gbps };
        let prices = PriceSummary { rates, locality, profile_bytes: 0 };
        PeerInfo { host_id: host.to_owned(), prices, ..PeerInfo::default() }
    }

    fn layout(infos: &[PeerInfo]) -> Layout {
        let hosts: Vec<&str> = infos.iter().map(|info| info.host_id.as_str()).collect();
        Layout::from_host_names(&hosts)
    }

    /// Exchanges these profiles of ranks 0, 1 and so on. Returns the prices of each rank.
    fn prices_of_all(mut infos: Vec<PeerInfo>, profiles: &[&str]) -> Vec<Prices> {
        for (info, profile) in infos.iter_mut().zip(profiles) {
            info.prices.profile_bytes = profile.len();
        }
        let (infos, layout) = (&infos, &layout(&infos));
        let part = |control: Control, profile: &str| {
            let deadline = Instant::now() + Duration::from_secs(60);
            let members = Members { control: &control, infos: infos.clone(), deadline };
            let profile = exchange(profile, &members).unwrap();
            control.leave().unwrap();
            agreed(infos, layout, &profile)
        };
        thread::scope(|scope| {
            let part = &part;
            let all = controls(infos.len()).unwrap().into_iter().zip(profiles);
            let all: Vec<_> =
                all.map(|(control, profile)| scope.spawn(move || part(control, profile))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn three() -> Vec<PeerInfo> {
        vec![
            info("a/1", [0, 0], [25_000, 400]),
            info("a/1", [0, 2], [25_000, 400]),
            info("b/1", [1, 9], [1_000, 100]),
        ]
    }

    #[test]
    fn all_ranks_have_the_prices_of_rank_0s_profile() {
        let of_0 = "ringfold-prices 1\ntcp 30000 1000 900\n";
        let of_1 = "ringfold-prices 1\ntcp 1 1 1\ncombining 7\n";
        let all = prices_of_all(three(), &[of_0, of_1, ""]);
        assert!(all.iter().all(|prices| *prices == all[0]));
        let tcp = all[0].link(LinkClass::Tcp);
        assert_eq!((tcp.latency_ps, tcp.byte_ps), (30_000_000, 900));
        assert_eq!(all[0].origin(LinkClass::Tcp), Origin::Profile);
        assert_eq!(all[0].combining_ps(), Prices::default().combining_ps());
        assert_eq!(all[0].rails(), LinkClass::Rdma(100));
        let layout = layout(&three()).with_prices(all[0].clone());
        let said = [
            "socket: latency 500 ns, message 100 ns, byte 100 ps (default)",
            "tcp: latency 30000 ns, message 1000 ns, byte 900 ps (profile)",
        ];
        assert_eq!(lines(&layout), said);
    }

    #[test]
    fn without_a_profile_the_slowest_rank_has_the_price() {
        let all = prices_of_all(three(), &["", "ringfold-prices 1\ntcp 1 1 1\n", ""]);
        assert!(all.iter().all(|prices| *prices == all[0]));
        assert_eq!(all[0].link(LinkClass::Tcp).byte_ps, 8_000);
        assert_eq!(all[0].origin(LinkClass::Tcp), Origin::NicRate);
        assert_eq!((all[0].within(), all[0].rails()), (LinkClass::Socket, LinkClass::Rdma(100)));
        let mut turned = three();
        turned.rotate_left(1);
        let prices = agreed(&turned, &layout(&turned), &Profile::default());
        assert_eq!(prices, all[0], "in any order of ranks");
    }

    #[test]
    fn the_widest_host_has_the_class_of_links_within_hosts() {
        let within =
            |infos: &[PeerInfo]| agreed(infos, &layout(infos), &Profile::default()).within();
        let near = [info("a", [0, 0], [0; 2]), info("a", [0, 0], [0; 2])];
        let far = [info("b", [0, 0], [0; 2]), info("b", [1, 1], [0; 2])];
        assert_eq!(within(&near), LinkClass::Cache);
        assert_eq!(within(&[near.clone(), far].concat()), LinkClass::Sockets);
        assert_eq!(within(&[near[0].clone(), info("b", [0, 0], [0; 2])]), LinkClass::Sockets);
    }

    #[test]
    fn an_unreadable_profile_is_an_error_on_every_rank() {
        let mut infos = three();
        infos[0].prices.profile_bytes = 4;
        let of = |control: Control| {
            let deadline = Instant::now() + Duration::from_secs(60);
            let members = Members { control: &control, infos: infos.clone(), deadline };
            let outcome = exchange("nope", &members);
            control.leave().unwrap();
            outcome.unwrap_err().to_string()
        };
        let all: Vec<String> = thread::scope(|scope| {
            let of = &of;
            let all: Vec<_> =
                controls(3).unwrap().into_iter().map(|it| scope.spawn(move || of(it))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all, ["rank 0 sent a profile of prices that cannot be read"; 3]);
    }
}

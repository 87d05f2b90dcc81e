//! The names of this host.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use nix::unistd::{User, getuid};
use ringfold_bootstrap::interface::interfaces;

/// The longest time for the resolver to say that a name is one of this host. A name that takes
/// longer counts as that of another host.
const RESOLVING: Duration = Duration::from_secs(2);

/// The most names that are resolved at a time.
const RESOLVERS_MAX: usize = 64;

/// The name of this process's user, from all sources that the system asks, such as LDAP.
static OWN_USER: LazyLock<Option<String>> =
    LazyLock::new(|| User::from_uid(getuid()).ok().flatten().map(|user| user.name));

/// Whether each of these hosts is this one, in any spelling: `NAME`, `USER@NAME` with the name of
/// this process's user, or an address.
///
/// # Errors
/// The kernel does not tell which addresses this host has.
pub(crate) fn are_here(hosts: Vec<String>) -> io::Result<Vec<bool>> {
    let own = interfaces()?.into_iter().flat_map(|it| it.addresses).map(|it| it.ip);
    let own = Arc::new(own.collect::<Vec<_>>());
    let mut known = hosts.iter().map(|host| without_resolver(host, &own)).collect::<Vec<_>>();
    let open = known.iter().enumerate().filter(|(_, known)| known.is_none()).map(|(at, _)| at);
    let open = Arc::new(open.collect::<Vec<_>>());
    let (hosts, (found, answers)) = (Arc::new(hosts), channel());
    for first in 0..open.len().min(RESOLVERS_MAX) {
        let (hosts, own, open, found) =
            (Arc::clone(&hosts), Arc::clone(&own), Arc::clone(&open), found.clone());
        let resolver = std::thread::Builder::new().name("ringrun-names".into()).spawn(move || {
            for at in open.iter().skip(first).step_by(RESOLVERS_MAX) {
                // The answer may come too late.
                found.send((*at, resolves_here(name_of(&hosts[*at]), &own))).ok();
            }
        });
        if resolver.is_err() {
            break;
        }
    }
    drop(found);
    let until = Instant::now() + RESOLVING;
    while let Ok((at, is_here)) =
        answers.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        known[at] = Some(is_here);
    }
    Ok(known.into_iter().map(|known| known == Some(true)).collect())
}

/// Whether `host` is this one, if that is certain without a resolver.
fn without_resolver(host: &str, own: &[IpAddr]) -> Option<bool> {
    if host.rsplit_once('@').is_some_and(|(user, _)| !is_own_user(user)) {
        return Some(false);
    }
    let name = name_of(host);
    if let Ok(address) = name.parse::<IpAddr>() {
        return Some(is_own(address, own));
    }
    let full = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = full.split('.').next().unwrap_or_default();
    let is_it = |own: &&str| name.eq_ignore_ascii_case(own);
    ["localhost", &full, short].iter().any(is_it).then_some(true)
}

/// The name without user and final dot.
fn name_of(host: &str) -> &str {
    let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether all addresses of a name belong to this host.
fn resolves_here(name: &str, own: &[IpAddr]) -> bool {
    let Ok(found) = (name, 0).to_socket_addrs() else { return false };
    let mut found = found.peekable();
    found.peek().is_some() && found.all(|address| is_own(address.ip(), own))
}

/// Whether the address leads here. Binding a socket proves nothing: where `ip_nonlocal_bind` is
/// set, it accepts any address.
fn is_own(address: IpAddr, own: &[IpAddr]) -> bool {
    let address = address.to_canonical();
    // Every address of 127.0.0.0/8 leads here, and so does the unspecified one.
    address.is_loopback() || address.is_unspecified() || own.contains(&address)
}

/// Whether this process runs as the user of this name.
fn is_own_user(name: &str) -> bool {
    OWN_USER.as_deref() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_known() {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let here = interfaces().unwrap().into_iter().flat_map(|it| it.addresses);
        let mut here = here.map(|it| it.ip.to_string()).collect::<Vec<_>>();
        let loopback = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0"];
        here.extend(loopback.map(str::to_owned));
        here.extend(["localhost", "Localhost", "LOCALHOST", "localhost."].map(str::to_owned));
        here.extend([name.to_uppercase(), name]);
        if is_own_user("root") {
            here.extend(["root@localhost", "root@127.0.0.1"].map(str::to_owned));
        }
        let found = are_here(here.clone()).unwrap();
        assert_eq!(found, vec![true; here.len()], "{here:?}");
        let others = ["192.0.2.1", "2001:db8::1", "node17.invalid", "me@127.0.0.1", "@localhost"];
        let found = are_here(others.map(str::to_owned).to_vec()).unwrap();
        assert_eq!(found, vec![false; others.len()]);
    }

    #[test]
    fn a_name_belongs_to_the_host_that_has_all_of_its_addresses() {
        let own = ["10.1.2.3".parse().unwrap()];
        assert!(resolves_here("10.1.2.3", &own) && !resolves_here("10.1.2.4", &own));
        assert!(!resolves_here("no.such.name.invalid", &own));
    }
}

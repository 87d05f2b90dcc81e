//! The place of metrics.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::{fmt, io};

use super::error::ConfigError;
use super::file::check_file;
use super::values::{Parsed, given};

/// The place of the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metrics {
    /// Over HTTP at this address.
    At(SocketAddr),
    /// In this file.
    File(PathBuf),
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A port of the loopback interface or of an address, or a file that can be written.
pub(super) fn metrics(variable: &'static str, value: &str) -> Parsed<Metrics> {
    let wanted = "a port, as in 9400; an address with a port, as in 10.0.0.1:9400; or a file whose \
                  name has no colon";
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let is_file = value.contains('/') || !value.contains(':') && !is_number;
    if is_file {
        let path = PathBuf::from(value);
        let bad =
            |why: io::Error| ConfigError::Metrics { path: value.to_owned(), why: why.to_string() };
        return check_file(&path).map_err(bad).map(|()| Metrics::File(path));
    }
    let port = value.strip_prefix("localhost").unwrap_or(value);
    let port = port.strip_prefix(':').unwrap_or(port).parse().ok();
    let on_loopback = port.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let address = on_loopback.or_else(|| value.parse().ok()).filter(|it| it.port() > 0);
    given(variable, value, wanted, address).map(Metrics::At)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ringfold_harness::Folder;

    use super::*;

    #[test]
    fn ports_are_of_the_loopback_unless_an_address_is_named() {
        let of = |value| metrics("RINGFOLD_METRICS", value);
        for port in ["9400", ":9400", "localhost:9400", "127.0.0.1:9400"] {
            assert_eq!(of(port).unwrap().to_string(), "127.0.0.1:9400", "{port}");
        }
        assert_eq!(of("0.0.0.0:1").unwrap().to_string(), "0.0.0.0:1");
        assert_eq!(of("[::1]:65535").unwrap().to_string(), "[::1]:65535");
        for wrong in ["0", ":0", "65536", "99999999999999999999", "host:9400", "10.0.0.1:", ":"] {
            let text = of(wrong).unwrap_err().to_string();
            assert!(text.contains("RINGFOLD_METRICS") && text.contains("9400"), "{text}");
        }
    }

    #[test]
    fn a_file_must_be_writable() {
        let folder = Folder::new();
        let path = folder.at("metrics.prom");
        let found = metrics("RINGFOLD_METRICS", &path).unwrap();
        assert_eq!(found, Metrics::File(path.clone().into()));
        assert!(!Path::new(&path).exists(), "the check leaves nothing");
        for wrong in [folder.at("no/such"), folder.at(".")] {
            let text = metrics("RINGFOLD_METRICS", &wrong).unwrap_err().to_string();
            assert!(text.contains(&wrong) && text.contains("cannot be written"), "{text}");
        }
    }
}

//! Times and rates in units that people read, with three digits.

/// Formats a time of `ps` picoseconds, as in `12.5 us`.
pub(crate) fn time(ps: u64) -> String {
    scaled(ps as f64, [("s", 1e12), ("ms", 1e9), ("us", 1e6), ("ns", 1e3), ("ps", 1.0)])
}

/// Formats the rate of a network on which a byte takes `byte_ps` picoseconds, as in `400 Gbit/s`.
pub(crate) fn network_rate(byte_ps: u64) -> String {
    let bits = 8e12 / byte_ps.max(1) as f64;
    scaled(
        bits,
        [("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)],
    )
}

/// Formats the rate of memory in which a byte takes `byte_ps` picoseconds, as in `10 GB/s`.
pub(crate) fn memory_rate(byte_ps: u64) -> String {
    let bytes = 1e12 / byte_ps.max(1) as f64;
    scaled(bytes, BYTES)
}

/// Formats a rate of `rate` bytes per second, as in `1.25 GB/s`.
pub(crate) fn byte_rate(rate: u64) -> String {
    scaled(rate as f64, BYTES)
}

/// The units of bytes per second.
const BYTES: [(&str, f64); 5] =
    [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)];

/// Formats a value in the largest of these units in which it is at least 1.
fn scaled(value: f64, units: [(&str, f64); 5]) -> String {
    let fits = |(_, size): &&(&str, f64)| value >= *size * 0.9995;
    let (name, size) = units.iter().find(fits).unwrap_or(&units[4]);
    let value = value / size;
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let number = format!("{value:.decimals$}");
    let number =
        if decimals > 0 { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
    format!("{number} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits() {
        let times = [0, 500, 1_000, 12_345_678, 999_999_000, 229_177_080_000_000].map(time);
        assert_eq!(times, ["0 ps", "500 ps", "1 ns", "12.3 us", "1 ms", "229 s"]);
        let rates = [20, 800, 6400, 1, 8_000_000_000].map(network_rate);
        assert_eq!(rates, ["400 Gbit/s", "10 Gbit/s", "1.25 Gbit/s", "8 Tbit/s", "1 kbit/s"]);
        assert_eq!([100, 350, 1].map(memory_rate), ["10 GB/s", "2.86 GB/s", "1 TB/s"]);
    }
}

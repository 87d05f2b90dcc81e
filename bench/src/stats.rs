//! Percentiles.

/// Sorts `times`, and returns the percentile `share` (0 to 1) by the nearest-rank method; 0 without
/// times.
#[expect(clippy::cast_possible_truncation, reason = "at most the length")]
pub(crate) fn percentile(times: &mut [f64], share: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    let rank = (share * times.len() as f64).ceil() as usize;
    times.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_measured_times() {
        let mut times: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut times, 0.5), 50.0);
        assert_eq!(percentile(&mut times, 0.99), 99.0);
        assert_eq!(percentile(&mut times, 1.0), 100.0);
        assert_eq!(percentile(&mut [7.0], 0.5), 7.0);
        assert_eq!(percentile(&mut [], 0.5), 0.0);
    }
}

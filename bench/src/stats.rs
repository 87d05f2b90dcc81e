//! Percentiles, and the spread of times.

/// Sorts `times`, and returns the percentile `share` (0 to 1) by the nearest-rank method; 0 without
/// times.
#[expect(clippy::cast_possible_truncation, reason = "at most the length")]
pub(crate) fn percentile(times: &mut [f64], share: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    let rank = (share * times.len() as f64).ceil() as usize;
    times.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// The spread of some times, with the members of nccl-tests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) deviation: f64,
}

impl Spread {
    /// Returns the spread of `times`.
    pub(crate) fn of(times: &[f64]) -> Self {
        let (mut sorted, count) = (times.to_vec(), times.len().max(1) as f64);
        let [p95, p99] = [0.95, 0.99].map(|share| percentile(&mut sorted, share));
        let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
        let mean = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count;
        let (min, max) = (at(0), at(times.len().saturating_sub(1)));
        // As in nccl-tests, which takes the upper one of two in the middle.
        let p50 = at(times.len() / 2);
        Self { min, max, mean, p50, p95, p99, deviation: variance.sqrt() }
    }

    /// Returns the deviation in percent of the mean.
    pub(crate) fn variation(&self) -> f64 {
        if self.mean > 0.0 { 100.0 * self.deviation / self.mean } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Spread, percentile};

    #[test]
    fn percentiles_are_measured_times() {
        let mut times: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut times, 0.5), 50.0);
        assert_eq!(percentile(&mut times, 0.99), 99.0);
        assert_eq!(percentile(&mut times, 1.0), 100.0);
        assert_eq!(percentile(&mut [7.0], 0.5), 7.0);
        assert_eq!(percentile(&mut [], 0.5), 0.0);
    }

    #[test]
    fn a_spread_has_the_members_of_nccl_tests() {
        let spread = Spread::of(&[4.0, 2.0, 2.0, 8.0]);
        let Spread { min, max, mean, p50, p95, p99, deviation } = spread;
        assert_eq!([min, max, mean, p50, p95, p99], [2.0, 8.0, 4.0, 4.0, 8.0, 8.0]);
        assert_eq!(deviation, 6.0_f64.sqrt());
        assert!((spread.variation() - 61.237).abs() < 1e-3);
        assert_eq!(Spread::of(&[0.0]).variation(), 0.0);
    }
}

//! Whole numbers of measures.

/// The nearest whole number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers that do not fit become the nearest that does"
)]
pub(crate) fn whole(measure: f64) -> u64 {
    measure.round() as u64
}

//! Whole numbers: of measures, and of lists.

/// The nearest whole number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers that do not fit become the nearest that does"
)]
pub(crate) fn whole(measure: f64) -> u64 {
    measure.round() as u64
}

/// A number of a list, in half of the memory.
///
/// # Panics
/// If the list is longer than memory.
pub(crate) fn short(number: usize) -> u32 {
    u32::try_from(number).expect("lists are shorter")
}

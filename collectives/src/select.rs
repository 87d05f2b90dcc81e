//! placeholder
use crate::algorithm::Algorithm;
use core::str::FromStr;
use ringfold_topology::Layout;
use ringfold_types::Call;
/// placeholder
#[derive(Clone, Debug, Default)]
pub struct Constraints;
/// placeholder
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidConstraints;
impl core::fmt::Display for InvalidConstraints {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("bad")
    }
}
impl core::error::Error for InvalidConstraints {}
impl FromStr for Constraints {
    type Err = InvalidConstraints;
    fn from_str(_: &str) -> Result<Self, InvalidConstraints> {
        Err(InvalidConstraints)
    }
}
/// placeholder
#[must_use]
pub fn select(call: &Call, _: &Layout, _: &Constraints) -> &'static Algorithm {
    &Algorithm::of(call.collective)[0]
}
/// placeholder
#[must_use]
pub fn chunk_len(_: &Call, _: &Layout) -> usize {
    32768
}

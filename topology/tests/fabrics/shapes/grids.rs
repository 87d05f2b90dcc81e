//! Networks whose switches have coordinates.

use super::network::{Network, Site, flat, plain_leaves};
use crate::wiring::Wiring;

/// Calls `join` once for each two switches that differ in one coordinate. The arguments are their
/// numbers, that coordinate of both, and the dimension's length.
fn along_dims(dims: &[usize], mut join: impl FnMut([usize; 2], [usize; 2], usize)) {
    let total: usize = dims.iter().product();
    let mut stride = 1;
    for length in dims {
        for a in 0..total {
            let from = a / stride % length;
            for to in from + 1..*length {
                join([a, a + (to - from) * stride], [from, to], *length);
            }
        }
        stride *= length;
    }
}

pub(super) fn torus(wiring: &mut Wiring, site: Site, dims: &[usize]) -> Network {
    let switches = plain_leaves(wiring, site, dims.iter().product());
    along_dims(dims, |[a, b], [from, to], length| {
        if to == from + 1 || (from == 0 && to + 1 == length) {
            wiring.join(switches[a], switches[b], site.times);
        }
    });
    flat(switches)
}

pub(super) fn hyperx(wiring: &mut Wiring, site: Site, dims: &[usize]) -> Network {
    let switches = plain_leaves(wiring, site, dims.iter().product());
    along_dims(dims, |[a, b], _, _| wiring.join(switches[a], switches[b], site.times));
    flat(switches)
}

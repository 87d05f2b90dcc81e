//! All-reduce: every rank gets the reduction of all inputs. Every algorithm combines the inputs of
//! an element in one order. Either one rank does so and sends the result around, or all ranks use
//! the same order. So all ranks have the same bits.

mod double_tree;
mod halving_doubling;
mod hierarchical;
mod in_network;
mod one_shot;
mod recursive_doubling;
mod ring;
mod staged;
mod staged_one_shot;
mod tree;
mod two_shot;
mod window;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[
    ring::ALGORITHM,
    tree::ALGORITHM,
    double_tree::ALGORITHM,
    recursive_doubling::ALGORITHM,
    halving_doubling::ALGORITHM,
    one_shot::ALGORITHM,
    two_shot::ALGORITHM,
    window::ALGORITHM,
    staged::ALGORITHM,
    staged_one_shot::ALGORITHM,
    hierarchical::ALGORITHM,
    in_network::ALGORITHM,
];

//! All ranks' findings come together, and one rank for each host and set of ports tries every rail
//! to every other.

use ringfold::{Communicator, Config};
use ringfold_types::Rank;

use super::end::{Card, ends};
use super::report;
use super::tour::Tour;
use crate::share::share;

/// Examines all hosts. Only rank 0 has something to say.
pub(super) fn answer(mut comm: Communicator, config: &Config) -> anyhow::Result<(String, bool)> {
    let near = comm.interface().map(|choice| choice.address);
    let own = Card::of_this_host(&comm, config, near);
    let cards: Vec<Card> = share(&mut comm, &own)?;
    let ends = ends(&comm, cards);
    let tried = Tour { config, near, ends: &ends }.all(&mut comm)?;
    let is_first = comm.rank() == Rank(0);
    comm.leave()?;
    Ok(if is_first { report::all(&ends, &tried, config) } else { (String::new(), true) })
}

//! Ranks as threads of this process, for tests, examples and doctests.

use std::panic::resume_unwind;
use std::thread;

use ringfold_topology::{Occupancy, discover};
use ringfold_transport::Transport;
use ringfold_transport::local::Local;
use ringfold_types::limits::CHANNELS_MAX;

use crate::communicator::Communicator;
use crate::config::Config;
use crate::error::Error;
use crate::setup::{InitError, ThreadGroups};

/// Runs `rank_main` on `size` threads, each a rank of one communicator, and returns their results
/// in rank order. The settings are those of the environment, as for [`Communicator::init`]. Blocks
/// until all threads have ended.
///
/// A panic on one thread makes the calls of the others fail. It is resumed on the caller's thread
/// when all threads have ended.
///
/// # Errors
/// [`Error::Config`] if a setting is invalid; [`Error::Init`] if the system lacks descriptors;
/// [`Error::Leave`] if the ranks have made different calls.
///
/// # Panics
/// If a rank panics, or `size` is 0.
///
/// ```
/// use ringfold::{ReduceOp, local};
///
/// let sums = local::run(3, |comm| {
///     let mut value = [comm.rank().0 + 1];
///     comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
///     value[0]
/// })?;
/// assert_eq!(sums, [6, 6, 6]);
/// # Ok::<(), ringfold::Error>(())
/// ```
pub fn run<R: Send>(
    size: usize,
    rank_main: impl Fn(&mut Communicator) -> R + Sync,
) -> Result<Vec<R>, Error> {
    run_with(&Config::from_env()?, size, rank_main)
}

/// Runs `rank_main` on `size` threads as [`run`] does, with the caller's settings.
///
/// # Errors
/// [`Error::Init`] or [`Error::Leave`], as for [`run`].
///
/// # Panics
/// If a rank panics, or `size` is 0.
pub fn run_with<R: Send>(
    config: &Config,
    size: usize,
    rank_main: impl Fn(&mut Communicator) -> R + Sync,
) -> Result<Vec<R>, Error> {
    let communicators = communicators(config, size)?;
    let rank_main = &rank_main;
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = communicators
            .into_iter()
            .map(|mut comm| {
                scope.spawn(move || {
                    let result = rank_main(&mut comm);
                    (result, comm.leave())
                })
            })
            .collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let results: Vec<_> =
        results.into_iter().map(|result| result.unwrap_or_else(|e| resume_unwind(e))).collect();
    results.into_iter().map(|(result, left)| left.map(|()| result)).collect()
}

fn communicators(config: &Config, size: usize) -> Result<Vec<Communicator>, Error> {
    assert!(size > 0, "a communicator has at least one rank");
    let ends = Local::mesh(size).map_err(InitError::Descriptors)?;
    communicators_over(config, ends.into_iter().map(|end| Box::new(end) as _).collect())
}

/// Makes a communicator for each rank over its end of a transport.
pub(crate) fn communicators_over(
    config: &Config,
    ends: Vec<Box<dyn Transport>>,
) -> Result<Vec<Communicator>, Error> {
    let occupancy = Occupancy { ranks: ends.len(), cpus: discover::cores() };
    let channels = config.channels.map_or(1, |channels| channels.clamp(1, CHANNELS_MAX));
    let parts = ThreadGroups::new(occupancy, channels.into()).parts(ends)?;
    let config = config.bounded();
    Ok(parts.into_iter().map(|parts| Communicator::new(&config, parts)).collect())
}

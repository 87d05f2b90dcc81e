//! Bringing the ranks together: who they are, where they are, and how they reach each other.

use std::io;

use ringfold_topology::{Layout, discover};

use crate::communicator::Parts;
use crate::config::Config;
use crate::engine::Engine;
use crate::plans::Plans;
use crate::router::Router;
use crate::wait::Patience;

/// Why the ranks could not come together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The system has no file descriptors left.
    #[error("no file descriptor left ({0}); raise the limit with `ulimit -n`")]
    Descriptors(io::Error),
}

/// Joins the job that the environment describes. Blocks until all ranks are there.
pub(crate) fn join(config: &Config) -> Result<Parts, InitError> {
    let mut controls = ringfold_bootstrap::local::controls(1).map_err(InitError::Descriptors)?;
    let Some(control) = controls.pop() else { unreachable!("one was asked for") };
    Ok(Parts {
        layout: Layout::one_host(1),
        engine: Engine::new(Router::new(Vec::new(), vec![0]), Patience::new(1, discover::cores())),
        plans: Plans::new(config.algorithms.clone(), config.chunk_bytes),
        control,
        timeout: config.timeout,
    })
}

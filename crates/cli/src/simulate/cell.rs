//! One call by one algorithm.

use anyhow::Context;
use ringfold_collectives::Algorithm;
use ringfold_collectives::select::{buffer_bytes, chunk_len};
use ringfold_sim::{Limits, Outcome, Programs, TooMany, simulate};
use ringfold_types::{Amount, Call};

use super::bar::Bar;
use super::question::Question;

/// A size, with the algorithm that ringfold chooses there.
pub(super) struct Size {
    pub(super) call: Call,
    pub(super) bytes: usize,
    pub(super) chosen: &'static str,
    pub(super) cells: Vec<Cell>,
}

/// One call by one algorithm.
pub(super) struct Cell {
    pub(super) algorithm: &'static str,
    /// Its result; or the number of operations, if they are too many to run.
    pub(super) outcome: Result<Outcome, usize>,
}

impl Cell {
    pub(super) fn of(
        question: &Question,
        call: &Call,
        algorithm: &'static Algorithm,
        bar: &Bar,
    ) -> anyhow::Result<Self> {
        let job = &question.job;
        let chunk = chunk_len(call, &job.layout);
        let (name, is_one) = (algorithm.name, question.algorithms.len() == 1);
        let size = Amount(buffer_bytes(call, job.layout.size()));
        bar.show(format!("programs of {name}, {size}"), &job.progress);
        let programs = match Programs::of(job, call, algorithm, chunk, Limits::default()) {
            Err(TooMany(all)) if !is_one => return Ok(Self { algorithm: name, outcome: Err(all) }),
            programs => programs.with_context(|| {
                format!("--algorithm {name}: give fewer ranks or bytes than {call}")
            })?,
        };
        bar.show(format!("{name}, {size}"), &job.progress);
        let outcome = simulate(job, &programs, question.routing);
        let outcome = outcome.with_context(|| format!("{call} by {name}"))?;
        Ok(Self { algorithm: name, outcome: Ok(outcome) })
    }
}

/// GB/s of a rank: bytes over time, and the same as nccl-tests counts what a link carries.
pub(super) fn bandwidths(call: &Call, bytes: usize, ranks: usize, time_ps: u64) -> [f64; 2] {
    let alone = bytes as f64 / time_ps.max(1) as f64 * 1e3;
    [alone, alone * call.collective.bus_factor(ranks)]
}

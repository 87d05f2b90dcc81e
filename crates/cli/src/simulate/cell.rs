//! One call by one algorithm.

use anyhow::{Context, ensure};
use ringfold_collectives::select::chunk_len;
use ringfold_collectives::{Algorithm, Program, ScheduleParams, Target, lower};
use ringfold_sim::{Outcome, simulate};
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Rank};

use super::question::Question;

/// Operations of all ranks together. Each takes about 100 bytes, and two of them may have a
/// connection of their own, which takes some hundreds.
const OPERATIONS_MAX: usize = 10_000_000;

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
    ) -> anyhow::Result<Self> {
        let layout = &question.job.layout;
        let chunk = chunk_len(call, layout);
        let program = |rank| -> Program {
            let window_bytes = LINK_BYTES_MIN;
            let plan = ScheduleParams { call: *call, layout, rank, chunk, window_bytes };
            lower(&(algorithm.schedule)(&plan), Target::default())
        };
        let operations = |program: &Program| program.lanes().iter().map(Vec::len).sum::<usize>();
        // The root and the last rank stand for the busiest ones.
        let size = layout.size();
        let tried = [call.root, Rank::at(size - 1)].map(|rank| operations(&program(rank)));
        let all = tried[1].saturating_mul(size).saturating_add(tried[0]);
        let is_one = question.algorithms.len() == 1;
        let name = algorithm.name;
        ensure!(
            all <= OPERATIONS_MAX || !is_one,
            "--algorithm {name}: {size} ranks have about {all} operations, and {OPERATIONS_MAX} \
             can be simulated; give fewer ranks or bytes"
        );
        if all > OPERATIONS_MAX {
            return Ok(Self { algorithm: name, outcome: Err(all) });
        }
        let programs: Vec<Program> = (0..size).map(|rank| program(Rank::at(rank))).collect();
        let outcome = simulate(&question.job, &programs, question.routing);
        let outcome = outcome.with_context(|| format!("{call} by {name}"))?;
        Ok(Self { algorithm: name, outcome: Ok(outcome) })
    }
}

/// GB/s of a rank: bytes over time, and the same as nccl-tests counts what a link carries.
pub(super) fn bandwidths(call: &Call, bytes: usize, ranks: usize, time_ps: u64) -> [f64; 2] {
    let alone = bytes as f64 / time_ps.max(1) as f64 * 1e3;
    [alone, alone * call.collective.bus_factor(ranks)]
}

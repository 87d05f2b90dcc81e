//! The stage: memory of every rank that all ranks have mapped, through which calls on ordinary
//! buffers pass. It is made within the first call that needs it, and kept.

use ringfold_collectives::{Algorithm, Plan};
use ringfold_reduce::Kernel;
use ringfold_types::limits::{LINK_BYTES_MIN, STAGE_BYTES};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp};

use crate::communicator::Communicator;
use crate::engine::{Task, Trouble};
use crate::memory::{Memory, User};

/// Ranks that agree by messages from each to all others.
const DIRECT_RANKS: usize = 16;

impl Communicator {
    /// Makes the stage within a call whose bytes carry `tag`, which all ranks are in by an
    /// algorithm that needs it. Whether it is there: where some rank lacks memory for it, no rank
    /// has it, and calls have to be planned anew, without. Blocks.
    #[cold]
    pub(crate) fn make_stage(&mut self, tag: u32) -> Result<bool, Trouble> {
        // Who is in another call is found out before anyone waits for its part.
        self.do_all_say_yes(tag, true)?;
        let made = self.exchange(STAGE_BYTES)?;
        let is_there = self.do_all_say_yes(tag, made.is_ok())?;
        match made {
            Ok(stage) if is_there => self.stage = Some(stage),
            made => {
                let why =
                    made.err().map_or_else(|| "another lacks it".to_owned(), |e| e.to_string());
                let rank = self.rank();
                tracing::warn!(
                    "rank {rank}: no memory for a stage, so that calls copy more: {why}"
                );
                self.layout = self.layout.clone().sharing_memory(false);
                self.plans.forget();
                self.windows.plans(true).forget();
            }
        }
        Ok(is_there)
    }

    /// Asks all ranks, within a call whose bytes carry `tag`.
    pub(crate) fn do_all_say_yes(&mut self, tag: u32, yes: bool) -> Result<bool, Trouble> {
        Ok(self.gather(tag, &[u8::from(yes)])?.iter().all(|answer| *answer == 1))
    }

    /// What all ranks say, in rank order, within a call whose bytes carry `tag`; each says as much.
    pub(crate) fn gather(&mut self, tag: u32, own: &[u8]) -> Result<Vec<u8>, Trouble> {
        let (collective, data_type, op) = (Collective::AllGather, DataType::U8, ReduceOp::Sum);
        let call = Call { collective, count: own.len(), data_type, op, root: Rank(0) };
        let (size, rank, layout) = (self.size(), self.rank(), &self.layout);
        // Where all wait for all, a rank in another call is found out at once. That takes links to
        // all others, which many ranks do not make for it.
        let name = if size <= DIRECT_RANKS { "direct" } else { "bruck" };
        let algorithm = Algorithm::named(collective, name).expect("an algorithm of that name");
        let chunk = size * own.len();
        let plan = Plan { call, layout, rank, chunk, window_bytes: LINK_BYTES_MIN };
        let (schedule, kernel) = ((algorithm.schedule)(&plan), Kernel::new(data_type, op, size));
        let mut staged = vec![0; schedule.scratch_len()];
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let (schedule, kernel, timeout) = (&schedule, &kernel, self.timeout);
        let task =
            Task { schedule, kernel, in_lines: false, offers: false, tag, timeout, watch: control };
        let mut all = vec![0; size * own.len()];
        let input_at = rank.index() * own.len();
        all[input_at..][..own.len()].copy_from_slice(own);
        let user = User::Together { bytes: &mut all, input_at, output_at: 0 };
        self.engine.run(&task, &mut Memory::new(user, &mut staged, 1, 1), 0)?;
        Ok(all)
    }
}

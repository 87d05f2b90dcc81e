//! The stage: memory of every rank that all ranks have mapped, through which calls on ordinary
//! buffers pass. It is made within the first call that needs it, and kept.

use ringfold_collectives::{Algorithm, Plan};
use ringfold_reduce::Kernel;
use ringfold_types::limits::{LINK_BYTES_MIN, STAGE_BYTES};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp};

use crate::communicator::Communicator;
use crate::engine::{Task, Trouble};
use crate::memory::{Memory, User};

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
    fn do_all_say_yes(&mut self, tag: u32, yes: bool) -> Result<bool, Trouble> {
        let (collective, data_type, op) = (Collective::AllGather, DataType::U8, ReduceOp::Sum);
        let call = Call { collective, count: 1, data_type, op, root: Rank(0) };
        let (size, rank, layout) = (self.size(), self.rank(), &self.layout);
        let plan = Plan { call, layout, rank, chunk: 1, window_bytes: LINK_BYTES_MIN };
        let direct = Algorithm::named(collective, "direct").expect("an algorithm of that name");
        let (schedule, kernel) = ((direct.schedule)(&plan), Kernel::new(data_type, op, size));
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let (schedule, kernel, timeout) = (&schedule, &kernel, self.timeout);
        let task = Task { schedule, kernel, in_lines: false, tag, timeout, control };
        let mut answers = vec![0; size];
        answers[rank.index()] = u8::from(yes);
        let user = User::Together { bytes: &mut answers, input_at: rank.index(), output_at: 0 };
        self.engine.run(&task, &mut Memory::new(user, &mut [], 1, 1), 0)?;
        Ok(answers.iter().all(|answer| *answer == 1))
    }
}

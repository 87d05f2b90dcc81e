//! Schedules as text.

use alloc::vec::Vec;
use core::fmt;

use crate::schedule::{Schedule, Source, Step};

impl fmt::Display for Schedule {
    /// One line per step, to follow the algorithm on paper.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (call, rank, size, algorithm) =
            (self.call(), self.rank(), self.size(), self.algorithm());
        write!(f, "rank {rank} of {size}: {call}")?;
        if let Some(blocks) = self.blocks() {
            write!(f, " in {blocks}")?;
        }
        writeln!(f, " by {algorithm}")?;
        if self.lanes().iter().all(Vec::is_empty) {
            writeln!(f, "  nothing to do")?;
        }
        for (lane, steps) in self.lanes().iter().enumerate() {
            for (index, step) in steps.iter().enumerate() {
                write!(f, "  lane {lane} step {index:>3}  ")?;
                self.fmt_step(f, step)?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl Schedule {
    fn fmt_step(&self, f: &mut fmt::Formatter<'_>, step: &Step) -> fmt::Result {
        match step {
            Step::Send { to, src } => write!(f, "send    {src} -> rank {to}"),
            Step::Recv { from, dst } => write!(f, "recv    {dst} <- rank {from}"),
            Step::Copy { src, dst } => write!(f, "copy    {dst} <- {src}"),
            Step::Put { to, src } => write!(f, "put     {src} => rank {to}"),
            Step::Get { from, src, dst } => write!(f, "get     {dst} <- rank {from}'s {src}"),
            Step::Signal => write!(f, "signal  all"),
            Step::Wait { from } => write!(f, "wait    rank {from}"),
            Step::Offload { src, dst } => write!(f, "offload {dst} <- all {src}"),
            Step::Swap => write!(f, "swap    staging"),
            Step::Reduce { dst, sources } => {
                write!(f, "reduce  {dst} <-")?;
                for (index, source) in self.sources(sources).iter().enumerate() {
                    f.write_str(if index == 0 { " " } else { " + " })?;
                    match source {
                        Source::Local(slice) => write!(f, "{slice}")?,
                        Source::Wire(from, _) => write!(f, "rank {from}")?,
                        Source::Peer(of, slice) => write!(f, "rank {of}'s {slice}")?,
                    }
                }
                Ok(())
            }
        }
    }
}

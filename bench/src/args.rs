//! The command line: nccl-tests' flags and a few more.

use clap::Parser;
use ringfold_types::{Amount, InvalidAmount};

/// Times collective operations and checks their results.
///
/// Under a launcher (ringrun, torchrun, srun, mpiexec) this process is one rank. Started alone with
/// --ranks N it starts N ranks of itself on this machine.
#[derive(Clone, Debug, Parser)]
#[command(about, max_term_width = 100, disable_version_flag = true)]
pub(crate) struct Args {
    /// Smallest size in bytes, as in 8, 64K, 1.5M
    #[arg(short = 'b', long, default_value = "32M", value_parser = parse_bytes)]
    pub(crate) minbytes: usize,
    /// Largest size in bytes
    #[arg(short = 'e', long, default_value = "32M", value_parser = parse_bytes)]
    pub(crate) maxbytes: usize,
    /// Increment in bytes from one size to the next
    #[arg(short = 'i', long, default_value = "1M", value_parser = parse_bytes)]
    pub(crate) stepbytes: usize,
    /// Factor from one size to the next; above 1 it is used instead of -i
    #[arg(short = 'f', long, default_value_t = 1)]
    pub(crate) stepfactor: usize,
    /// Timed calls per size
    #[arg(short = 'n', long, default_value_t = 20)]
    pub(crate) iters: usize,
    /// Untimed calls before the timed ones
    #[arg(short = 'w', long = "warmup_iters", default_value_t = 1)]
    pub(crate) warmup_iters: usize,
    /// Rounds over all sizes; 0: without end
    #[arg(short = 'N', long = "run_cycles", default_value_t = 1)]
    pub(crate) run_cycles: usize,
    /// Checked calls per size; 0: no checks
    #[arg(short = 'c', long, default_value_t = 1)]
    pub(crate) check: usize,
    /// sum, prod, min, max, avg, mulsum, or all
    #[arg(short = 'o', long, default_value = "sum")]
    pub(crate) op: String,
    /// int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2, a short name
    /// as in bf16, or all
    #[arg(short = 'd', long, default_value = "float")]
    pub(crate) datatype: String,
    /// The root; -1 or all: every rank in turn
    #[arg(short = 'r', long, default_value = "0", allow_hyphen_values = true)]
    pub(crate) root: String,
    /// 1: a barrier after every call; 2: as 0, since every call blocks; 3: an untimed barrier after
    /// every call
    #[arg(short = 'z', long, default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) blocking: u8,
    /// Timeout of a call in seconds; 0: as RINGFOLD_TIMEOUT
    #[arg(short = 'T', long, default_value_t = 0)]
    pub(crate) timeout: u64,
    /// Reported time: 0: rank 0's, 1: the mean, 2: the shortest, 3: the longest
    #[arg(short = 'a', long, default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) average: u8,
    /// 1: report the CPU time of the calling thread in place of the wall time
    #[arg(short = 'C', long = "report_cputime", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) report_cputime: u8,
    /// 1: buffers of the communicator, which RDMA devices access without copies; 2: windows (memory
    /// that all ranks of a host have mapped), for allreduce
    #[arg(short = 'R', long = "local_register", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) local_register: u8,
    /// Also write the results to this file; its name must end in .json
    #[arg(short = 'J', long = "output_file")]
    pub(crate) output_file: Option<std::path::PathBuf>,

    /// Start this many ranks on this machine; not allowed under a launcher
    #[arg(long)]
    pub(crate) ranks: Option<usize>,
    /// Add columns: 50th and 99th percentile of the times of calls that all ranks start together
    #[arg(long)]
    pub(crate) latency: bool,
    /// Add a column: the algorithm that ran
    #[arg(long)]
    pub(crate) algo: bool,

    /// Threads per process: a rank is a process here; use --ranks or a launcher
    #[arg(short = 't', long, default_value_t = 1, hide = true)]
    nthreads: usize,
    #[arg(short = 'g', long, default_value_t = 1, hide = true)]
    ngpus: usize,
    #[arg(short = 'm', long = "agg_iters", default_value_t = 1, hide = true)]
    agg_iters: usize,
    #[arg(short = 'p', long = "parallel_init", default_value_t = 0, hide = true)]
    parallel_init: usize,
    #[arg(short = 'y', long = "stream_null", default_value_t = 0, hide = true)]
    stream_null: usize,
    #[arg(short = 'G', long = "cudagraph", default_value_t = 0, hide = true)]
    cudagraph: usize,
    #[arg(short = 'x', long = "cta_policy", hide = true)]
    cta_policy: Option<usize>,
    #[arg(short = 'D', long = "device_implementation", default_value_t = 0, hide = true)]
    device_implementation: usize,
    #[arg(short = 'V', long = "device_cta_count", hide = true)]
    device_cta_count: Option<usize>,
    #[arg(short = 'M', long, default_value_t = 0, hide = true)]
    memory: usize,
}

impl Args {
    /// Returns the reason why the first given flag of nccl-tests does not apply here.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        let refusals = [
            (self.nthreads != 1, "-t: a rank is a process here; use --ranks N or a launcher"),
            (self.ngpus != 1, "-g: ringfold works on memory of the host; a rank has no GPUs"),
            (self.agg_iters != 1, "-m: there are no groups of calls to aggregate"),
            (
                self.parallel_init != 0,
                "-p: a process has one rank, so nothing to start in parallel",
            ),
            (self.stream_null != 0, "-y: there are no CUDA streams"),
            (self.cudagraph != 0, "-G: there are no CUDA graphs"),
            (self.cta_policy.is_some(), "-x: there are no CTAs"),
            (self.device_implementation != 0, "-D: there is no device to call from"),
            (self.device_cta_count.is_some(), "-V: there are no CTAs"),
            (self.memory != 0, "-M: there is no GPU memory to report"),
        ];
        refusals.into_iter().find(|(given, _)| *given).map(|(_, reason)| reason)
    }
}

fn parse_bytes(text: &str) -> Result<usize, InvalidAmount> {
    text.parse().map(|Amount(bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_do_not_apply_are_refused_with_a_reason() {
        let args = |line: &str| Args::try_parse_from(line.split(' ')).unwrap();
        assert!(args("perf -g 8").refusal().unwrap().contains("-g"));
        assert_eq!(args("perf -R 1").refusal(), None);
        assert!(args("perf -G 1").refusal().unwrap().contains("-G"));
        assert_eq!(args("perf -t 1 -g 1 -b 8 -e 128M -f 2").refusal(), None);
    }
}

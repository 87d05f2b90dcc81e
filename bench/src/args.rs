//! The command line: nccl-tests' flags and a few more.

use clap::{CommandFactory, FromArgMatches, Parser};
use ringfold::limits::RANKS_MAX;
use ringfold_types::{Amount, InvalidAmount};

use crate::test::Test;

/// The most calls, checks and rounds.
const CALLS_MAX: usize = 1_000_000_000;

/// The most calls whose times are kept one by one.
const TIMES_MAX: usize = 1 << 16;

/// The most calls in one group.
const GROUP_MAX: usize = 1024;

/// Under a launcher (ringrun, torchrun, srun, mpiexec) this process is one rank. Started alone with
/// --ranks N it starts N ranks of itself on this machine.
#[derive(Clone, Debug, Parser)]
#[command(max_term_width = 100, disable_version_flag = true)]
#[command(args_override_self = true, allow_negative_numbers = true)]
#[command(after_help = UNSUITED)]
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
    #[arg(short = 'f', long, default_value_t = 1, value_parser = whole::<0, CALLS_MAX>)]
    pub(crate) stepfactor: usize,
    /// Timed iterations per size
    #[arg(short = 'n', long, default_value_t = 20, value_parser = whole::<1, CALLS_MAX>)]
    pub(crate) iters: usize,
    /// Calls in one iteration; several are a group of calls, which packs short ones into one
    #[arg(short = 'm', long = "agg_iters", default_value_t = 1)]
    #[arg(value_parser = whole::<1, GROUP_MAX>)]
    pub(crate) agg_iters: usize,
    /// Untimed calls before the timed ones
    #[arg(short = 'w', long = "warmup_iters", default_value_t = 1)]
    #[arg(value_parser = whole::<0, CALLS_MAX>)]
    pub(crate) warmup_iters: usize,
    /// Rounds over all sizes; 0: without end
    #[arg(short = 'N', long = "run_cycles", default_value_t = 1)]
    #[arg(value_parser = whole::<0, CALLS_MAX>)]
    pub(crate) run_cycles: usize,
    /// Checked iterations per size; 0: no checks
    #[arg(short = 'c', long, default_value_t = 1, value_parser = whole::<0, CALLS_MAX>)]
    pub(crate) check: usize,
    /// sum, prod, min, max, avg, mulsum, another operation of ringfold, or all
    #[arg(short = 'o', long, default_value = "sum")]
    pub(crate) op: String,
    /// int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2, another name
    /// of such a type as in bf16, or all
    #[arg(short = 'd', long, default_value = "float")]
    pub(crate) datatype: String,
    /// The root; -1 or all: every rank in turn
    #[arg(short = 'r', long, default_value = "0", allow_hyphen_values = true)]
    pub(crate) root: String,
    /// 1: a barrier after every iteration; 2: as 0, since every call blocks; 3: an untimed barrier
    /// after every iteration
    #[arg(short = 'z', long, default_value_t = 0, value_parser = whole::<0, 3>)]
    pub(crate) blocking: usize,
    /// Timeout of a call in seconds; 0: as RINGFOLD_TIMEOUT
    #[arg(short = 'T', long, default_value_t = 0, value_parser = whole::<0, CALLS_MAX>)]
    pub(crate) timeout: usize,
    /// Reported time: 0: rank 0's, 1: the mean, 2: the shortest, 3: the longest
    #[arg(short = 'a', long, default_value_t = 1, value_parser = whole::<0, 3>)]
    pub(crate) average: usize,
    /// 1: report the CPU time of the calling thread in place of the wall time
    #[arg(short = 'C', long = "report_cputime", default_value_t = 0, value_parser = whole::<0, 1>)]
    pub(crate) report_cputime: usize,
    /// 1: add a column: the time of day, in UTC
    #[arg(short = 'S', long = "report_timestamps", default_value_t = 0)]
    #[arg(value_parser = whole::<0, 1>)]
    pub(crate) report_timestamps: usize,
    /// 1: add columns: the least, the most, the 99th percentile and the variation of the times of
    /// single iterations on the slowest rank
    #[arg(short = 'I', long = "per_iter_timing", default_value_t = 0)]
    #[arg(value_parser = whole::<0, 1>)]
    pub(crate) per_iter_timing: usize,
    /// Iterations at the start that the columns of -I leave out
    #[arg(short = 'K', long = "per_iter_skip", default_value_t = 0)]
    #[arg(value_parser = whole::<0, TIMES_MAX>)]
    pub(crate) per_iter_skip: usize,
    /// 1: buffers that stay registered with RDMA devices, which access them without copies; 2:
    /// windows (memory that all ranks of a host have mapped), for allreduce
    #[arg(short = 'R', long = "local_register", default_value_t = 0, value_parser = whole::<0, 2>)]
    pub(crate) local_register: usize,
    /// Elements by which both buffers are out of alignment
    #[arg(short = 'u', long, default_value_t = 0, value_parser = whole::<0, CALLS_MAX>)]
    pub(crate) unalign: usize,
    /// Also write the results to this file; its name must end in .json
    #[arg(short = 'J', long = "output_file")]
    pub(crate) output_file: Option<std::path::PathBuf>,

    /// Start this many ranks on this machine; not allowed under a launcher
    #[arg(long, value_parser = whole::<1, RANKS_MAX>)]
    pub(crate) ranks: Option<usize>,
    /// Add columns: 50th and 99th percentile of the times of calls that all ranks start together
    #[arg(long)]
    pub(crate) latency: bool,
    /// Add columns: the time of started calls that the ranks wait for at once, that with as long a
    /// computation in between, and the part of the call that the computation hides
    #[arg(long)]
    pub(crate) overlap: bool,
    /// Add columns: the parts of the time of calls out of place, as means of the ranks. A rank
    /// waits while nothing moves, and combines elements; all else is moving. Beside them
    /// stand the rank that waits least, for which others may wait, and the time by the prices
    #[arg(long)]
    pub(crate) profile: bool,
    /// Add a column: the algorithm that ran
    #[arg(long)]
    pub(crate) algo: bool,

    #[arg(short = 't', long, default_value_t = 1, hide = true)]
    nthreads: i64,
    #[arg(short = 'g', long, default_value_t = 1, hide = true)]
    ngpus: i64,
    #[arg(short = 'p', long = "parallel_init", default_value_t = 0, hide = true)]
    parallel_init: i64,
    #[arg(short = 'y', long = "stream_null", default_value_t = 0, hide = true)]
    stream_null: i64,
    #[arg(short = 'G', long = "cudagraph", default_value_t = 0, hide = true)]
    cudagraph: i64,
    #[arg(short = 'x', long = "cta_policy", default_value_t = -1, hide = true)]
    cta_policy: i64,
    #[arg(short = 'D', long = "device_implementation", default_value_t = 0, hide = true)]
    device_implementation: i64,
    #[arg(short = 'V', long = "device_cta_count", default_value_t = 16, hide = true)]
    device_cta_count: i64,
    #[arg(short = 'M', long, default_value_t = 0, hide = true)]
    memory: i64,
}

/// The last lines of `--help`.
const UNSUITED: &str = "\
Sizes take K, M and G for powers of 1024. The last of a repeated flag counts. The flags -t, -g, \
-p, -y, -G, -x, -D, -V and -M of nccl-tests are about threads and GPUs. They are refused unless \
they have nccl-tests' default.";

impl Args {
    /// Returns the command of the program that times `test`.
    pub(crate) fn command_for(test: Test) -> clap::Command {
        let about = format!("Times {}, and checks the results", test.meaning());
        let command = Self::command().name(test.program());
        let long = command.get_about().map(ToString::to_string).unwrap_or_default();
        command.about(about.clone()).long_about(format!("{about}.\n\n{long}"))
    }

    /// Reads the command line of the program that times `test`.
    pub(crate) fn try_parse_for(test: Test) -> Result<Self, clap::Error> {
        Self::from_arg_matches(&Self::command_for(test).try_get_matches()?)
    }

    /// Returns the reason why a flag with this value does not apply to `test`, if there is one. It
    /// begins with the flag.
    pub(crate) fn refusal(&self, test: Test) -> Option<String> {
        let unsuited = [
            ("-t", self.nthreads, 1, "a rank is a process here; use --ranks N or a launcher"),
            ("-g", self.ngpus, 1, "ringfold works on memory of the host; a rank has no GPUs"),
            (
                "-p",
                self.parallel_init,
                0,
                "a process has one rank, so nothing to start in parallel",
            ),
            ("-y", self.stream_null, 0, "there are no CUDA streams"),
            ("-G", self.cudagraph, 0, "there are no CUDA graphs"),
            ("-x", self.cta_policy, -1, "there are no CTAs"),
            ("-D", self.device_implementation, 0, "there is no device to call from"),
            ("-V", self.device_cta_count, 16, "there are no CTAs"),
            ("-M", self.memory, 0, "there is no GPU memory to report"),
        ];
        if let Some((flag, given, _, why)) = unsuited.into_iter().find(|it| it.1 != it.2) {
            return Some(format!("{flag} {given}: this flag of nccl-tests does not apply: {why}"));
        }
        let Self { agg_iters, local_register, per_iter_skip, iters, .. } = *self;
        let is_timed = self.per_iter_timing == 1 || self.latency;
        Some(match () {
            () if local_register == 2 && !test.works_in_windows() => {
                format!("-R 2: only allreduce works in windows, not {test}; give -R 1")
            }
            () if self.overlap && !matches!(test, Test::Collective(_)) => {
                format!("--overlap: only collectives with equal parts can be started, not {test}")
            }
            () if self.profile && !matches!(test, Test::Collective(_)) => {
                format!("--profile: only collectives with equal parts have profiles, not {test}")
            }
            () if self.overlap && (agg_iters > 1 || local_register > 0) => {
                "--overlap: started calls own ordinary buffers, each of its own; give -m 1 and -R 0"
                    .to_owned()
            }
            () if agg_iters > 1 && local_register == 2 => {
                format!("-m {agg_iters}: calls in windows form no groups; give -R 0 or 1")
            }
            () if agg_iters > 1 && test.is_uneven() => {
                format!("-m {agg_iters}: calls with uneven parts form no groups; give -m 1")
            }
            () if per_iter_skip > 0 && self.per_iter_timing == 0 => {
                format!("-K {per_iter_skip}: only the columns of -I leave iterations out; add -I 1")
            }
            () if per_iter_skip >= iters => {
                format!("-K {per_iter_skip}: give less than the {iters} iterations of -n")
            }
            () if is_timed && iters > TIMES_MAX => {
                format!(
                    "-n {iters}: give at most {TIMES_MAX} with -I and --latency, which keep all \
                     times"
                )
            }
            () => return None,
        })
    }

    /// Returns the bytes of the buffers of one rank, for sizes of up to `-e`.
    pub(crate) const fn buffer_bytes(&self) -> usize {
        let each = self.maxbytes.saturating_add(self.unalign.saturating_mul(8));
        each.saturating_mul(1 + self.agg_iters)
    }
}

fn parse_bytes(text: &str) -> Result<usize, InvalidAmount> {
    text.parse().map(|Amount(bytes)| bytes)
}

/// Parses a whole number from `LEAST` to `MOST`.
fn whole<const LEAST: usize, const MOST: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    number.ok_or_else(|| format!("give a whole number from {LEAST} to {MOST}"))
}

#[cfg(test)]
mod tests {
    use ringfold::Collective;

    use super::*;

    const ALL_REDUCE: Test = Test::Collective(Collective::AllReduce);

    fn args(line: &str) -> Result<Args, String> {
        Args::try_parse_from(line.split(' ')).map_err(|error| error.to_string())
    }

    /// Every flag of nccl-tests 2.19.6, with a value that nccl-tests takes.
    #[test]
    fn flags_that_do_not_apply_are_refused_with_a_reason() {
        for line in [
            "-t 1",
            "-g 1",
            "-p 0",
            "-y 0",
            "-G 0",
            "-D 0",
            "-V 16",
            "-M 0",
            "-R 1",
            "-R 2",
            "-m 2",
            "-S 1",
            "-I 1",
            "-I 1 -K 3",
            "-u 1",
            "-z 2",
            "-a 3",
            "-C 1",
            "-T 5",
            "-r -1",
            "-i 0",
            "--nthreads 1",
            "--agg_iters 7",
            "--unalign 3",
            "--per_iter_timing 1",
        ] {
            assert_eq!(args(&format!("perf {line}")).unwrap().refusal(ALL_REDUCE), None, "{line}");
        }
        for line in [
            "-t 2",
            "-g 8",
            "-p 1",
            "-y 1",
            "-G 1",
            "-x 0",
            "-D 1",
            "-V 8",
            "-V 0",
            "-M 1",
            "-K 3",
            "-I 1 -K 20",
            "-m 2 -R 2",
            "-n 65537 -I 1",
        ] {
            let refusal = args(&format!("perf {line}")).unwrap().refusal(ALL_REDUCE).unwrap();
            let is_named = line
                .split(" -")
                .any(|it| refusal.starts_with(&format!("-{}:", it.trim_start_matches('-'))));
            assert!(is_named, "{line}: {refusal}");
        }
        let uneven = args("perf -m 2").unwrap().refusal(Test::AllToAllV).unwrap();
        assert!(uneven.starts_with("-m 2: calls with uneven parts"), "{uneven}");
        for line in ["perf --overlap -m 2", "perf --overlap -R 1"] {
            let refusal = args(line).unwrap().refusal(ALL_REDUCE).unwrap();
            assert!(refusal.starts_with("--overlap: started calls own"), "{refusal}");
        }
        let messages = args("perf --overlap").unwrap().refusal(Test::SendRecv).unwrap();
        assert!(messages.starts_with("--overlap: only collectives"), "{messages}");
        let messages = args("perf --profile").unwrap().refusal(Test::AllToAllV).unwrap();
        assert!(messages.starts_with("--profile: only collectives"), "{messages}");
        assert!(args("perf -R 2").unwrap().refusal(Test::SendRecv).unwrap().starts_with("-R 2:"));
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        for (line, range) in [
            ("-n 0", "1 to"),
            ("-n -5", "1 to"),
            ("-n many", "1 to"),
            ("-m 0", "1 to 1024"),
            ("-z 4", "0 to 3"),
            ("-a 4", "0 to 3"),
            ("-R 3", "0 to 2"),
            ("-C 2", "0 to 1"),
            ("-S 2", "0 to 1"),
            ("-I 2", "0 to 1"),
            ("-K -1", "0 to"),
            ("--ranks 0", "1 to 65536"),
            ("-w 99999999999999999999", "0 to"),
        ] {
            let error = args(&format!("perf {line}")).unwrap_err();
            let value = line.split(' ').next_back().unwrap();
            let names = error.contains(&format!("'{value}' for '-")) && error.contains(range);
            assert!(names && error.contains("give a whole number"), "{line}: {error}");
        }
        assert!(args("perf -b lots").unwrap_err().contains("give a whole number, with K, M or G"));
    }

    #[test]
    fn the_last_of_a_repeated_flag_counts() {
        let args = args("perf -b 8 -n 3 -b 16 --minbytes 1.5KB --latency --latency -n 4").unwrap();
        assert_eq!((args.minbytes, args.iters, args.latency), (1536, 4, true));
    }

    #[test]
    fn programs_describe_themselves() {
        let about = |test| Args::command_for(test).get_about().unwrap().to_string();
        let all_reduce = about(ALL_REDUCE);
        assert!(all_reduce.contains("all-reduce: every rank gets the reduction"), "{all_reduce}");
        assert!(about(Test::SendRecv).contains("next rank"));
        Args::command_for(ALL_REDUCE).debug_assert();
    }
}

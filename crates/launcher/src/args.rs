//! The command line of `ringrun`, as typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use ringfold_launcher::AGENT_HELP;

const AFTER: &str = "\
Exit status: 0 if every rank returned 0; else that of the first rank that failed, 128 + N if \
signal N killed it; 124 after --timeout; \
130 after Ctrl-C; 127 or 126 if the program is not there or not \
executable; 125 if the launch failed; 2 for a command line that makes no sense.

When a rank fails, the others have --grace seconds to notice and to report it, then 2 s after \
SIGTERM, then they are killed. When the job ends, by whatever means, every process that a rank has \
started is killed, daemons included.

Hosts: `name`, `name:2`, in a host file also `name slots=2`, # for comments, one slot by default. \
Ranks fill the slots in order. Every RINGFOLD_ variable of ringrun's own environment reaches the \
ranks of all hosts; others need -x.";

/// Runs a program as the ranks of a job, on this host or on several.
#[derive(Debug, Parser)]
#[command(name = "ringrun", version, after_help = AFTER)]
#[command(override_usage = "ringrun [OPTIONS] PROGRAM [ARGS]...")]
pub(crate) struct Args {
    /// Ranks to start [default: the sum of the hosts' slots, or this host's cores]
    #[arg(short = 'n', value_name = "RANKS", value_parser = parse_ranks)]
    pub(crate) ranks: Option<usize>,

    /// Pass on a variable of this environment, or set one; may be repeated
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,

    /// File with one host a line
    #[arg(long, value_name = "FILE", conflicts_with = "host")]
    pub(crate) hostfile: Option<PathBuf>,

    /// Hosts, as in a:2,b:2
    #[arg(long, short = 'H', value_name = "LIST")]
    pub(crate) host: Option<String>,

    /// Allow more ranks than the hosts named have slots
    #[arg(long)]
    pub(crate) oversubscribe: bool,

    /// Tie ranks to their host's cores: as many cores to each rank, or where there are too few as
    /// many ranks to each core, if that comes out even; one each in turn; or not at all
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub(crate) bind_to: BindTo,

    /// Begin each line of output with the rank that wrote it
    #[arg(long)]
    pub(crate) tag_output: bool,

    /// Stop the job after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Seconds that the others may go on when a rank has failed
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "5")]
    pub(crate) grace: Duration,

    /// Working directory of the ranks [default: this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) wdir: Option<PathBuf>,

    /// Command that starts another one on another host [default: ssh]
    #[arg(long, value_name = "COMMAND", long_help = AGENT_HELP)]
    pub(crate) agent: Option<String>,

    /// Where ringrun is on other hosts [default: where it is here]
    #[arg(long, value_name = "PATH")]
    pub(crate) remote_ringrun: Option<PathBuf>,

    /// Address, or address:port, at which other hosts reach this one [default: an address of the
    /// interfaces in RINGFOLD_SOCKET_IFNAME, or that from which the first of them is reached]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) rendezvous_addr: Option<String>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    #[arg(value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum BindTo {
    #[default]
    Share,
    Core,
    None,
}

fn parse_ranks(text: &str) -> Result<usize, String> {
    if text == "p" {
        return Err("write `-n 4`, not `-np 4`".to_owned());
    }
    text.parse().map_err(|_| "not a number of ranks".to_owned())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "not a time that can pass".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Args;

    #[test]
    fn options_after_the_program_are_its_own() {
        Args::command().debug_assert();
        let args = Args::parse_from(["ringrun", "-n", "2", "-x", "A=1", "prog", "-n", "3", "--x"]);
        assert_eq!((args.ranks, args.command.len()), (Some(2), 4));
        let args = Args::parse_from(["ringrun", "--", "-prog"]);
        assert_eq!((args.ranks, args.command.len()), (None, 1));
    }

    #[test]
    fn habits_from_elsewhere_are_explained() {
        let error = Args::try_parse_from(["ringrun", "-np", "4", "prog"]).unwrap_err();
        assert!(error.to_string().contains("`-n 4`"));
        assert!(Args::try_parse_from(["ringrun", "--timeout", "-1", "prog"]).is_err());
        assert!(Args::try_parse_from(["ringrun", "-n", "2"]).is_err());
    }
}

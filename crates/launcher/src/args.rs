//! The command line of `ringrun`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory, Parser, ValueEnum};
use ringfold_launcher::AGENT_HELP;
use ringfold_types::limits::HOST_SILENCE_MIN_MS;

const AFTER: &str = "\
Exit status: 0 if every rank returned 0; else that of the first rank that failed, 128 + N if \
signal N killed it; 124 after --timeout; 130 after Ctrl-C; 127 or 126 if the program does not \
exist or is not executable; 125 if the launch failed; 2 for an invalid command line.

When a rank fails, the others have --grace seconds to notice and to report it, then 2 s after \
SIGTERM, then they are killed. When the job ends for any reason, every process that a rank has \
started is killed, daemons included.

Hosts: `name`, `name:2`, in a host file also `name slots=2`, # for comments, one slot by default. \
Ranks fill the slots in order. Every RINGFOLD_ variable of ringrun's own environment reaches the \
ranks of all hosts; others need -x.";

/// Runs a program as the ranks of a job, on this host or on several.
#[derive(Debug, Parser)]
#[command(name = "ringrun", version, after_help = AFTER)]
#[command(override_usage = "ringrun [OPTIONS] PROGRAM [ARGS]...")]
pub(crate) struct Args {
    /// Ranks to start, also written `-np` [default: the sum of the hosts' slots, or this
    /// host's cores]
    #[arg(short = 'n', long = "np", visible_short_alias = 'c', value_name = "RANKS")]
    #[arg(value_parser = parse_ranks)]
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

    /// Bind ranks to their host's cores. `share` divides the cores evenly among the ranks, or the
    /// ranks among the cores, near each rank's GPU or RDMA NIC, if that comes out even; `core`
    /// gives each rank one core in turn; `none` binds no rank
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub(crate) bind_to: BindTo,

    /// Begin each line of output with the rank that wrote it
    #[arg(long)]
    pub(crate) tag_output: bool,

    /// Stop the job after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Seconds that the other ranks may go on after a rank has failed
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "5")]
    pub(crate) grace: Duration,

    /// Seconds that another host may be silent before it counts as lost. That host ends its ranks
    /// when it receives nothing from ringrun for as long, as when ringrun is stopped (Ctrl-Z)
    #[arg(long, value_name = "SECONDS", value_parser = parse_host_timeout, default_value = "120")]
    pub(crate) host_timeout: Duration,

    /// Working directory of the ranks [default: this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) wdir: Option<PathBuf>,

    /// Command that starts a command on another host [default: ssh]
    #[arg(long, value_name = "COMMAND", long_help = AGENT_HELP)]
    pub(crate) agent: Option<String>,

    /// Path of ringrun on other hosts [default: its path here]
    #[arg(long, value_name = "PATH")]
    pub(crate) remote_ringrun: Option<PathBuf>,

    /// Address, or address:port, at which other hosts reach this one [default: an address of the
    /// interfaces in RINGFOLD_SOCKET_IFNAME, or the source address toward the first other host]
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

impl Args {
    /// The command line in the form that clap parses: `-np`, which `mpirun` users write, becomes
    /// `--np`. Stops at the program's name.
    pub(crate) fn normalize(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
        let command = Self::command();
        let mut args = args.into_iter();
        let mut normal = args.next().into_iter().collect::<Vec<_>>();
        while let Some(arg) = args.next() {
            let is_np = arg == "-np";
            let option = if is_np { OsString::from("--np") } else { arg };
            let is_option = option.as_encoded_bytes().starts_with(b"-") && option != "--";
            let value_follows = takes_next(&command, &option.to_string_lossy());
            normal.push(option);
            if !is_option {
                break;
            }
            if value_follows {
                normal.extend(args.next());
            }
        }
        normal.extend(args);
        normal
    }
}

/// Whether the value of `option` is the next argument.
fn takes_next(command: &Command, option: &str) -> bool {
    let named = |arg: &&Arg| match option.strip_prefix("--") {
        Some(name) => arg.get_long() == Some(name),
        None => {
            let letter = option.strip_prefix('-').unwrap_or_default();
            let letters = arg.get_short_and_visible_aliases().unwrap_or_default();
            letters.iter().any(|it| it.to_string() == letter)
        }
    };
    command.get_opts().find(named).is_some_and(|arg| arg.get_action().takes_values())
}

fn parse_ranks(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "not a number of ranks".to_owned())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "not a valid duration".to_owned())
}

fn parse_host_timeout(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(HOST_SILENCE_MIN_MS);
    let timeout = parse_seconds(text)?;
    let too_short = || format!("shorter than {} s", least.as_secs_f64());
    if timeout < least { Err(too_short()) } else { Ok(timeout) }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{CommandFactory, Parser};

    use ringfold_launcher::Job;

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
    fn ranks_are_counted_as_mpirun_counts_them() {
        let parse = |line: &str| {
            let args = Args::normalize(line.split(' ').map(OsString::from));
            let args = Args::try_parse_from(args).map_err(|error| error.to_string())?;
            let command = args.command.iter().map(|word| word.to_string_lossy());
            Ok::<_, String>((args.ranks, command.collect::<Vec<_>>().join(" ")))
        };
        for count in ["-n 4", "-n4", "-np 4", "--np 4", "--np=4", "-c 4", "-c4"] {
            let (ranks, command) = parse(&format!("ringrun {count} prog -np 7")).unwrap();
            assert_eq!((ranks, &*command), (Some(4), "prog -np 7"), "{count}");
        }
        // Values of other options, and the program's own arguments, stay unchanged.
        let line = "ringrun -x A=1 -H a:4 --oversubscribe --timeout 9 -np 4 -xB=2 prog -np 7 -n 8";
        assert_eq!(parse(line), Ok((Some(4), "prog -np 7 -n 8".to_owned())));
        assert_eq!(parse("ringrun -- -np 4"), Ok((None, "-np 4".to_owned())));
        assert_eq!(parse("ringrun prog -- -np 4"), Ok((None, "prog -- -np 4".to_owned())));
        assert!(parse("ringrun -np x prog").unwrap_err().contains("'x' for '--np <RANKS>'"));
        assert!(parse("ringrun -np").unwrap_err().contains("a value is required"));
        assert!(Args::command().render_help().to_string().contains("`-np`"));
    }

    #[test]
    fn mistakes_are_refused() {
        assert!(Args::try_parse_from(["ringrun", "--timeout", "-1", "prog"]).is_err());
        assert!(Args::try_parse_from(["ringrun", "--host-timeout", "0.9", "prog"]).is_err());
        assert!(Args::try_parse_from(["ringrun", "-n", "2"]).is_err());
        // The default in the help is the default of the library.
        let args = Args::parse_from(["ringrun", "prog"]);
        assert_eq!(args.host_timeout, Job::new("prog").host_timeout);
    }
}

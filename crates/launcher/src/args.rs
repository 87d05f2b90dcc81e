//! The command line of `ringrun`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory, Parser, ValueEnum};
use ringfold_launcher::AGENT_HELP;
use ringfold_types::limits::{HOST_SILENCE_MIN_MS, RANKS_MAX};

/// A number of seconds that is practically unlimited: a hundred years.
const SECONDS_MAX: f64 = 100.0 * 365.0 * 86_400.0;

const AFTER: &str = "\
Exit status: 0 if every rank returned 0; else that of the first rank that failed, 128 + N if \
signal N killed it; 124 after --timeout; 130 after Ctrl-C; 127 or 126 if the program does not \
exist or is not executable; 141 if the reader of the output has left; 125 if the launch or a write \
of the output failed; 2 for an invalid command line. With --enable-recovery or --restart it \
is 0 if any rank returned 0.

When a rank fails, the others have --grace seconds to notice and to report it, then 2 s after \
SIGTERM, then they are killed. ringrun says so. When the job ends for any reason, every process \
that a rank has started is killed, daemons included.

Rank 0 gets the standard input of ringrun, and the other ranks get none. ringrun reads it even if \
rank 0 does not: pass --stdin none, or give it </dev/null, where others need that input.

Hosts (--host, --spare): `name`, `name:2`, in a host file also `name slots=2`, # for \
comments, one slot by default. Ranks fill the slots in order. Every RINGFOLD_ variable of \
ringrun's own environment reaches the ranks of all hosts; others need -x.";

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
    #[arg(long, alias = "machinefile", value_name = "FILE", conflicts_with = "host")]
    pub(crate) hostfile: Option<PathBuf>,

    /// Hosts, as in a:2,b:2
    #[arg(long, alias = "hosts", short = 'H', value_name = "LIST")]
    pub(crate) host: Option<String>,

    /// Allow more ranks than the hosts named have slots
    #[arg(long)]
    pub(crate) oversubscribe: bool,

    /// Bind ranks to their host's cores. `share` divides the cores evenly among the ranks, or the
    /// ranks among the cores, near each rank's GPU or RDMA NIC, if that comes out even; `core`
    /// gives each rank one core in turn; `none` binds no rank [default: share, if the system
    /// allows it]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) bind_to: Option<BindTo>,

    /// The rank that reads ringrun's standard input: `0`, or `none`, for loops over the lines of a
    /// file, whose input ringrun would take
    #[arg(long, value_enum, default_value_t, value_name = "RANK")]
    pub(crate) stdin: StdinOf,

    /// Begin each line of output with the rank that wrote it
    #[arg(long)]
    pub(crate) tag_output: bool,

    /// Stop the job after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Seconds that the other ranks may go on after a rank has failed
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "5")]
    pub(crate) grace: Duration,

    /// Let the other ranks go on after a rank has failed, as long as they want. They may then
    /// continue by a smaller communicator
    #[arg(long, conflicts_with = "grace")]
    pub(crate) enable_recovery: bool,

    /// Start a new process for a rank that fails, at most this many times for each rank, with
    /// growing pauses. The other ranks go on, as with --enable-recovery, and may wait for it
    #[arg(long, value_name = "TIMES", conflicts_with = "grace")]
    pub(crate) restart: Option<u32>,

    /// Hosts without ranks at the start, as in c:2,d. With --restart a rank starts again on one of
    /// them if its own host is lost, or cannot start it
    #[arg(long, value_name = "LIST")]
    pub(crate) spare: Option<String>,

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

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BindTo {
    Share,
    Core,
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StdinOf {
    #[default]
    #[value(name = "0")]
    Rank0,
    None,
}

impl Args {
    /// The command line in the form that clap parses: `-np`, `-host` and other long options that
    /// `mpirun` users write with one dash get the second. Stops at the program's name.
    pub(crate) fn normalize(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
        let mut command = Self::command();
        command.build();
        let mut args = args.into_iter();
        let mut normal = args.next().into_iter().collect::<Vec<_>>();
        while let Some(arg) = args.next() {
            let option = if is_long(&command, &arg) {
                [OsString::from("-"), arg].into_iter().collect()
            } else {
                arg
            };
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

/// Whether `option` has one dash and is a long option. Letters after `-h` or `-V` are none of its
/// own, so `-hots` is a mistake and no call for help.
fn is_long(command: &Command, option: &OsStr) -> bool {
    let Some(name) = option.to_str().and_then(|option| option.strip_prefix('-')) else {
        return false;
    };
    let bare = name.split('=').next().unwrap_or_default();
    let mut letters = name.chars();
    let (first, is_more) = (letters.next(), letters.next().is_some());
    let is_flag = |arg: &Arg| arg.get_short() == first && !arg.get_action().takes_values();
    let mut options = command.get_opts().chain(command.get_arguments());
    is_more && first != Some('-') && options.any(|arg| has_name(arg, bare) || is_flag(arg))
}

/// Whether this is the long name of an option, or an alias of it.
fn has_name(option: &Arg, name: &str) -> bool {
    option.get_long() == Some(name) || option.get_all_aliases().is_some_and(|it| it.contains(&name))
}

/// Whether the value of `option` is the next argument.
fn takes_next(command: &Command, option: &str) -> bool {
    let named = |arg: &&Arg| match option.strip_prefix("--") {
        Some(name) => has_name(arg, name),
        None => {
            let letter = option.strip_prefix('-').unwrap_or_default();
            let letters = arg.get_short_and_visible_aliases().unwrap_or_default();
            letters.iter().any(|it| it.to_string() == letter)
        }
    };
    command.get_opts().find(named).is_some_and(|arg| arg.get_action().takes_values())
}

fn parse_ranks(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("not a number of ranks from 1 to {RANKS_MAX}"))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().map(|seconds| seconds.min(SECONDS_MAX));
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "not a number of seconds, 0 or more, as in 30 or 0.5".to_owned())
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
        let hosts = ["-host a", "--host a", "-host=a", "-hosts a", "-H a", "-Ha"];
        let files = ["-hostfile f", "--hostfile f", "-machinefile f", "--hostfile=f"];
        for option in hosts.into_iter().chain(files) {
            let line = format!("ringrun {option} -np 4 -tag-output prog -host b -h");
            assert_eq!(parse(&line), Ok((Some(4), "prog -host b -h".to_owned())), "{option}");
        }
        for mistake in ["-hots a", "-hostt a", "-hn 4", "-Vn"] {
            let error = parse(&format!("ringrun {mistake} prog")).unwrap_err();
            assert!(error.contains("unexpected argument '-"), "{error}");
        }
        for question in ["-h", "-help", "--help"] {
            let help = parse(&format!("ringrun {question}")).unwrap_err();
            assert!(help.contains("Usage: ringrun"), "{help}");
        }
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

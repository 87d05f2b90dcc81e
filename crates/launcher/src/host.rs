//! The launcher's end of the line to one host: starts the keeper there and talks with it.

use std::ffi::{OsStr, OsString};
use std::process::Stdio;
use std::sync::Arc;

use ringfold_types::Rank;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::conduct::Event;
use crate::frame::{Decoder, FrameError, encode};
use crate::intercept::KEEPER;
use crate::job::Job;
use crate::message::{Down, Up};
use crate::printer::Piece;

/// What `--help` says of agents.
pub const AGENT_HELP: &str = "\
The agent starts a command on another host. It is called as

    AGENT... HOST RINGRUN --ringfold-keeper

and must run `RINGRUN --ringfold-keeper` on HOST with its own standard input and output connected \
to that process, byte for byte, until it ends; when the agent dies or its input ends, the input of \
the process must end too. What is printed before RINGRUN speaks is ignored. AGENT is split at \
white space. By default it is `ssh -T -x -o BatchMode=yes -o ServerAliveInterval=15`; \
`--agent 'ip netns exec'` takes hosts to be network namespaces of this machine. The secret of the \
job and the command to run travel over standard input, never in arguments.";

/// The last word ends the options: what follows is the host, whatever it looks like.
const SSH: [&str; 8] =
    ["ssh", "-T", "-x", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "--"];

/// Bytes taken from a keeper at once.
const READ_BYTES: usize = 64 * 1024;

/// What the tasks of all hosts share.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) pieces: mpsc::Sender<Piece>,
    /// Told when rank 0 has room for input.
    pub(crate) input_taken: Arc<Notify>,
}

/// A keeper that has been started. Dropping `orders` makes it end, and with it `task`.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) orders: mpsc::UnboundedSender<Down>,
    pub(crate) task: JoinHandle<()>,
}

/// The command line of a keeper.
pub(crate) fn keeper_command(
    job: &Job,
    host: &str,
    is_local: bool,
) -> std::io::Result<Vec<OsString>> {
    if is_local {
        let program = job.local_keeper.clone().unwrap_or_else(|| "/proc/self/exe".into());
        return Ok(vec![program.into(), KEEPER.into()]);
    }
    let keeper = match &job.remote_keeper {
        Some(path) => path.clone(),
        None => std::env::current_exe()?,
    };
    let mut words = Vec::<OsString>::new();
    if job.agent.is_empty() {
        // The shell on the other host splits what ssh passes on.
        words.extend(SSH.map(OsString::from));
        words.extend([host.into(), shell_quote(keeper.as_os_str()), KEEPER.into()]);
    } else {
        words.extend(job.agent.iter().map(OsString::from));
        words.extend([host.into(), keeper.into(), KEEPER.into()]);
    }
    Ok(words)
}

/// Starts a keeper and sends it `first`.
///
/// # Errors
/// If the command cannot be started.
pub(crate) fn start(
    words: &[OsString],
    host: usize,
    first: Down,
    lines: Lines,
) -> std::io::Result<Link> {
    let (program, args) = words.split_first().ok_or_else(|| std::io::Error::other("no command"))?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(std::io::Error::other("no pipes"));
    };
    let (orders, orders_rx) = mpsc::unbounded_channel();
    // The receiver is in the next line's task, which has not begun.
    orders.send(first).ok();
    tokio::spawn(write_orders(stdin, orders_rx));
    let command = program.display().to_string();
    let task = tokio::spawn(async move {
        let why = read_reports(stdout, &lines).await;
        let why = why.unwrap_or_else(|error| Some(error.to_string()));
        let why = how_it_ended(child, &command, why).await;
        lines.events.send(Event::HostLost { host, why }).ok();
    });
    Ok(Link { orders, task })
}

async fn write_orders(mut stdin: ChildStdin, mut orders: mpsc::UnboundedReceiver<Down>) {
    while let Some(order) = orders.recv().await {
        // Nothing of what is sent here is too long but the first, which was checked.
        let Ok(frame) = encode(&order) else { continue };
        if stdin.write_all(&frame).await.is_err() {
            return;
        }
    }
}

/// Reads until the keeper is gone. Returns what it said in place of a greeting, if it gave none.
async fn read_reports(
    mut stdout: ChildStdout,
    lines: &Lines,
) -> Result<Option<String>, FrameError> {
    let mut decoder = Decoder::after_greeting();
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = stdout.read(&mut buffer).await {
        decoder.push(&buffer[..count]);
        while let Some(report) = decoder.next()? {
            pass_on(report, lines).await;
        }
    }
    Ok(decoder.chatter())
}

async fn pass_on(report: Up, lines: &Lines) {
    let event = match report {
        Up::Output { rank, stream, bytes } => {
            // Fails only when the job is being given up.
            lines.pieces.send(Piece { rank, stream, bytes }).await.ok();
            return;
        }
        Up::InputTaken => return lines.input_taken.notify_one(),
        Up::Started { rank, pid } => Event::Started { rank: Rank(rank), pid },
        Up::Exited { rank, status } => Event::Exited { rank: Rank(rank), status },
        Up::Refused { rank, refusal } => Event::Refused { rank: Rank(rank), refusal },
    };
    lines.events.send(event).ok();
}

async fn how_it_ended(mut child: Child, command: &str, why: Option<String>) -> String {
    // A process that talks nonsense must not be waited for.
    if why.is_some() {
        child.start_kill().ok();
    }
    let status = match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    match why {
        Some(said) if said.is_empty() => {
            format!("'{command}' ended ({status}) before ringrun answered there")
        }
        Some(said) => format!("'{command}' ended ({status}) after: {said}"),
        None => format!("ringrun there ended ({status})"),
    }
}

fn shell_quote(word: &OsStr) -> OsString {
    let mut quoted = OsString::from("'");
    quoted.push(word.to_string_lossy().replace('\'', r"'\''"));
    quoted.push("'");
    quoted
}

#[cfg(test)]
mod tests {
    use super::{keeper_command, shell_quote};
    use crate::job::Job;

    #[test]
    fn commands() {
        let mut job = Job::new("x");
        job.remote_keeper = Some("/opt/my tools/ringrun".into());
        let words = keeper_command(&job, "n1", false).unwrap();
        assert_eq!(words[0], "ssh");
        assert_eq!(
            words[words.len() - 4..],
            ["--", "n1", "'/opt/my tools/ringrun'", "--ringfold-keeper"]
        );
        job.agent = vec!["ip".into(), "netns".into(), "exec".into()];
        let words = keeper_command(&job, "n1", false).unwrap();
        let expected = ["ip", "netns", "exec", "n1", "/opt/my tools/ringrun", "--ringfold-keeper"];
        assert_eq!(words, expected);
        assert_eq!(keeper_command(&job, "n1", true).unwrap()[0], "/proc/self/exe");
        assert_eq!(shell_quote("it's".as_ref()), r"'it'\''s'");
    }
}

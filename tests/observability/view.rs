//! The view of `ringfold top` on a pseudo-terminal.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;
use std::time::Instant;

use ringfold_harness::{Ranks, kill, program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::read;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use super::LONG;

/// A pseudo-terminal of 12 rows and 100 columns, with the bytes that it has shown.
struct Terminal {
    outside: OwnedFd,
    inside: File,
    shown: String,
}

impl Terminal {
    fn new() -> Self {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let path = ptsname(&outside, Vec::new()).unwrap();
        let mut options = File::options();
        options.read(true).write(true).custom_flags(OFlags::NOCTTY.bits().cast_signed());
        let inside = options.open(OsStr::from_bytes(path.to_bytes())).unwrap();
        let size = Winsize { ws_row: 12, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&inside, size).unwrap();
        Self { outside, inside, shown: String::new() }
    }

    /// Reads what is shown until `is_enough`.
    fn read_until(&mut self, is_enough: impl Fn(&str) -> bool) {
        let begin = Instant::now();
        while !is_enough(&self.shown) {
            assert!(begin.elapsed() < LONG, "{:?}", self.shown);
            let moment = Timespec { tv_sec: 1, tv_nsec: 0 };
            let mut set = [PollFd::new(&self.outside, PollFlags::IN)];
            if poll(&mut set, Some(&moment)).unwrap() > 0 {
                let mut bytes = [0; 4096];
                let count = read(&self.outside, &mut bytes).unwrap();
                self.shown += &String::from_utf8_lossy(&bytes[..count]);
            }
        }
    }
}

#[test]
fn the_view_looks_again_until_a_key_ends_it() {
    let ranks = Ranks::start(16, |_, command| {
        command.args(["allreduce", "8"]).env("RINGFOLD_TRANSPORT", "shm");
    });
    ranks.wait_for("started");
    let signals = [Signal::TERM, Signal::HUP, Signal::INT].map(Err);
    for end in [Ok("q"), Ok("\x03")].into_iter().chain(signals) {
        let mut terminal = Terminal::new();
        let before = tcgetattr(&terminal.inside).unwrap();
        let stream = || terminal.inside.try_clone().unwrap();
        // Under `nohup`, programs ignore a signal that they are to hear here.
        let mut top = Command::new("env");
        top.arg("--default-signal=INT,TERM,HUP").arg(program::binary("ringfold"));
        top.args(["top", &ranks.0[0].id().to_string()]);
        let mut top = top.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        terminal.read_until(|shown| shown.matches("\x1b[H").count() == 3);
        let shown = terminal.shown.clone();
        assert!(shown.starts_with("\x1b[?1049h"), "it enters a screen of its own: {shown:?}");
        assert!(shown.contains("sends: shm ") && shown.contains("waited"), "{shown:?}");
        assert!(shown.contains("q ends") && !shown.contains("\r\n    15 "), "{shown:?}");
        let mut keyboard = File::from(terminal.outside.try_clone().unwrap());
        // A page down shows the last rank.
        keyboard.write_all(b"\x1b[6~\x1b[6~").unwrap();
        terminal.read_until(|shown| shown.contains("\r\n    15 "));
        match end {
            Ok(key) => keyboard.write_all(key.as_bytes()).unwrap(),
            Err(signal) => kill(top.id(), signal),
        }
        terminal.read_until(|shown| shown.ends_with("\x1b[?1049l"));
        let code = top.wait().unwrap().code();
        match end {
            Ok(_) => assert!(matches!(code, Some(0 | 10..=12)), "{code:?}"),
            Err(signal) => assert_eq!(code, Some(128 + signal.as_raw())),
        }
        let after = tcgetattr(&terminal.inside).unwrap();
        assert_eq!(after.local_modes, before.local_modes, "the terminal is as before");
    }
}

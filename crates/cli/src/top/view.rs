//! The view of `ringfold top` on a terminal, which looks again each second. `q` and Ctrl-C end it,
//! as do the signals that ask a program to stop.

use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use ringfold_launcher::{Signals, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use tokio::runtime::Builder;

use super::verdict::Health;

/// The time from one look to the next.
const EVERY: Duration = Duration::from_secs(1);

/// The size of a terminal that does not tell its own: rows and columns.
const SIZE: (usize, usize) = (24, 80);

/// Enters another screen and hides the cursor; and the way back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// A terminal that shows the view, until it is dropped.
struct Screen {
    before: Termios,
}

impl Screen {
    /// Has the terminal pass on keys one by one, also Ctrl-C, and enters another screen.
    fn enter() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        modes.special_codes[SpecialCodeIndex::VMIN] = 0;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &modes)?;
        let screen = Self { before };
        Stream::Out.write_all(ENTER)?;
        Ok(screen)
    }

    /// The rows and columns of the terminal.
    fn size() -> (usize, usize) {
        let size = tcgetwinsize(stdout()).ok();
        let size = size.map(|it| (usize::from(it.ws_row), usize::from(it.ws_col)));
        size.filter(|(rows, columns)| *rows > 0 && *columns > 0).unwrap_or(SIZE)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs neither.
        Stream::Out.write_all(LEAVE).ok();
        tcsetattr(stdin(), OptionalActions::Now, &self.before).ok();
    }
}

/// An action of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    /// Lines to scroll: down above zero.
    Scroll(isize),
}

/// The actions of these bytes of a terminal, where a page has `rows` lines.
fn keys(mut bytes: &[u8], rows: usize) -> Vec<Key> {
    let page = isize::try_from(rows).unwrap_or(isize::MAX);
    let known: [(&[u8], Key); 10] = [
        (b"\x1b[A", Key::Scroll(-1)),
        (b"\x1b[B", Key::Scroll(1)),
        (b"\x1b[5~", Key::Scroll(-page)),
        (b"\x1b[6~", Key::Scroll(page)),
        (b"k", Key::Scroll(-1)),
        (b"j", Key::Scroll(1)),
        (b" ", Key::Scroll(page)),
        (b"q", Key::Quit),
        (b"\x03", Key::Quit),
        (b"\x04", Key::Quit),
    ];
    let mut keys = Vec::new();
    while let [_, rest @ ..] = bytes {
        let found = known.iter().find(|(code, _)| bytes.starts_with(code));
        keys.extend(found.map(|(_, key)| *key));
        bytes = found.map_or(rest, |(code, _)| &bytes[code.len()..]);
    }
    keys
}

/// The first line of a screen with `lines` lines of text after scrolling.
fn scrolled(from: usize, by: isize, lines: usize, rows: usize) -> usize {
    from.saturating_add_signed(by).min(lines.saturating_sub(rows))
}

/// The bytes that show `text` from line `from` on, on a terminal of `rows` and `columns`. The last
/// row has the `foot`. Lines that name a late rank, and those with a verdict, stand out.
fn frame(text: &str, foot: &str, from: usize, (rows, columns): (usize, usize)) -> String {
    let mut frame = "\x1b[H".to_owned();
    let fitting = |line: &str| -> String {
        line.chars().map(|it| if it.is_control() { ' ' } else { it }).take(columns).collect()
    };
    for line in text.lines().skip(from).take(rows.saturating_sub(1)) {
        let colour = match line.split_once(": ").map_or(line, |(word, _)| word) {
            "healthy" => "\x1b[1;32m",
            "computing" => "\x1b[1m",
            "slow" => "\x1b[1;33m",
            "hung" => "\x1b[1;31m",
            _ if line.ends_with(" <") => "\x1b[33m",
            _ => "",
        };
        frame += &format!("{colour}{}\x1b[0m\x1b[K\r\n", fitting(line));
    }
    frame + "\x1b[J\x1b[7m" + &fitting(foot) + "\x1b[0m"
}

/// Shows what `look` sees until the user or a signal ends it. Returns the exit status: the last
/// verdict, or 128 and the number of the signal.
///
/// # Errors
/// The terminal is gone, or `look` fails.
pub(crate) fn show(look: impl Fn() -> anyhow::Result<(String, Health)>) -> anyhow::Result<u8> {
    // Nothing is shown before the first look has succeeded.
    let (mut text, mut health) = look()?;
    let mut signals = signals()?;
    let _screen = Screen::enter()?;
    let mut from = 0;
    loop {
        let next = Instant::now() + EVERY;
        while Instant::now() < next {
            let size = Screen::size();
            let (lines, rows) = (text.lines().count(), size.0.saturating_sub(1));
            from = scrolled(from, 0, lines, rows);
            let last = lines.min(from + rows);
            let foot = format!("ringfold top: lines {} to {last} of {lines}; q ends", from + 1);
            Stream::Out.write_all(frame(&text, &foot, from, size).as_bytes())?;
            let typed = match next_input(&mut signals, next)? {
                Input::Typed(bytes) => bytes,
                Input::Signal(number) => return Ok(128_u8.saturating_add(number)),
                Input::None => continue,
            };
            for key in keys(&typed, rows) {
                match key {
                    Key::Quit => return Ok(health as u8),
                    Key::Scroll(by) => from = scrolled(from, by, lines, rows),
                }
            }
        }
        (text, health) = look()?;
    }
}

/// An input of the view.
enum Input {
    /// The user has typed these bytes.
    Typed(Vec<u8>),
    /// The signal of this number asks the program to stop.
    Signal(u8),
    None,
}

/// Catches the signals that ask the program to stop. The pipe gets the number of the first one.
fn signals() -> io::Result<PipeReader> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::listen() })?;
    let (outlet, mut inlet) = io::pipe()?;
    let wait = move || {
        let number = runtime.block_on(signals.next());
        // The view may have ended.
        inlet.write_all(&[u8::try_from(number).unwrap_or(0)]).ok();
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(outlet)
}

/// Waits for the next input until this moment.
fn next_input(signals: &mut PipeReader, until: Instant) -> io::Result<Input> {
    let left = until.saturating_duration_since(Instant::now());
    let limit = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut set = [stdin(), signals.as_fd()].map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN));
    match poll(&mut set, Some(&limit)) {
        Ok(0) | Err(Errno::INTR) => return Ok(Input::None),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    if set[1].revents().contains(PollFlags::IN) {
        let mut number = [0];
        signals.read_exact(&mut number)?;
        return Ok(Input::Signal(number[0]));
    }
    let mut bytes = [0; 64];
    match read(stdin(), &mut bytes)? {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal is gone")),
        count => Ok(Input::Typed(bytes[..count].to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_scroll_and_end_the_view() {
        let all = keys(b"j\x1b[A\x1b[6~\x1b[Zxq", 20);
        let scrolls = [1, -1, 20].map(Key::Scroll);
        assert_eq!(all, [&scrolls[..], &[Key::Quit]].concat());
        assert_eq!(keys(b"\x03", 20), [Key::Quit], "Ctrl-C");
    }

    #[test]
    fn scrolling_ends_at_both_ends_of_the_text() {
        assert_eq!(scrolled(0, -5, 100, 20), 0);
        assert_eq!(scrolled(75, 20, 100, 20), 80);
        assert_eq!(scrolled(50, 0, 30, 20), 10, "the text has become shorter");
        assert_eq!(scrolled(3, 5, 10, 20), 0, "all lines are there");
    }

    #[test]
    fn a_frame_fits_the_terminal_and_marks_verdicts() {
        let rows: String = (0..50).map(|rank| format!("{rank} {}\n", "x".repeat(100))).collect();
        let text = format!("hung: rank 3 is\u{1b}[2J late\n 3 row <\n{rows}");
        let shown = frame(&text, "the foot", 0, (10, 40));
        let lines: Vec<&str> = shown.split("\r\n").collect();
        assert_eq!(lines.len(), 10, "{shown:?}");
        assert!(lines[0].contains("\u{1b}[1;31mhung: rank 3 is [2J late"), "{shown:?}");
        assert!(lines[1].contains("\u{1b}[33m 3 row <"), "{shown:?}");
        assert!(lines[2].starts_with("0 x") && lines[2].matches('x').count() == 38, "{shown:?}");
        assert!(lines[9].contains("the foot"), "{shown:?}");
        let scrolled = frame(&text, "the foot", 2, (10, 40));
        assert!(scrolled.starts_with("\u{1b}[H0 x"), "{scrolled:?}");
    }
}

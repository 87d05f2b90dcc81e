//! Reads one line from left to right.

use super::error::Reason;

/// The rest of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Scan<'a> {
    pub(super) const fn new(rest: &'a str, line: usize) -> Self {
        Self { rest, line }
    }

    /// An error about this line.
    pub(super) fn wrong(&self, text: impl Into<String>) -> Reason {
        Reason::new(self.line, text)
    }

    /// Skips spaces and tabs.
    pub(super) fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes `text` if it comes next.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes `text`, which must come next.
    pub(super) fn must(&mut self, text: &str) -> Result<(), Reason> {
        if self.take(text) {
            return Ok(());
        }
        Err(self.wrong(format!("expected `{text}`, found {}", shown(self.rest))))
    }

    /// Skips spaces, and takes all up to the next one.
    pub(super) fn word(&mut self) -> &'a str {
        self.space();
        self.before(char::is_whitespace)
    }

    /// Skips spaces, and takes a decimal number.
    pub(super) fn number(&mut self, of: &str) -> Result<u16, Reason> {
        self.space();
        let all = *self;
        let digits = self.before(|c: char| !c.is_ascii_digit());
        let wrong = || all.wrong(format!("expected the {of}, found {}", shown(all.rest)));
        digits.parse().map_err(|_| wrong())
    }

    /// Skips spaces, and takes the number of a port of a node.
    pub(super) fn port(&mut self) -> Result<u16, Reason> {
        let port = self.number("number of a port")?;
        if !(1..=PORT_MAX).contains(&port) {
            return Err(self.wrong(format!("port {port} is not in 1-{PORT_MAX}")));
        }
        Ok(port)
    }

    /// Takes a hexadecimal number of up to 64 bits, with or without `0x`. It must not be 0.
    pub(super) fn guid(&mut self) -> Result<u64, Reason> {
        let all = *self;
        self.take("0x");
        let digits = self.before(|c: char| !c.is_ascii_hexdigit());
        match u64::from_str_radix(digits, 16) {
            Ok(0) => Err(all.wrong("GUID 0 is not valid")),
            Ok(guid) => Ok(guid),
            Err(_) => Err(all.wrong(format!("expected a GUID, found {}", shown(all.rest)))),
        }
    }

    /// Takes all up to `end`, and `end`.
    pub(super) fn until(&mut self, end: &str) -> Result<&'a str, Reason> {
        let Some((before, after)) = self.rest.split_once(end) else {
            return Err(self.wrong(format!("`{end}` is missing after {}", shown(self.rest))));
        };
        self.rest = after;
        Ok(before)
    }

    /// The number of the line.
    pub(super) const fn line(&self) -> usize {
        self.line
    }

    /// The rest of the line.
    pub(super) const fn rest(&self) -> &'a str {
        self.rest
    }

    fn before(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (before, after) = self.rest.split_at(end);
        self.rest = after;
        before
    }
}

/// InfiniBand numbers the ports of a node with 8 bits; 255 is reserved.
const PORT_MAX: u16 = 254;

/// A text from a file, as errors show it: quoted, and cut after a few words.
pub(super) fn shown(text: &str) -> String {
    const CHARS: usize = 40;
    let text = text.trim();
    match (text.is_empty(), text.char_indices().nth(CHARS)) {
        (true, _) => "nothing".to_owned(),
        (false, None) => format!("{text:?}"),
        (false, Some((end, _))) => format!("{:?}...", &text[..end]),
    }
}

/// Gigabits per second of a link, from its width and the speed of a lane: `4x` and `EDR`, or `4X`
/// and `25.78125`. 0 for unknown values.
pub(super) fn gbps(width: &str, speed: &str) -> u32 {
    let lanes: u32 = match width.trim_end_matches(['x', 'X']).parse() {
        Ok(lanes @ (1 | 2 | 4 | 8 | 12)) => lanes,
        _ => return 0,
    };
    // In tenths: the rates that `/sys/class/infiniband` shows.
    let tenths: u32 = match speed {
        "SDR" | "2.5" => 25,
        "DDR" | "5.0" => 50,
        "QDR" | "FDR10" | "10.0" => 100,
        "FDR" | "14.0625" => 140,
        "EDR" | "25.78125" => 250,
        "HDR" | "53.125" => 500,
        "NDR" | "106.25" => 1000,
        "XDR" | "212.5" => 2000,
        _ => 0,
    };
    lanes * tenths / 10
}

/// A MAC address, such as `02:00:00:00:00:01`.
pub(super) fn mac_address(text: &str) -> Option<u64> {
    let mut bytes = text.split([':', '-']);
    let mut mac = 0;
    for _ in 0..6 {
        let byte = bytes.next().filter(|byte| byte.len() == 2)?;
        mac = mac << 8 | u64::from(u8::from_str_radix(byte, 16).ok()?);
    }
    bytes.next().is_none().then_some(mac)
}

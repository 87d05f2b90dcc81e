//! The text of the site file: JSON with one host a line, so that `diff` shows hosts.
//!
//! ```json
//! {"ringfold-site": 1,
//!  "kind": {"name": "rail-optimized", "certainty": "certain"},
//!  "rails": {"value": 2, "certainty": "certain"},
//!  "planes": {"value": 1, "certainty": "certain"},
//!  "crosses": {"value": true, "certainty": "likely"},
//!  "measured": [
//!   {"between": [[0, 0], [1, 0]], "reach": "all", "apart": true}
//!  ],
//!  "hosts": [
//!   {"name": "a", "pod": 0, "group": 0, "order": 0, "ports": [
//!     {"guid": "0x98039b0300000001", "device": "mlx5_0", "port": 1, "gbps": 400, "rail": 0,
//!      "plane": 0, "certainty": "certain"}]}
//!  ]}
//! ```
//!
//! A pair under `between` is rail and plane. Reasons (`because`) are optional, and ranks ignore
//! them. A port has a `guid`, a `mac` or an `address`, or is identified by its host's name and its
//! device. Unknown fields are refused.

mod text;

use std::collections::HashMap;
use std::fmt::Write as _;

use ringfold_types::limits::{FABRIC_NAME_BYTES_MAX, FABRIC_NODES_MAX, FABRIC_PORTS_MAX};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use self::text::{Head, HostText, MeasuredText, VERSION, json};
use super::content;
use super::error::{Error, Reason, syntax};
use crate::fabric::{Place, PortId};
use crate::site::{Site, SiteHost};

/// The most pairs of places that a site file may have measured.
const MEASURED_MAX: usize = 1 << 12;

impl Site {
    /// Reads the text of a site file. `file` is the name for errors.
    ///
    /// # Errors
    /// The first error: in the syntax, an unknown version or field, a number out of range, or a
    /// duplicate host, port or pair of places.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        content::text(text.as_bytes()).and_then(parse).map_err(|reason| reason.of(file))
    }

    /// The text of the site file. `parse` turns it into an equal site.
    #[must_use]
    pub fn write(&self) -> String {
        let mut text = format!("{{\"ringfold-site\": {VERSION}");
        for (name, value) in text::head(self) {
            let _ = write!(text, ",\n \"{name}\": {value}");
        }
        let measured = self.measured.iter().map(|measured| json(&MeasuredText::of(measured)));
        let hosts = self.hosts.iter().map(|host| json(&HostText::of(host)));
        for (name, lines) in [("measured", list(measured)), ("hosts", list(hosts))] {
            let _ = write!(text, ",\n \"{name}\": [{lines}]");
        }
        text.push_str("}\n");
        text
    }
}

fn list(lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines.map(|line| format!("\n  {line}")).collect();
    let end = if lines.is_empty() { "" } else { "\n " };
    lines.join(",") + end
}

/// Reads a site file without its name.
pub(super) fn parse(text: &str) -> Result<Site, Reason> {
    let head: Head<'_> = serde_json::from_str(text).map_err(|error| syntax(1, &error))?;
    let mut site = head.site();
    let mut lines = Lines::new(text);
    for raw in &head.measured {
        let (line, measured) = lines.item::<MeasuredText>(raw)?;
        let measured = measured.measured();
        for place in measured.between {
            in_range(&site, place, line)?;
        }
        if site.measured(measured.between[0], measured.between[1]).is_some() {
            return Err(Reason::new(line, "the pair of places was measured before"));
        }
        if site.measured.len() == MEASURED_MAX {
            return Err(Reason::new(
                line,
                format!("the file has more than {MEASURED_MAX} measured pairs, the limit"),
            ));
        }
        site.measured.push(measured);
    }
    let mut seen = Seen::default();
    for raw in &head.hosts {
        let (line, host) = lines.item::<HostText>(raw)?;
        let host = host.host().map_err(|text| Reason::new(line, text))?;
        for place in host.ports.iter().filter_map(|port| port.place) {
            in_range(&site, place, line)?;
        }
        seen.add(&host, line)?;
        site.hosts.push(host);
    }
    Ok(site)
}

/// Values that must be unique, with the line of the first.
#[derive(Default)]
struct Seen {
    names: HashMap<String, usize>,
    orders: HashMap<u32, usize>,
    ports: HashMap<PortId, usize>,
}

impl Seen {
    fn add(&mut self, host: &SiteHost, line: usize) -> Result<(), Reason> {
        let wrong = |text: String| Err(Reason::new(line, text));
        let name = &host.name;
        if self.names.len() == FABRIC_NODES_MAX {
            return wrong(format!("the file has more than {FABRIC_NODES_MAX} hosts, the limit"));
        }
        if name.len() > FABRIC_NAME_BYTES_MAX {
            return wrong(format!(
                "the name has more than {FABRIC_NAME_BYTES_MAX} bytes, the limit"
            ));
        }
        if let Some(first) = self.names.insert(name.clone(), line) {
            return wrong(format!("host {name:?} occurs a second time, after line {first}"));
        }
        if let Some(position) = host.position
            && let Some(first) = self.orders.insert(position.order, line)
        {
            return wrong(format!(
                "order {} is also that of the host on line {first}",
                position.order
            ));
        }
        for port in &host.ports {
            if self.ports.len() == FABRIC_PORTS_MAX {
                return wrong(format!(
                    "the file has more than {FABRIC_PORTS_MAX} ports, the limit"
                ));
            }
            if let Some(first) = self.ports.insert(port.id, line) {
                let (device, number) = (&port.device, port.number);
                let text = format!("port {device:?}:{number} is also on line {first}");
                return wrong(text);
            }
        }
        Ok(())
    }
}

/// Refuses rails and planes beyond the numbers in the site's head.
fn in_range(site: &Site, place: Place, line: usize) -> Result<(), Reason> {
    let Place { rail, plane } = place;
    let (rails, planes) = (site.rails.value, site.planes.value);
    if rails > 0 && rail >= rails {
        return Err(Reason::new(
            line,
            format!("rail {rail} is not in 0-{} of the site", rails - 1),
        ));
    }
    if planes > 0 && plane >= planes {
        let text = format!("plane {plane} is not in 0-{} of the site", planes - 1);
        return Err(Reason::new(line, text));
    }
    Ok(())
}

/// Counts lines up to parts of a text. For parts in text order, all calls together take one pass.
struct Lines<'a> {
    text: &'a str,
    offset: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    const fn new(text: &'a str) -> Self {
        Self { text, offset: 0, line: 1 }
    }

    /// Reads a part of the text. Returns it with the line on which it begins.
    fn item<T: DeserializeOwned>(&mut self, raw: &RawValue) -> Result<(usize, T), Reason> {
        let offset = raw.get().as_ptr() as usize - self.text.as_ptr() as usize;
        if offset < self.offset {
            *self = Self::new(self.text);
        }
        let passed = &self.text.as_bytes()[self.offset..offset];
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.offset = offset;
        let item = serde_json::from_str(raw.get()).map_err(|error| syntax(self.line, &error))?;
        Ok((self.line, item))
    }
}

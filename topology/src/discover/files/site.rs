//! The text of the site file: JSON with one host a line, so that `diff` shows hosts.
//!
//! ```json
//! {"ringfold-site": 1,
//!  "kind": {"name": "rail-optimized", "certainty": "certain"},
//!  "rails": {"count": 2, "certainty": "certain"},
//!  "planes": {"count": 1, "certainty": "certain"},
//!  "crosses": {"value": true, "certainty": "likely"},
//!  "measured": [
//!   {"between": [[0, 0], [1, 0]], "reach": "all", "apart": true}
//!  ],
//!  "hosts": [
//!   {"name": "a", "pod": 0, "group": 0, "order": 0, "ports": [{"guid": "0x98039b0300000001", …}]}
//!  ]}
//! ```
//!
//! A pair under `between` is rail and plane. Reasons (`because`) are optional and mean nothing to
//! ranks. Fields of another name are refused.

use super::Error;
use crate::site::Site;

impl Site {
    /// Reads the text of a site file. `file` is its name, for errors.
    ///
    /// # Errors
    /// The first thing that is wrong: with the syntax, an unknown version or field, a number out of
    /// range, or a host, port or pair of places that is there twice.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let _ = text;
        Err(super::error::Reason::new(1, "is not read yet").of(file))
    }

    /// The text of the site file; `parse` makes an equal site of it.
    #[must_use]
    pub fn write(&self) -> String {
        String::new()
    }
}

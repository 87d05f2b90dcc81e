//! The source, the tag and the length of a message, for receives and probes.

use pyo3::prelude::*;
use ringfold::Message as Arrived;

/// A message that was received, or that waits for its receive.
#[pyclass(frozen, eq, get_all, module = "ringfold")]
#[derive(PartialEq, Eq)]
pub(crate) struct Message {
    /// The rank that sent it.
    source: u32,
    /// Its tag.
    tag: u32,
    /// Its length in bytes.
    nbytes: usize,
}

impl From<Arrived> for Message {
    fn from(Arrived { peer, tag, bytes, .. }: Arrived) -> Self {
        Self { source: peer.0, tag, nbytes: bytes }
    }
}

#[pymethods]
impl Message {
    fn __repr__(&self) -> String {
        let Self { source, tag, nbytes } = self;
        format!("<ringfold.Message: {nbytes} bytes from rank {source}, tag {tag}>")
    }
}

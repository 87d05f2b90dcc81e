//! Messages between two ranks.
#![allow(unsafe_code)]
#![expect(clippy::too_many_arguments, reason = "these are keywords in Python")]

use pyo3::prelude::*;
use ringfold::{ANY_SOURCE, ANY_TAG, Rank};

use crate::call::{Called, Common, dispatch};
use crate::communicator::Communicator;
use crate::fault::raise;
use crate::memory::Memory;
use crate::region::{Access, overlap};

#[pymethods]
impl Communicator {
    /// Sends `data` to rank `to`, which must receive it with the same tag and length. Waits until
    /// the message has left, or until the receiver takes it if it is long.
    #[pyo3(signature = (data, to, tag=0, *, async_op=false, timeout=None, keep=None))]
    fn send(
        &self,
        data: &Bound<'_, PyAny>,
        to: u32,
        tag: u32,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let memory = Memory::new(data, "the data", Access::Read)?;
        let (region, common) = (memory.region, Common { dtype: None, async_op, timeout, keep });
        dispatch(data.py(), &self.queue, [memory], common, move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not write it meanwhile.
            ranks.send::<u8>(unsafe { region.slice() }, Rank(to), tag)
        })
    }

    /// Receives the next message of rank `source` into `data`. Waits until it has arrived.
    #[pyo3(signature = (data, source, tag=0, *, async_op=false, timeout=None, keep=None))]
    fn recv(
        &self,
        data: &Bound<'_, PyAny>,
        source: u32,
        tag: u32,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let memory = Memory::new(data, "the data", Access::Write)?;
        let (region, common) = (memory.region, Common { dtype: None, async_op, timeout, keep });
        dispatch(data.py(), &self.queue, [memory], common, move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not use it meanwhile.
            ranks.recv::<u8>(unsafe { region.slice_mut() }, Rank(source), tag).map(drop)
        })
    }

    /// Receives the next message with this tag, of any other rank, into `data`. Returns its sender.
    /// Waits until it has arrived.
    ///
    /// A rank whose next message has another tag is passed over. Among several senders the search
    /// begins behind the one that it found last.
    #[pyo3(signature = (data, tag=0))]
    fn recv_any(&self, data: &Bound<'_, PyAny>, tag: u32) -> PyResult<u32> {
        let memory = Memory::new(data, "the data", Access::Write)?;
        let region = memory.region;
        self.find(data.py(), [memory], move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not use it meanwhile.
            Ok(ranks.recv::<u8>(unsafe { region.slice_mut() }, ANY_SOURCE, tag)?.peer.0)
        })
    }

    /// The tag and the length in bytes of the next message of rank `source`, or None if it has not
    /// begun to arrive. Does not wait for it, and leaves it to a receive.
    fn probe(&self, py: Python<'_>, source: u32) -> PyResult<Option<(u32, usize)>> {
        self.find(py, [], move |ranks| {
            Ok(ranks.probe(Rank(source), ANY_TAG)?.map(|message| (message.tag, message.bytes)))
        })
    }

    /// Sends `data` to rank `to`, and receives the next message of rank `source` into `into`, both
    /// with this tag. Both progress at once, so a ring of ranks does not deadlock.
    #[pyo3(signature = (data, to, into, source, tag=0, *, async_op=false, timeout=None, keep=None))]
    fn send_recv(
        &self,
        data: &Bound<'_, PyAny>,
        to: u32,
        into: &Bound<'_, PyAny>,
        source: u32,
        tag: u32,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let py = data.py();
        let data = Memory::new(data, "the data", Access::Read)?;
        let into = Memory::new(into, "into", Access::Write)?;
        let (from_region, into_region) = (data.region, into.region);
        if from_region.overlaps(into_region) {
            return Err(raise(py, overlap()));
        }
        let common = Common { dtype: None, async_op, timeout, keep };
        dispatch(py, &self.queue, [data, into], common, move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not use it meanwhile.
            let (data, into) = unsafe { (from_region.slice(), into_region.slice_mut()) };
            ranks.send_recv::<u8, u8>(data, Rank(to), into, Rank(source), tag).map(drop)
        })
    }
}

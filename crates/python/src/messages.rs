//! Messages between two ranks.
#![allow(unsafe_code)]
#![expect(clippy::too_many_arguments, reason = "these are keywords in Python")]

use pyo3::prelude::*;
use ringfold::Rank;

use crate::call::{Called, Common, dispatch, start};
use crate::communicator::Communicator;
use crate::fault::raise;
use crate::handle::Handle;
use crate::memory::Memory;
use crate::message::Message;
use crate::region::{Access, overlap};

/// The result of a receive: a handle for one in the background, and otherwise its message.
#[derive(IntoPyObject)]
pub(crate) enum Received {
    Later(Handle),
    Now(Message),
}

#[pymethods]
impl Communicator {
    /// Sends `data` to rank `to`. Waits until the message has left, or until the receiver takes it
    /// if it is long.
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
        let (py, region, to) = (data.py(), memory.region, Rank(to));
        let common = Common { dtype: None, async_op, timeout, keep };
        if async_op {
            let handle = start(py, &self.queue, [memory], common, move |ranks, requests| {
                // SAFETY: `start` keeps the memory, and its owner does not write it meanwhile.
                let sent = ranks.start_send_of((), move |()| unsafe { region.slice() }, to, tag)?;
                requests.push(sent);
                Ok(())
            });
            return handle.map(Some);
        }
        dispatch(py, &self.queue, [memory], common, move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not write it meanwhile.
            ranks.send::<u8>(unsafe { region.slice() }, to, tag)
        })
    }

    /// Receives the first message of rank `source` that has this `tag` into the front of `data`.
    /// None stands for any rank, and for any tag. Waits until it has arrived, and returns the
    /// `Message`. In the background, the handle has it.
    ///
    /// A message that is longer than `data` raises a TruncatedError, and stays for a later receive.
    #[pyo3(signature = (data, source, tag=Some(0), *, async_op=false, timeout=None, keep=None))]
    fn recv(
        &self,
        data: &Bound<'_, PyAny>,
        source: Option<u32>,
        tag: Option<u32>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<Received> {
        let memory = Memory::new(data, "the data", Access::Write)?;
        let (py, region, source) = (data.py(), memory.region, source.map(Rank));
        let common = Common { dtype: None, async_op, timeout, keep };
        if async_op {
            let handle = start(py, &self.queue, [memory], common, move |ranks, requests| {
                // SAFETY: `start` keeps the memory, and its owner does not use it meanwhile.
                requests.push(ranks.start_recv_in(
                    (),
                    move |()| unsafe { region.slice_mut() },
                    source,
                    tag,
                )?);
                Ok(())
            });
            return handle.map(Received::Later);
        }
        let received = self.find(py, [memory], common, move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not use it meanwhile.
            ranks.recv::<u8>(unsafe { region.slice_mut() }, source, tag)
        });
        received.map(|message| Received::Now(message.into()))
    }

    /// The `Message` that a receive of rank `source` with this `tag` would take, or None if it has
    /// not begun to arrive. None stands for any rank, and for any tag. Does not wait for the
    /// message, and leaves it to a receive.
    #[pyo3(signature = (source=None, tag=None))]
    fn probe(
        &self,
        py: Python<'_>,
        source: Option<u32>,
        tag: Option<u32>,
    ) -> PyResult<Option<Message>> {
        let common = Common { dtype: None, async_op: false, timeout: None, keep: None };
        let found = self.find(py, [], common, move |ranks| ranks.probe(source.map(Rank), tag));
        Ok(found?.map(Message::from))
    }

    /// Sends `data` to rank `to`, and receives the first message of rank `source` with this tag
    /// into `into`. Both progress at once, so a ring of ranks does not deadlock.
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
        let (from, target) = (data.region, into.region);
        let (to, source) = (Rank(to), Rank(source));
        if from.overlaps(target) {
            return Err(raise(py, overlap()));
        }
        let common = Common { dtype: None, async_op, timeout, keep };
        if async_op {
            let handle = start(py, &self.queue, [data, into], common, move |ranks, requests| {
                // An invalid source fails before anything is sent.
                if source.index() < ranks.size() {
                    // SAFETY: `start` keeps the memory, and its owner does not write it meanwhile.
                    let sent =
                        ranks.start_send_of((), move |()| unsafe { from.slice() }, to, tag)?;
                    requests.push(sent);
                }
                // SAFETY: `start` keeps the memory, and its owner does not use it meanwhile.
                requests.push(ranks.start_recv_in(
                    (),
                    move |()| unsafe { target.slice_mut() },
                    source,
                    tag,
                )?);
                Ok(())
            });
            return handle.map(Some);
        }
        dispatch(py, &self.queue, [data, into], common, move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not use it meanwhile.
            let (data, into) = unsafe { (from.slice(), target.slice_mut()) };
            ranks.send_recv::<u8, u8>(data, to, into, source, tag).map(drop)
        })
    }
}

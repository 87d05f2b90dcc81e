//! The collectives: methods of communicators and of groups of calls, written from tables.
#![expect(clippy::too_many_arguments, reason = "these are keywords in Python")]

use pyo3::prelude::*;
use ringfold::Collective;

use crate::call::{Arguments, Called, Common, perform};
use crate::call_group::CallGroup;
use crate::communicator::Communicator;
use crate::uneven::perform_uneven;

/// Writes the methods of a class, one for each row. A row has the comment, the name, the
/// collective, and then three lists of arguments beside the input and the output: those by
/// position, the root, and those by keyword.
macro_rules! methods {
    (Communicator by $perform:ident: $(
        $(#[$($doc:tt)*])*
        $name:ident = $collective:ident[$($at:ident = $none:tt)?][$($root:ident = $zero:tt)?]
            [$($key:ident $(= $key_none:tt)?),*];
    )*) => {
        #[pymethods]
        impl Communicator {$(
            $(#[$($doc)*])*
            #[pyo3(signature = (
                input, output=None, $($at=$none,)? $($root=$zero,)? *, $($key $(=$key_none)?,)*
                dtype=None, async_op=false, timeout=None, keep=None
            ))]
            fn $name(
                &self,
                py: Python<'_>,
                input: Option<&Bound<'_, PyAny>>,
                output: Option<&Bound<'_, PyAny>>,
                $($at: Option<&Bound<'_, PyAny>>,)?
                $($root: u32,)?
                $($key: Option<&Bound<'_, PyAny>>,)*
                dtype: Option<&Bound<'_, PyAny>>,
                async_op: bool,
                timeout: Option<f64>,
                keep: Option<Py<PyAny>>,
            ) -> Called {
                let common = Common { dtype, async_op, timeout, keep };
                let arguments = Arguments { $($at,)? $($root,)? $($key,)* ..Arguments::default() };
                let (collective, given) = (Collective::$collective, [input, output]);
                $perform(py, &self.queue, collective, given, arguments, common)
            }
        )*}
    };
    (CallGroup: $(
        $(#[$($doc:tt)*])*
        $name:ident = $collective:ident[$($at:ident = $none:tt)?][$($root:ident = $zero:tt)?][];
    )*) => {
        #[pymethods]
        impl CallGroup {$(
            #[doc = concat!("Adds `Communicator.", stringify!($name), "`.")]
            #[pyo3(signature = (
                input, output=None, $($at=$none,)? $($root=$zero,)? *, dtype=None, keep=None
            ))]
            fn $name(
                &self,
                py: Python<'_>,
                input: Option<&Bound<'_, PyAny>>,
                output: Option<&Bound<'_, PyAny>>,
                $($at: Option<&Bound<'_, PyAny>>,)?
                $($root: u32,)?
                dtype: Option<&Bound<'_, PyAny>>,
                keep: Option<Py<PyAny>>,
            ) -> PyResult<()> {
                let arguments = Arguments { $($at,)? $($root,)? ..Arguments::default() };
                let (collective, given) = (Collective::$collective, [input, output]);
                self.add_call(py, collective, given, arguments, (dtype, keep))
            }
        )*}
    };
    (both: $($row:tt)*) => {
        methods! { Communicator by perform: $($row)* }
        methods! { CallGroup: $($row)* }
    };
}

methods! { both:
    /// Reduces the inputs of all ranks into the output of every rank. In place without an output.
    all_reduce = AllReduce[op = None][][];
    /// Writes the inputs of all ranks, in rank order, to the output of every rank. In place without
    /// an output: block `rank` of the buffer is the input.
    all_gather = AllGather[][][];
    /// Reduces the inputs of all ranks, and writes block `rank` of the result to the output. In
    /// place without an output: the result is block `rank` of the buffer.
    reduce_scatter = ReduceScatter[op = None][][];
    /// Reduces the inputs of all ranks into the output of `root`. In place without an output. The
    /// memory of the other ranks stays as it is.
    reduce = Reduce[op = None][root = 0][];
    /// Reduces the inputs of ranks 0 to r into the output of every rank r. In place without an
    /// output.
    scan = Scan[op = None][][];
    /// Reduces the inputs of the ranks before it into the output of every rank. The output of rank
    /// 0 stays as it was. In place without an output.
    exscan = Exscan[op = None][][];
    /// Sends block r of the input to every rank r, and writes the block of rank r for this rank to
    /// block r of the output. In place without an output.
    all_to_all = AllToAll[][][];
    /// Writes the input of every rank r to block r of the output of `root`. In place on the root
    /// without an output: its own block is the input. Other ranks need no output.
    gather = Gather[][root = 0][];
    /// Writes block r of the input of `root` to the output of every rank r. In place on the root
    /// without an output: its own block stays there. Other ranks need no input.
    scatter = Scatter[][root = 0][];
}

// A group broadcasts in place only, so it has a method of its own.
methods! { Communicator by perform:
    /// Writes the input of `root` to the output of every rank. In place without an output. The
    /// other ranks may pass None as the input.
    broadcast = Broadcast[][root = 0][];
}

methods! { Communicator by perform_uneven:
    /// Sends part r of the input to every rank r, and writes the part of rank r for this rank to
    /// part r of the output. `send` and `recv` are the parts: a sequence of counts in elements, or
    /// a tuple of counts and displacements. Without `send`, and in place without an output, `recv`
    /// counts for both.
    all_to_all_v = AllToAll[][][send = None, recv];
    /// Writes the input of every rank r to part r of the output of `root`, which alone passes
    /// `parts` and an output. In place on the root without an output.
    gather_v = Gather[parts = None][root = 0][];
    /// Writes part r of the input of `root`, which alone passes `parts` and an input, to the output
    /// of every rank r. In place on the root without an output.
    scatter_v = Scatter[parts = None][root = 0][];
    /// Writes the input of every rank r to part r of every rank's output. All ranks pass the same
    /// counts. In place without an output: this rank's part is the input.
    all_gather_v = AllGather[][][parts];
    /// Reduces part r of all ranks' inputs into the output of every rank r. All ranks pass the same
    /// counts. In place without an output: the result is this rank's part of the buffer.
    reduce_scatter_v = ReduceScatter[op = None][][parts];
}

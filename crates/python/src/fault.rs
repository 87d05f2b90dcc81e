//! Errors, as the exceptions of `ringfold.errors`.

use std::error::Error as StdError;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringfold::{CallPosition, Error, Failure, FailureCause, Operation, Rank};

use crate::queue::Fault;

/// Makes the exception of a fault.
#[cold]
pub(crate) fn raise(py: Python<'_>, fault: Fault) -> PyErr {
    exception(py, fault).unwrap_or_else(|error| error)
}

fn exception(py: Python<'_>, fault: Fault) -> PyResult<PyErr> {
    let (class, message) = match &fault {
        Fault::Call(error) => (class_of(error), format!("{error:?}")),
        Fault::Argument(what) => ("ArgumentError", what.clone()),
        Fault::Closed => ("ClosedError", "the communicator is closed".to_owned()),
        Fault::Forked => (
            "ForkedError",
            "this process was forked from the one that made the communicator, which alone may use \
             it; make communicators after the fork, or start children by \"spawn\""
                .to_owned(),
        ),
        Fault::Nested => (
            "Error",
            "this thread is within a call of the communicator, so it cannot wait for another; in \
             a signal handler, a callback or an operation pass async_op=True and wait elsewhere, \
             or use another communicator"
                .to_owned(),
        ),
        Fault::Defect(text) => {
            ("Error", format!("a defect of ringfold: {text}; please report it with this message"))
        }
    };
    let value = py.import("ringfold.errors")?.getattr(class)?.call1((message,))?;
    match &fault {
        Fault::Call(Error::Failed(failure)) => {
            let operation = failure.operation.to_string();
            describe(&value, failure.rank, failure.group.as_deref(), &failure.cause)?;
            value.setattr("operation", operation)?;
            value.setattr("sequence", sequence(failure))?;
        }
        Fault::Call(Error::Leave { rank, group, cause }) => {
            describe(&value, *rank, group.as_deref(), cause)?;
            value.setattr("operation", "leave")?;
        }
        _ => {}
    }
    let raised = PyErr::from_value(value);
    if let Fault::Call(error) = &fault
        && let Some(behind) = python_error(error)
    {
        raised.set_cause(py, Some(behind.clone_ref(py)));
    }
    Ok(raised)
}

const fn class_of(error: &Error) -> &'static str {
    match error {
        Error::Argument { .. } => "ArgumentError",
        Error::Truncated { .. } => "TruncatedError",
        Error::Failed(_) => "FailedError",
        Error::Leave { .. } => "LeaveError",
        Error::Forked { .. } => "ForkedError",
        Error::Group { .. } => "GroupError",
        Error::Regroup { .. } => "RegroupError",
        Error::Config(_) => "ConfigError",
        Error::Init(_) => "InitError",
        _ => "Error",
    }
}

/// The number of the collective that failed. A message has none.
const fn sequence(failure: &Failure) -> Option<u64> {
    match &failure.operation {
        Operation::Call { seq, .. } | Operation::Uneven { seq, .. } => Some(*seq),
        _ => None,
    }
}

fn describe(
    value: &Bound<'_, PyAny>,
    rank: Rank,
    group: Option<&str>,
    cause: &FailureCause,
) -> PyResult<()> {
    value.setattr("rank", rank.0)?;
    value.setattr("group", group)?;
    value.setattr("cause", cause.to_string())?;
    value.setattr("kind", kind(cause))?;
    let peers: Vec<u32> = cause.culprits().iter().map(|rank| rank.0).collect();
    value.setattr("peers", PyTuple::new(value.py(), peers)?)
}

fn kind(cause: &FailureCause) -> &'static str {
    match cause {
        FailureCause::Absent { ranks, .. }
            if ranks.iter().any(|it| it.position == CallPosition::Gone) =>
        {
            "left"
        }
        FailureCause::Died { .. } => "died",
        FailureCause::Silent { .. } => "silent",
        FailureCause::Absent { .. } => "absent",
        FailureCause::Mismatch { .. } => "mismatch",
        FailureCause::Link { .. } => "link",
        FailureCause::Message { .. } => "message",
        FailureCause::Tags { .. } => "tags",
        FailureCause::Stalled { .. } => "stalled",
        FailureCause::Aborted { .. } => "aborted",
        FailureCause::Revoked { .. } => "revoked",
        FailureCause::Left { .. } => "left",
        _ => "unknown",
    }
}

/// The exception of the caller's store behind an error.
fn python_error(error: &Error) -> Option<&PyErr> {
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(found) = source.downcast_ref::<PyErr>() {
            return Some(found);
        }
        next = source.source();
    }
    None
}

//! Checks of a call's arguments.

use ringfold_reduce::scale_fits;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp};

use crate::buffers::Place;
use crate::error::Error;

/// Checks a call of `rank` in a group of `size`. Returns it with default values in the fields that
/// have no meaning for its collective.
///
/// # Errors
/// The fields of the call, or the lengths of its buffers, contradict each other.
pub(crate) fn valid(call: &Call, place: Place, size: usize, rank: Rank) -> Result<Call, Error> {
    let Call { collective, count, data_type, .. } = *call;
    // Fields without a meaning must not make ranks differ.
    let op = if collective.reduces() { call.op } else { ReduceOp::Sum };
    let root = if collective.has_root() { call.root } else { Rank(0) };
    let call = Call { op, root, ..*call };
    check_root(root, size)
        .and_then(|()| check_count(count, size))
        .and_then(|()| check_op(op, data_type))
        .map_err(|what| argument(rank, collective, what))?;
    let bytes = data_type.bytes();
    let expect_len = |name, len: usize, wanted: usize| {
        if len == wanted * bytes {
            return Ok(());
        }
        let wanted = wanted * bytes;
        let what = format!("the {name} has {len} bytes and needs {wanted}");
        Err(argument(rank, collective, what))
    };
    if place.in_place {
        expect_len("buffer", place.input, call.in_place_of(rank, size))?;
        return Ok(call);
    }
    if call.has_input(rank) {
        expect_len("input", place.input, call.input_len(size))?;
    }
    if call.has_output(rank) {
        expect_len("output", place.output, call.output_len(size))?;
    }
    Ok(call)
}

/// Checks that the root is one of `size` ranks.
pub(crate) fn check_root(root: Rank, size: usize) -> Result<(), String> {
    if root.index() < size {
        return Ok(());
    }
    Err(format!("root {root} is not one of the {size} ranks, which are 0 to {}", size - 1))
}

/// Checks that `size` blocks of `count` elements fit the address space.
pub(crate) fn check_count(count: usize, size: usize) -> Result<(), String> {
    let bytes = count.checked_mul(size).and_then(|all| all.checked_mul(8));
    match bytes.map(isize::try_from) {
        Some(Ok(_)) => Ok(()),
        _ => Err(format!("{count} elements exceed the address space")),
    }
}

/// Checks that an operation combines elements of a type.
pub(crate) fn check_op(op: ReduceOp, data_type: DataType) -> Result<(), String> {
    match op {
        ReduceOp::PreMulSum(factor) if !scale_fits(data_type, factor.factor()) => {
            Err(format!("scale {} has no value in {data_type}", factor.factor()))
        }
        _ if !op.fits(data_type) => Err(format!("{op} combines integers, and {data_type} is none")),
        _ => Ok(()),
    }
}

/// The error of an invalid argument.
pub(crate) const fn argument(rank: Rank, collective: Collective, what: String) -> Error {
    Error::Argument { rank, call: collective.name(), what }
}

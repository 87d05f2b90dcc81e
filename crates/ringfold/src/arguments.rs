//! Checks of a call's arguments.

use ringfold_reduce::scale_fits;
use ringfold_types::{Call, Collective, Rank, ReduceOp};

use crate::buffers::Shape;
use crate::error::Error;

/// The call of `rank` of `size`, without the parts that have no meaning for its collective.
///
/// # Errors
/// The parts of the call, or its buffers, do not fit each other.
pub(crate) fn valid(call: &Call, shape: Shape, size: usize, rank: Rank) -> Result<Call, Error> {
    let Call { collective, count, data_type, .. } = *call;
    // Parts without a meaning must not make a difference.
    let op = if collective.reduces() { call.op } else { ReduceOp::Sum };
    let root = if collective.has_root() { call.root } else { Rank(0) };
    let call = Call { op, root, ..*call };
    if root.index() >= size {
        let what = format!("there is no root {root} among {size} ranks");
        return Err(argument(rank, collective, what));
    }
    let bytes = count.checked_mul(size).and_then(|all| all.checked_mul(8));
    if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(argument(rank, collective, format!("{count} elements are too many")));
    }
    if let ReduceOp::PreMulSum(factor) = op
        && !scale_fits(data_type, factor.factor())
    {
        let what = format!("{} cannot be a factor of {data_type}", factor.factor());
        return Err(argument(rank, collective, what));
    }
    let bytes = data_type.bytes();
    let (input, output) = (call.input_len(size) * bytes, call.output_len(size) * bytes);
    let expect_len = |name, len: usize, wanted: usize| {
        if len == wanted {
            return Ok(());
        }
        let what = format!("the {name} has {len} bytes, it needs {wanted}");
        Err(argument(rank, collective, what))
    };
    if shape.in_place {
        expect_len("buffer", shape.input, input.max(output))?;
        return Ok(call);
    }
    let is_root = rank == call.root;
    if collective != Collective::Broadcast || is_root {
        expect_len("input", shape.input, input)?;
    }
    if collective != Collective::Reduce || is_root {
        expect_len("output", shape.output, output)?;
    }
    Ok(call)
}

/// An argument of a call of `rank` that does not fit.
pub(crate) const fn argument(rank: Rank, collective: Collective, what: String) -> Error {
    Error::Argument { rank, call: collective.name(), what }
}

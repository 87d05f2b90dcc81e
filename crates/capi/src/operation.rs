//! Reduction operations: predefined ones, and those with a factor.
#![allow(unsafe_code)]

use ringfold::ReduceOp;

use crate::fault::{Fault, reported};
use crate::memory;
use crate::table::Table;
use crate::types::{ringfold_op_t, ringfold_result};

/// The operations with a factor. Their handles are above all predefined operations.
static OPS: Table<ReduceOp> = Table::new(2);

/// The operation that C means.
#[inline]
pub(crate) fn operation(op: ringfold_op_t) -> Result<ReduceOp, Fault> {
    // Operations with a factor have handles.
    let predefined = u8::try_from(op).ok().and_then(ReduceOp::from_code);
    if let Some(op) = predefined.filter(|op| !matches!(op, ReduceOp::PreMulSum(_))) {
        return Ok(op);
    }
    let made = OPS.get(op).map(|op| *op);
    made.ok_or_else(|| Fault::argument(format!("{op:#x} is no reduction operation")))
}

/// Makes the sum of all elements after this rank's elements are multiplied by `factor`. Factors may
/// differ between ranks. Free it with ringfold_op_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_op_create_pre_mul_sum(
    factor: f64,
    op: *mut ringfold_op_t,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of an operation.
        let op = unsafe { memory::out(op, "op") }?;
        op.write(0);
        let handle = OPS.insert(ReduceOp::pre_mul_sum(factor));
        op.write(handle.ok_or_else(|| Fault::full("reduction operation"))?);
        Ok(())
    })
}

/// Frees an operation that ringfold_op_create_pre_mul_sum made.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_op_free(op: ringfold_op_t) -> ringfold_result {
    reported(|| {
        let freed = OPS.remove(op).map(|_| ());
        freed.ok_or_else(|| Fault::handle("reduction operation", op))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ringfold_op;

    #[test]
    fn predefined_operations_have_the_codes_of_rust() {
        use ringfold_op::{
            RINGFOLD_AVG, RINGFOLD_BAND, RINGFOLD_BOR, RINGFOLD_BXOR, RINGFOLD_LAND, RINGFOLD_LOR,
            RINGFOLD_LXOR, RINGFOLD_MAX, RINGFOLD_MIN, RINGFOLD_PROD, RINGFOLD_SUM,
        };
        for (code, op) in [
            (RINGFOLD_SUM, ReduceOp::Sum),
            (RINGFOLD_PROD, ReduceOp::Prod),
            (RINGFOLD_MIN, ReduceOp::Min),
            (RINGFOLD_MAX, ReduceOp::Max),
            (RINGFOLD_AVG, ReduceOp::Avg),
            (RINGFOLD_BAND, ReduceOp::BitAnd),
            (RINGFOLD_BOR, ReduceOp::BitOr),
            (RINGFOLD_BXOR, ReduceOp::BitXor),
            (RINGFOLD_LAND, ReduceOp::LogicalAnd),
            (RINGFOLD_LOR, ReduceOp::LogicalOr),
            (RINGFOLD_LXOR, ReduceOp::LogicalXor),
        ] {
            assert_eq!(operation(code as u64).ok(), Some(op));
        }
        for code in [5, 12, 255, 256, 1 << 32, u64::MAX] {
            assert!(operation(code).is_err(), "{code}");
        }
    }
}

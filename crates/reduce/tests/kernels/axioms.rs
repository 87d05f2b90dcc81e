//! The assumptions about kernels in the proofs of schedules. With them, the order of the sources
//! determines the result of a reduction: operands are combined from left to right, however steps
//! divide them, and two operands have no order.

use crate::inputs;
use ringfold_reduce::{Form, Kernel, Level, Operand};
use ringfold_types::{DataType, ReduceOp};

const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

/// Not a power of two, so averages are rounded.
const RANKS: usize = 7;

/// Values of a case: all elements that `inputs` provides, and more than a vector register.
const COUNT: usize = 4099;

/// Values in a form.
type Values = (Vec<u8>, Form);

fn combine(kernel: &Kernel, form: Form, operands: &[&Values]) -> Values {
    let operands: Vec<_> =
        operands.iter().map(|(bytes, form)| Operand::Bytes { bytes, form: *form }).collect();
    let mut dst = vec![0xa5; COUNT * form.bytes(kernel.data_type())];
    kernel.combine(&mut dst, form, &operands);
    (dst, form)
}

/// Runs a test for every kernel of this CPU, with values of either form.
fn for_every_kernel(test: impl Fn(&Kernel, &mut dyn FnMut(Form) -> Values)) {
    let levels = [vec![Level::Scalar], inputs::levels()].concat();
    for (level, data_type) in
        levels.into_iter().flat_map(|level| DataType::ALL.map(|data_type| (level, data_type)))
    {
        for op in OPS {
            let mut random = inputs::random(&format!("axioms of {op} of {data_type}"));
            let kernel = Kernel::with(level, data_type, op, RANKS).expect("a level that is there");
            test(&kernel, &mut |form| (inputs::values(&mut random, data_type, form, COUNT), form));
        }
    }
}

#[test]
fn two_operands_have_no_order() {
    for_every_kernel(|kernel, values| {
        for forms in
            [[Form::Element; 2], [Form::Accumulator; 2], [Form::Element, Form::Accumulator]]
        {
            let [a, b] = forms.map(&mut *values);
            for form in [Form::Element, Form::Accumulator] {
                let both = [combine(kernel, form, &[&a, &b]), combine(kernel, form, &[&b, &a])];
                assert!(both[0] == both[1], "{kernel:?}, {forms:?} to {form:?}");
            }
        }
    });
}

#[test]
fn a_reduction_may_be_divided_after_any_operand() {
    for_every_kernel(|kernel, values| {
        let all = [(); 4].map(|()| values(Form::Element));
        let all: Vec<&Values> = all.iter().collect();
        let whole = combine(kernel, Form::Element, &all);
        for at in 1..all.len() {
            let partial = combine(kernel, Form::Accumulator, &all[..at]);
            let rest = [&[&partial], &all[at..]].concat();
            let divided = combine(kernel, Form::Element, &rest);
            assert!(divided == whole, "{kernel:?}, after {at} of {}", all.len());
        }
    });
}

#[test]
fn a_change_to_the_accumulator_changes_no_sum() {
    for_every_kernel(|kernel, values| {
        let [a, b] = [values(Form::Element), values(Form::Element)];
        let wide = combine(kernel, Form::Accumulator, &[&a]);
        let both = [
            combine(kernel, Form::Element, &[&a, &b]),
            combine(kernel, Form::Element, &[&wide, &b]),
        ];
        assert!(both[0] == both[1], "{kernel:?}");
    });
}

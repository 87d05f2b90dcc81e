//! The memory of arguments, as regions.

use ringfold_foreign::{Region, Unfit};

use crate::queue::Fault;

/// How a call uses the memory of an argument.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Checks the bounds of the argument `name`.
#[inline]
pub(crate) fn region(start: *mut u8, bytes: usize, name: &str) -> Result<Region, Fault> {
    Region::new(start, bytes).map_err(|unfit| {
        let why = match unfit {
            Unfit::TooLong => "longer than the address space",
            Unfit::Null => "at the address 0",
        };
        Fault::Argument(format!("{name} is {why}"))
    })
}

/// The fault of memories that overlap.
#[cold]
pub(crate) fn overlap() -> Fault {
    let text = "the input and the output overlap; for a call in place pass one of them";
    Fault::Argument(text.to_owned())
}

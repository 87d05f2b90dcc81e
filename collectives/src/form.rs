//! The forms of elements.

use ringfold_types::{Buffer, Call, DataType};

/// The representation of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// In the call's data type.
    Element,
    /// In the data type's accumulator.
    Accumulator,
}

impl Form {
    /// The form of the elements of `buffer`.
    #[must_use]
    pub const fn of(buffer: Buffer) -> Self {
        match buffer {
            Buffer::Input | Buffer::Output | Buffer::Rounded | Buffer::Staging => Self::Element,
            Buffer::Scratch => Self::Accumulator,
        }
    }

    /// The type that elements of this form have in `call`.
    #[must_use]
    pub const fn data_type(self, call: &Call) -> DataType {
        match self {
            Self::Accumulator if call.collective.reduces() => call.data_type.accumulator(),
            _ => call.data_type,
        }
    }
}

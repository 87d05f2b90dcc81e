//! The Rust types that are elements of a collective.

use core::any::TypeId;

use bytemuck::Pod;
use half::{bf16, f16};
use ringfold_types::DataType;

use crate::float8::{F8E4M3, F8E5M2};
use crate::format;
use crate::scalar::accumulator::Accumulator;

/// A Rust type whose values can be reduced. Sealed: the set of data types is closed.
pub trait Element: Pod + sealed::Stored {
    /// The data type of its values.
    const DATA_TYPE: DataType;
}

pub(crate) mod sealed {
    //! The elements as the kernels see them; private, so no other crate can add one.

    use super::{Accumulator, Pod};

    /// A value as stored in a buffer.
    #[expect(unnameable_types, reason = "this is what seals `Element`")]
    pub trait Stored: Pod {
        /// The type in which values are combined.
        type Accumulator: Accumulator;

        /// Converts to the accumulator, exactly.
        fn widen(self) -> Self::Accumulator;

        /// Converts to the nearest stored value, ties to even.
        fn narrow(value: Self::Accumulator) -> Self;
    }
}

macro_rules! element {
    ($type:ty, $data_type:ident) => {
        element!($type, $data_type, $type, |x| x, |x| x);
    };
    ($type:ty, $data_type:ident, $accumulator:ty, $widen:expr, $narrow:expr) => {
        impl Element for $type {
            const DATA_TYPE: DataType = DataType::$data_type;
        }

        impl sealed::Stored for $type {
            type Accumulator = $accumulator;

            #[inline]
            fn widen(self) -> $accumulator {
                let widen: fn(Self) -> $accumulator = $widen;
                widen(self)
            }

            #[inline]
            fn narrow(value: $accumulator) -> Self {
                let narrow: fn($accumulator) -> Self = $narrow;
                narrow(value)
            }
        }

        const _: () = assert!(size_of::<$type>() == DataType::$data_type.bytes());
        const _: () =
            assert!(size_of::<$accumulator>() == DataType::$data_type.accumulator().bytes());
    };
}

element!(i8, I8);
element!(u8, U8);
element!(i32, I32);
element!(u32, U32);
element!(i64, I64);
element!(u64, U64);
element!(f32, F32);
element!(f64, F64);
element!(f16, F16, f32, |x| format::F16.decode(x.to_bits().into()), f16_from);
element!(bf16, Bf16, f32, |x| format::bf16_decode(x.to_bits()), bf16_from);
element!(F8E4M3, F8E4M3, f32, F8E4M3::to_f32, F8E4M3::from_f32);
element!(F8E5M2, F8E5M2, f32, F8E5M2::to_f32, F8E5M2::from_f32);

/// The data type of values of type `T`, if they are elements.
#[inline]
#[must_use]
pub fn data_type_of<T: 'static>() -> Option<DataType> {
    fn is<T: 'static, E: Element>() -> Option<DataType> {
        (TypeId::of::<T>() == TypeId::of::<E>()).then_some(E::DATA_TYPE)
    }
    let integer = is::<T, i8>()
        .or_else(is::<T, u8>)
        .or_else(is::<T, i32>)
        .or_else(is::<T, u32>)
        .or_else(is::<T, i64>)
        .or_else(is::<T, u64>);
    integer
        .or_else(is::<T, f32>)
        .or_else(is::<T, f64>)
        .or_else(is::<T, f16>)
        .or_else(is::<T, bf16>)
        .or_else(is::<T, F8E4M3>)
        .or_else(is::<T, F8E5M2>)
}

#[expect(clippy::cast_possible_truncation, reason = "a code has 16 bits")]
fn f16_from(value: f32) -> f16 {
    f16::from_bits(format::F16.encode(value) as u16)
}

fn bf16_from(value: f32) -> bf16 {
    bf16::from_bits(format::bf16_encode(value))
}

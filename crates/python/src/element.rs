//! Names of data types and operations.

use std::ffi::CStr;
use std::fmt;

use pyo3::prelude::*;
use pyo3::types::PyString;
use ringfold::{DataType, ReduceOp};

use crate::queue::Fault;

/// The type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Known(DataType),
    /// A byte that is 0 or 1.
    Bool,
    /// Anything else of this many bytes. It can be moved, not combined.
    Opaque(usize),
}

/// The names of data types, as numpy and torch have them.
const NAMES: [(&str, DataType); 12] = [
    ("int8", DataType::I8),
    ("uint8", DataType::U8),
    ("int32", DataType::I32),
    ("uint32", DataType::U32),
    ("int64", DataType::I64),
    ("uint64", DataType::U64),
    ("float16", DataType::F16),
    ("bfloat16", DataType::Bf16),
    ("float32", DataType::F32),
    ("float64", DataType::F64),
    ("float8_e4m3fn", DataType::F8E4M3),
    ("float8_e5m2", DataType::F8E5M2),
];

/// The name of a data type.
pub(crate) fn name_of(data_type: DataType) -> &'static str {
    NAMES.iter().find(|(_, known)| *known == data_type).map_or("unknown", |(name, _)| name)
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(data_type) => f.write_str(name_of(*data_type)),
            Self::Bool => f.write_str("bool"),
            Self::Opaque(bytes) => write!(f, "elements of {bytes} bytes"),
        }
    }
}

impl Element {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Known(data_type) => data_type.bytes(),
            Self::Bool => 1,
            Self::Opaque(bytes) => bytes,
        }
    }

    /// The element that a caller names, as in `"float32"`. Any object will do whose text ends in
    /// such a name, as `torch.float32` and `numpy.dtype("float32")` do.
    pub(crate) fn named(name: &Bound<'_, PyAny>) -> PyResult<Result<Self, Fault>> {
        let text;
        let name = match name.cast::<PyString>() {
            Ok(name) => name,
            Err(_) => {
                text = name.str()?;
                &text
            }
        };
        let name = name.to_str()?;
        let last = name.rsplit('.').next().unwrap_or_default();
        if last == "bool" {
            return Ok(Ok(Self::Bool));
        }
        let known = NAMES.iter().find(|(known, _)| *known == last).map(|(_, it)| Self::Known(*it));
        Ok(known.ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            Fault::Argument(format!("{name:?} is no data type; valid are bool, {names}"))
        }))
    }

    /// The element of a buffer with this format of the module `struct`. NULL means bytes.
    pub(crate) fn of_format(format: Option<&CStr>, bytes: usize) -> Self {
        let format = format.map_or(&b"B"[..], CStr::to_bytes);
        let code = match format {
            [code] | [b'@' | b'=' | b'<', code] => *code,
            _ => return Self::Opaque(bytes),
        };
        let data_type = match (code, bytes) {
            (b'?', 1) => return Self::Bool,
            (b'b', 1) => DataType::I8,
            (b'B' | b'c', 1) => DataType::U8,
            (b'i' | b'l' | b'q' | b'n', 4) => DataType::I32,
            (b'I' | b'L' | b'Q' | b'N', 4) => DataType::U32,
            (b'i' | b'l' | b'q' | b'n', 8) => DataType::I64,
            (b'I' | b'L' | b'Q' | b'N', 8) => DataType::U64,
            (b'e', 2) => DataType::F16,
            (b'f', 4) => DataType::F32,
            (b'd', 8) => DataType::F64,
            _ => return Self::Opaque(bytes),
        };
        Self::Known(data_type)
    }

    /// The data type by which a call combines these elements with `op`.
    pub(crate) fn to_combine(self, op: ReduceOp) -> Result<DataType, Fault> {
        use ReduceOp::{BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, LogicalXor, Max, Min};
        match self {
            Self::Known(data_type) => Ok(data_type),
            Self::Bool
                if matches!(
                    op,
                    Min | Max | BitAnd | BitOr | BitXor | LogicalAnd | LogicalOr | LogicalXor
                ) =>
            {
                Ok(DataType::U8)
            }
            Self::Bool => Err(Fault::Argument(format!(
                "{op} does not combine booleans; use land, lor, lxor, min or max"
            ))),
            Self::Opaque(bytes) => Err(Fault::Argument(format!(
                "elements of {bytes} bytes of an unknown format can be moved, not combined; name \
                 their type by dtype, as in dtype=\"bfloat16\""
            ))),
        }
    }

    /// The data type by which a call moves these elements, and how many of it each has.
    pub(crate) const fn to_move(self) -> (DataType, usize) {
        match self {
            Self::Known(data_type) => (data_type, 1),
            Self::Bool => (DataType::U8, 1),
            Self::Opaque(bytes) => (DataType::U8, bytes),
        }
    }
}

/// The sum of all elements after this rank's elements are multiplied by a factor, which may differ
/// between ranks. Pass it as `op`.
#[pyclass(frozen, module = "ringfold")]
pub(crate) struct PreMulSum {
    /// The factor.
    #[pyo3(get)]
    factor: f64,
}

#[pymethods]
impl PreMulSum {
    #[new]
    const fn new(factor: f64) -> Self {
        Self { factor }
    }

    fn __repr__(&self) -> String {
        format!("ringfold.PreMulSum({:?})", self.factor)
    }
}

/// The operation that a caller means: a name or a [`PreMulSum`]. Without one it is the sum.
pub(crate) fn operation(op: Option<&Bound<'_, PyAny>>) -> PyResult<Result<ReduceOp, Fault>> {
    let Some(op) = op else { return Ok(Ok(ReduceOp::Sum)) };
    if let Ok(op) = op.cast::<PreMulSum>() {
        return Ok(Ok(ReduceOp::pre_mul_sum(op.get().factor)));
    }
    let Ok(name) = op.cast::<PyString>() else {
        let given = op.get_type().name()?;
        let text = format!("op is a {given}; pass a name, as in \"sum\", or a ringfold.PreMulSum");
        return Ok(Err(Fault::Argument(text)));
    };
    let name = name.to_str()?;
    Ok(name.parse().map_err(|error| Fault::Argument(format!("op={name:?}: {error}"))))
}

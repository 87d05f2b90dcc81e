//! Names of data types and operations.

use std::ffi::CStr;
use std::fmt;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use ringfold::{DataType, ReduceOp};

use crate::fault::raise;
use crate::queue::Fault;

/// The type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Known(DataType),
    /// A byte that is 0 or 1.
    Bool,
    /// Plain data of another type, of this many bytes. It can be moved, not combined.
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

/// The names of types that can be moved alone, with their lengths in bytes.
const MOVED: [(&str, usize); 4] =
    [("int16", 2), ("uint16", 2), ("complex64", 8), ("complex128", 16)];

/// The name of a data type.
pub(crate) fn name_of(data_type: DataType) -> &'static str {
    NAMES.iter().find(|(_, known)| *known == data_type).map_or("unknown", |(name, _)| name)
}

/// The format of a buffer of this type. Types that the module `struct` lacks are unsigned integers.
pub(crate) const fn format_of(data_type: DataType) -> &'static CStr {
    match data_type {
        DataType::I8 => c"b",
        DataType::U8 | DataType::F8E4M3 | DataType::F8E5M2 => c"B",
        DataType::I32 => c"i",
        DataType::U32 => c"I",
        DataType::I64 => c"q",
        DataType::U64 => c"Q",
        DataType::F16 => c"e",
        DataType::Bf16 => c"H",
        DataType::F32 => c"f",
        DataType::F64 => c"d",
    }
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

    /// The element with this name, as in `float32`, or `<f4` of numpy.
    fn of_name(name: &str) -> Option<Self> {
        // numpy also calls its class of booleans `bool_`.
        let last = name.rsplit('.').next().unwrap_or_default().trim_end_matches('_');
        let known = NAMES.iter().find(|(known, _)| *known == last).map(|(_, it)| Self::Known(*it));
        let moved = || MOVED.iter().find(|(it, _)| *it == last).map(|(_, it)| Self::Opaque(*it));
        let found = if last == "bool" { Some(Self::Bool) } else { known.or_else(moved) };
        found.or_else(|| Self::of_typestr(name))
    }

    /// The element that a `typestr` of numpy names, as in `<f4`. `None` for any other text, and for
    /// objects.
    fn of_typestr(text: &str) -> Option<Self> {
        let [order @ (b'<' | b'>' | b'|' | b'='), kind, count @ ..] = text.as_bytes() else {
            return None;
        };
        // Times have their unit behind the length, as in `<M8[ns]`.
        let count = count.split(|it| *it == b'[').next()?;
        let count: usize = str::from_utf8(count).ok()?.parse().ok()?;
        let data_type = match (kind, count) {
            (b'b', 1) => return Some(Self::Bool),
            (b'U', _) => return Some(Self::Opaque(count.checked_mul(4)?)),
            (b'i' | b'u' | b'f', _) if *order == b'>' && count > 1 => {
                return Some(Self::Opaque(count));
            }
            (b'i', 1) => DataType::I8,
            (b'i', 4) => DataType::I32,
            (b'i', 8) => DataType::I64,
            (b'u', 1) => DataType::U8,
            (b'u', 4) => DataType::U32,
            (b'u', 8) => DataType::U64,
            (b'f', 2) => DataType::F16,
            (b'f', 4) => DataType::F32,
            (b'f', 8) => DataType::F64,
            (b'i' | b'u' | b'f' | b'c' | b'V' | b'S' | b'M' | b'm', _) => {
                return Some(Self::Opaque(count));
            }
            _ => return None,
        };
        Some(Self::Known(data_type))
    }

    /// The element that a text names by one of ringfold's own names, as in `f32` or `half`. C and
    /// numpy disagree about `int` and `float`.
    fn of_alias(name: &str) -> Option<Self> {
        let is_ambiguous = ["int", "float"].iter().any(|it| it.eq_ignore_ascii_case(name));
        if is_ambiguous { None } else { name.parse().ok().map(Self::Known) }
    }

    /// The element that a caller names: a text as in `"float32"` or `"fp32"`, a class or an object
    /// whose text ends in a name of numpy or torch, as `numpy.float32` and `torch.float32`, or any
    /// `numpy.dtype` of plain data.
    pub(crate) fn named(dtype: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = dtype.py();
        let text = match dtype.cast::<PyType>() {
            Ok(class) => class.name()?,
            Err(_) => dtype.str()?,
        };
        let name = text.to_str()?;
        let mut found = Self::of_name(name);
        if found.is_none() && dtype.is_instance_of::<PyString>() {
            found = Self::of_alias(name);
        } else if found.is_none() {
            // A dtype of numpy says so itself if it has objects, which its `typestr` hides.
            let has_objects = dtype.getattr_opt(intern!(py, "hasobject"))?;
            if has_objects.map_or(Ok(false), |it| it.is_truthy())? {
                let text = format!("dtype={name} has objects of Python, which do not move");
                return Err(raise(py, Fault::Argument(text)));
            }
            if let Some(typestr) = dtype.getattr_opt(intern!(py, "str"))?
                && let Ok(typestr) = typestr.cast::<PyString>()
            {
                found = Self::of_name(typestr.to_str()?);
            }
        }
        let unknown = || {
            let names = NAMES.iter().map(|(name, _)| *name);
            let names: Vec<_> = names.chain(MOVED.iter().map(|(name, _)| *name)).collect();
            let names = names.join(", ");
            let text = format!("dtype={name:?} is no data type; valid are bool, {names}");
            raise(py, Fault::Argument(text))
        };
        found.ok_or_else(unknown)
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
                "elements of {bytes} bytes of this type can be moved, not combined; convert them, \
                 or name their type by dtype, as in dtype=\"bfloat16\""
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
pub(crate) fn operation(op: Option<&Bound<'_, PyAny>>) -> PyResult<ReduceOp> {
    let Some(op) = op else { return Ok(ReduceOp::Sum) };
    let refuse = |text| raise(op.py(), Fault::Argument(text));
    if let Ok(op) = op.cast::<PreMulSum>() {
        return Ok(ReduceOp::pre_mul_sum(op.get().factor));
    }
    let Ok(name) = op.cast::<PyString>() else {
        let given = op.get_type().name()?;
        let text = format!("op is a {given}; pass a name, as in \"sum\", or a ringfold.PreMulSum");
        return Err(refuse(text));
    };
    let name = name.to_str()?;
    name.parse().map_err(|error| refuse(format!("op={name:?}: {error}")))
}

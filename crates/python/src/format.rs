//! Formats of elements: those of the module `struct` with the additions of PEP 3118, and the type
//! codes of DLPack.
//!
//! Only formats of plain data are taken. A pointer means nothing in another process, so a format
//! that may hold one is refused, as is one that nobody knows.

use std::fmt;

use ringfold::DataType;

use crate::element::Element;

/// The reason why elements cannot move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The format, and the name of its parts that are pointers.
    Pointers(String, &'static str),
    /// The format is not known to hold plain data.
    Unknown(String),
    /// The fields of the format do not fill an element of this many bytes.
    Hidden(String, usize),
    /// The fields of the format leave out this many bytes in a row.
    Gap(String, usize),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointers(format, what) => write!(
                f,
                "has elements of the format {format:?} with {what}, and a pointer means nothing \
                 in another process; pass plain data, as the bytes of pickle.dumps"
            ),
            Self::Unknown(format) => write!(
                f,
                "has elements of the format {format:?}, which ringfold does not know to be plain \
                 data; pass a view as bytes or numbers, or (address, bytes) with a dtype"
            ),
            Self::Hidden(format, bytes) => write!(
                f,
                "has elements of {bytes} bytes, and its format {format:?} does not describe them \
                 all, so they may hold pointers; pass a view as bytes, or (address, bytes) with a \
                 dtype"
            ),
            Self::Gap(format, bytes) => write!(
                f,
                "has a gap of {bytes} bytes in its elements of the format {format:?}, which may \
                 hold pointers; pass a copy without gaps"
            ),
        }
    }
}

/// The element of a buffer with this format, of this many bytes. No format means bytes.
pub(crate) fn of_buffer(format: Option<&[u8]>, bytes: usize) -> Result<Element, Refusal> {
    let format = format.unwrap_or(b"B");
    let code = match format {
        [code] | [b'@' | b'=' | b'<', code] => *code,
        _ => return of_fields(format, bytes),
    };
    let data_type = match (code, bytes) {
        (b'?', 1) => return Ok(Element::Bool),
        (b'b', 1) => DataType::I8,
        (b'B' | b'c', 1) => DataType::U8,
        (b'i' | b'l' | b'q' | b'n', 4) => DataType::I32,
        (b'I' | b'L' | b'Q' | b'N', 4) => DataType::U32,
        (b'i' | b'l' | b'q' | b'n', 8) => DataType::I64,
        (b'I' | b'L' | b'Q' | b'N', 8) => DataType::U64,
        (b'e', 2) => DataType::F16,
        (b'f', 4) => DataType::F32,
        (b'd', 8) => DataType::F64,
        _ => return of_fields(format, bytes),
    };
    Ok(Element::Known(data_type))
}

/// Plain data of any other format.
fn of_fields(format: &[u8], bytes: usize) -> Result<Element, Refusal> {
    let shown = || String::from_utf8_lossy(format).into_owned();
    let is_of_c = format.contains(&b'<');
    let mut fields = Fields { rest: format, order: b'@', is_of_c, depth: 0 };
    match fields.read() {
        // numpy leaves out padding at the end, which is shorter than a pointer.
        Ok((found, widest))
            if found <= bytes && bytes - found < widest.min(size_of::<*const ()>()) =>
        {
            Ok(Element::Opaque(bytes))
        }
        Ok(_) | Err(Unfit::Hidden) => Err(Refusal::Hidden(shown(), bytes)),
        Err(Unfit::Pointers(what)) => Err(Refusal::Pointers(shown(), what)),
        Err(Unfit::Unknown) => Err(Refusal::Unknown(shown())),
        Err(Unfit::Gap(bytes)) => Err(Refusal::Gap(shown(), bytes)),
    }
}

enum Unfit {
    Pointers(&'static str),
    Unknown,
    Gap(usize),
    Hidden,
}

/// Records within records.
const DEPTH_MAX: usize = 32;

/// The fields of a format that are not read yet.
struct Fields<'f> {
    rest: &'f [u8],
    /// The byte order, with which sizes come.
    order: u8,
    /// Whether ctypes made the format: it alone names the byte order of this machine. It leaves
    /// padding to the alignment of C, which numpy spells out.
    is_of_c: bool,
    depth: usize,
}

impl Fields<'_> {
    /// Reads fields up to the end, or to that of a record. Returns their length and alignment.
    fn read(&mut self) -> Result<(usize, usize), Unfit> {
        let (mut end, mut widest, mut gap) = (0_usize, 1, 0);
        loop {
            let (count, has_order) = self.count()?;
            let code = match self.next() {
                None if self.depth == 0 => break,
                Some(b'}') if self.depth > 0 => break,
                None => return Err(Unfit::Unknown),
                Some(code) => code,
            };
            let (bytes, align) = match code {
                b'T' => self.record()?,
                _ => self.value(code)?,
            };
            // The format of a union in ctypes is a byte, which alone has no byte order.
            if self.is_of_c && !has_order && !matches!(code, b'T' | b'x') {
                return Err(Unfit::Hidden);
            }
            widest = widest.max(align);
            if self.is_of_c {
                end = end.checked_next_multiple_of(align).ok_or(Unfit::Unknown)?;
            }
            let bytes = bytes.checked_mul(count).ok_or(Unfit::Unknown)?;
            end = end.checked_add(bytes).ok_or(Unfit::Unknown)?;
            // Padding with a name is a field of plain bytes, and so is an element of nothing else.
            let is_gap = !self.skip_name()? && code == b'x' && self.depth > 0;
            gap = if is_gap { gap + bytes } else { 0 };
            if gap >= size_of::<*const ()>() {
                return Err(Unfit::Gap(gap));
            }
        }
        if self.is_of_c {
            end = end.checked_next_multiple_of(widest).ok_or(Unfit::Unknown)?;
        }
        Ok((end, widest))
    }

    /// The length and the alignment of a record.
    fn record(&mut self) -> Result<(usize, usize), Unfit> {
        if self.next() != Some(b'{') || self.depth == DEPTH_MAX {
            return Err(Unfit::Unknown);
        }
        self.depth += 1;
        let record = self.read()?;
        self.depth -= 1;
        Ok(record)
    }

    /// The length and the alignment of a value of plain data.
    fn value(&mut self, code: u8) -> Result<(usize, usize), Unfit> {
        let is_native = matches!(self.order, b'@' | b'^');
        Ok(match code {
            b'x' | b'c' | b'b' | b'B' | b'?' | b's' | b'p' => (1, 1),
            b'h' | b'H' | b'e' => (2, 2),
            b'i' | b'I' | b'f' | b'w' | b'u' => (4, 4),
            b'l' | b'L' if !is_native => (4, 4),
            b'l' | b'L' | b'n' | b'N' | b'q' | b'Q' | b'd' => (8, 8),
            b'g' => (16, 16),
            b'F' => (8, 4),
            b'D' => (16, 8),
            b'Z' => match self.next() {
                Some(b'f') => (8, 4),
                Some(b'd') => (16, 8),
                Some(b'g') => (32, 16),
                _ => return Err(Unfit::Pointers("pointers to text")),
            },
            b'O' => return Err(Unfit::Pointers("objects of Python")),
            b'P' | b'&' | b'z' => return Err(Unfit::Pointers("pointers")),
            b'X' => return Err(Unfit::Pointers("pointers to functions")),
            _ => return Err(Unfit::Unknown),
        })
    }

    /// The number before a code, and the product of a shape: 1 without them. Takes byte orders, and
    /// returns whether there is one.
    fn count(&mut self) -> Result<(usize, bool), Unfit> {
        let (mut count, mut has_order) = (1_usize, false);
        while let Some(code) = self.rest.first().copied() {
            match code {
                b'@' | b'^' | b'=' | b'<' | b'>' | b'!' => {
                    self.order = code;
                    has_order = true;
                }
                b'(' | b',' | b')' | b' ' => {}
                b'0'..=b'9' => {
                    let number = self.number().and_then(|number| count.checked_mul(number));
                    count = number.ok_or(Unfit::Unknown)?;
                    continue;
                }
                _ => break,
            }
            self.rest = &self.rest[1..];
        }
        Ok((count, has_order))
    }

    fn number(&mut self) -> Option<usize> {
        let digits = self.rest.iter().take_while(|it| it.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        str::from_utf8(number).ok()?.parse().ok()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Skips the name of a field. Returns whether it has one.
    fn skip_name(&mut self) -> Result<bool, Unfit> {
        let Some(rest) = self.rest.strip_prefix(b":") else { return Ok(false) };
        let end = rest.iter().position(|it| *it == b':').ok_or(Unfit::Unknown)?;
        self.rest = &rest[end + 1..];
        Ok(true)
    }
}

/// The element of a tensor of DLPack with this code, of this many bits and lanes.
pub(crate) fn of_tensor(code: u8, bits: u8, lanes: u16) -> Result<Element, Refusal> {
    let shown = || format!("DLPack code {code}, {bits} bits, {lanes} lanes");
    match code {
        // Integers, floats, complex numbers, booleans, and floats of 16, 8, 6 and 4 bits.
        0..=2 | 4..=17 => {}
        3 => return Err(Refusal::Pointers(shown(), "opaque handles")),
        _ => return Err(Refusal::Unknown(shown())),
    }
    let data_type = match (code, bits, lanes) {
        (6, 8, 1) => return Ok(Element::Bool),
        (0, 8, 1) => DataType::I8,
        (0, 32, 1) => DataType::I32,
        (0, 64, 1) => DataType::I64,
        (1, 8, 1) => DataType::U8,
        (1, 32, 1) => DataType::U32,
        (1, 64, 1) => DataType::U64,
        (2, 16, 1) => DataType::F16,
        (2, 32, 1) => DataType::F32,
        (2, 64, 1) => DataType::F64,
        (4, 16, 1) => DataType::Bf16,
        (10, 8, 1) => DataType::F8E4M3,
        (12, 8, 1) => DataType::F8E5M2,
        _ => {
            let bits = usize::from(bits) * usize::from(lanes);
            if bits == 0 || !bits.is_multiple_of(8) {
                return Err(Refusal::Unknown(shown()));
            }
            return Ok(Element::Opaque(bits / 8));
        }
    };
    Ok(Element::Known(data_type))
}

//! Layouts of floats shorter than `f32`, and their exact conversion from and to `f32`.

/// A float with a sign, an exponent and a mantissa, in this order from the top bit.
///
/// Codes here are magnitudes: the bits of a value without its sign.
pub(crate) struct Format {
    /// Position of the sign bit.
    pub(crate) sign: u32,
    /// Bits of the mantissa.
    pub(crate) mantissa: u32,
    /// Exponent bias.
    pub(crate) bias: u32,
    /// The code of the largest finite value.
    pub(crate) largest: u32,
    /// The code of finite values that exceed `largest` after rounding.
    pub(crate) overflow: u32,
    /// The code of infinity. All greater codes are NaN.
    pub(crate) infinity: u32,
    /// The code of the canonical NaN.
    pub(crate) nan: u32,
}

/// IEEE 754 binary16.
pub(crate) const F16: Format = Format {
    sign: 15,
    mantissa: 10,
    bias: 15,
    largest: 0x7bff,
    overflow: 0x7c00,
    infinity: 0x7c00,
    nan: 0x7e00,
};

/// OCP E4M3. It has no infinity, so infinities saturate too.
pub(crate) const E4M3: Format = Format {
    sign: 7,
    mantissa: 3,
    bias: 7,
    largest: 0x7e,
    overflow: 0x7e,
    infinity: 0x7e,
    nan: 0x7f,
};

/// OCP E5M2. Finite values saturate, and infinities stay infinite. So the maximum of elements is
/// always one of them, and an earlier overflow remains visible.
pub(crate) const E5M2: Format = Format {
    sign: 7,
    mantissa: 2,
    bias: 15,
    largest: 0x7b,
    overflow: 0x7b,
    infinity: 0x7c,
    nan: 0x7f,
};

/// The bits of the canonical NaN of `f32`.
pub(crate) const NAN_BITS: u32 = 0x7fc0_0000;

/// The bits of the infinity of `f32`; greater magnitudes are NaN.
pub(crate) const INFINITY_BITS: u32 = 0x7f80_0000;

impl Format {
    /// Mantissa bits that an `f32` has and this format lacks.
    pub(crate) const fn shift(&self) -> u32 {
        23 - self.mantissa
    }

    /// The difference of the biases, at the position of an `f32` exponent.
    pub(crate) const fn rebias(&self) -> u32 {
        (127 - self.bias) << 23
    }

    /// The smallest normal value, as `f32` bits.
    pub(crate) const fn normal_min(&self) -> u32 {
        (128 - self.bias) << 23
    }

    /// The bits of an `f32` with an ulp equal to this format's smallest denormal. The sum of it and
    /// a smaller value rounds that value to a multiple of the denormal, to nearest even.
    pub(crate) const fn denormal_magic(&self) -> u32 {
        (128 - self.bias + self.shift()) << 23
    }

    /// The smallest denormal, as `f32` bits.
    pub(crate) const fn denormal_min(&self) -> u32 {
        (128 - self.bias - self.mantissa) << 23
    }

    /// Rounds `value` to this format, to nearest even.
    pub(crate) const fn encode(&self, value: f32) -> u32 {
        let bits = value.to_bits();
        let magnitude = bits & !(1 << 31);
        let sign = (bits >> 31) << self.sign;
        if magnitude > INFINITY_BITS {
            return self.nan;
        }
        if magnitude == INFINITY_BITS {
            return self.infinity | sign;
        }
        if magnitude < self.normal_min() {
            let magic = self.denormal_magic();
            let rounded = f32::from_bits(magnitude) + f32::from_bits(magic);
            return (rounded.to_bits() - magic) | sign;
        }
        let odd = (magnitude >> self.shift()) & 1;
        let rounded = magnitude + (1 << (self.shift() - 1)) - 1 + odd;
        let code = (rounded - self.rebias()) >> self.shift();
        (if code > self.largest { self.overflow } else { code }) | sign
    }

    /// The value of `code`, sign included.
    pub(crate) const fn decode(&self, code: u32) -> f32 {
        let sign = (code >> self.sign) << 31;
        let magnitude = code & ((1 << self.sign) - 1);
        let bits = if magnitude > self.infinity {
            return f32::from_bits(NAN_BITS);
        } else if magnitude > self.largest {
            INFINITY_BITS
        } else if magnitude >> self.mantissa == 0 {
            (magnitude as f32 * f32::from_bits(self.denormal_min())).to_bits()
        } else {
            (magnitude << self.shift()) + self.rebias()
        };
        f32::from_bits(bits | sign)
    }
}

/// The upper half of `value`, rounded to nearest even.
pub(crate) const fn bf16_encode(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = if bits & !(1 << 31) > INFINITY_BITS {
        NAN_BITS
    } else {
        bits + 0x7fff + ((bits >> 16) & 1)
    };
    (rounded >> 16) as u16
}

/// The `f32` with the upper half `code`.
pub(crate) const fn bf16_decode(code: u16) -> f32 {
    f32::from_bits((code as u32) << 16)
}

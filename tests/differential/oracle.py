"""Types, inputs and right results of calls, in numpy alone. It shares no code with ringfold."""

import numpy

# Sums are exact, or nearly so, in this type.
WIDE = numpy.longdouble
WIDE_UNIT = float(numpy.finfo(WIDE).eps) / 2


def _float8(exponent_bits, bias, has_infinity):
    """Returns the values of the 256 codes of an 8-bit float."""
    codes = numpy.arange(256)
    mantissa_bits = 7 - exponent_bits
    mantissa = codes & ((1 << mantissa_bits) - 1)
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    values = numpy.where(
        exponent == 0,
        fraction * 2.0 ** (1 - bias),
        (1 + fraction) * 2.0 ** (exponent - bias),
    )
    top = exponent == (1 << exponent_bits) - 1
    if has_infinity:
        values[top] = numpy.where(mantissa[top] == 0, numpy.inf, numpy.nan)
    else:
        values[top & (mantissa == (1 << mantissa_bits) - 1)] = numpy.nan
    return numpy.where(codes & 0x80, -values, values)


F8E4M3 = _float8(4, 7, False)
F8E5M2 = _float8(5, 15, True)


class Type:
    """A data type. `storage` is the type of its elements in numpy."""

    def __init__(self, name, storage, unit=0.0, least=0.0, decode=None):
        self.name = name
        self.storage = numpy.dtype(storage)
        self.is_float = unit > 0
        self.is_bool = name == "bool"
        # The largest relative error of a rounded value, and the smallest distance of two values.
        self.unit, self.least = unit, least
        self.is_short = self.is_float and self.storage.itemsize < 4
        # The unit of the type in which values are added.
        self.sum_unit = 2.0**-24 if self.is_short else unit
        # numpy lends the elements of some types as integers, or not at all.
        self.is_foreign = decode is not None
        self._decode = decode

    def values(self, elements):
        """Returns the values of elements, exactly."""
        return elements if self._decode is None else self._decode(elements)


TYPES = [
    Type("int8", "int8"),
    Type("uint8", "uint8"),
    Type("int32", "int32"),
    Type("uint32", "uint32"),
    Type("int64", "int64"),
    Type("uint64", "uint64"),
    Type("float16", "float16", 2.0**-11, 2.0**-24),
    Type("bfloat16", "uint16", 2.0**-8, 2.0**-133,
        lambda bits: (bits.astype("uint32") << 16).view("float32")),
    Type("float32", "float32", 2.0**-24, 2.0**-149),
    Type("float64", "float64", 2.0**-53, 2.0**-1074),
    Type("float8_e4m3fn", "uint8", 2.0**-4, 2.0**-9, lambda code: F8E4M3[code]),
    Type("float8_e5m2", "uint8", 2.0**-3, 2.0**-16, lambda code: F8E5M2[code]),
    Type("bool", "bool"),
]  # fmt: skip

FOR_ALL = ["sum", "prod", "min", "max", "avg", "premulsum"]
FOR_BITS = ["band", "bor", "bxor", "land", "lor", "lxor"]


def operations(kind):
    """Returns the operations that combine elements of a type."""
    if kind.is_bool:
        return ["min", "max", *FOR_BITS]
    return FOR_ALL if kind.is_float else FOR_ALL + FOR_BITS


def factors(kind, size, random):
    """Returns the factor of each rank for a `premulsum`."""
    if kind.is_float:
        return [random.choice([0.5, 2.0, -1.0, 1.5, -0.75, 3.0]) for _ in range(size)]
    least = -5 if kind.storage.kind == "i" else 0
    return [float(random.randint(least, 7)) for _ in range(size)]


def bits(kind, count, noise):
    """Returns elements with arbitrary bits."""
    if kind.is_bool:
        return noise.integers(0, 2, count).astype("bool")
    return noise.integers(0, 256, count * kind.storage.itemsize, "uint8").view(kind.storage)


# No group has more ranks.
RANKS_MAX = 5


def inputs(kind, op, count, noise, are_whole=False):
    """Returns elements for an operation. No sum or product of floats overflows, and sums of whole
    numbers are exact."""
    if are_whole:
        return _whole(kind, count, noise)
    if op in ("land", "lor", "lxor"):
        return numpy.where(noise.integers(0, 2, count) == 1, bits(kind, count, noise), 0).astype(
            kind.storage
        )
    if not kind.is_float or op is None:
        return bits(kind, count, noise)
    if op in ("min", "max"):
        found = bits(kind, count, noise)
        # Few are no numbers, or are infinite or zero.
        rare = noise.integers(0, 16, count) == 0
        return numpy.where(rare, found, _floats(kind, -4, 3, count, noise))
    if op == "prod":
        return _floats(kind, -1, 1, count, noise)
    found = _floats(kind, *((-4, 3) if kind.is_short else (-20, 20)), count, noise)
    return numpy.where(noise.integers(0, 8, count) == 0, 0, found).astype(kind.storage)


def _floats(kind, low, high, count, noise):
    """Returns floats of both signs, whose magnitudes are from 2^low to below 2^high."""
    if kind.storage == "uint8":
        magnitudes = numpy.abs(kind.values(numpy.arange(256)))
        fit = (magnitudes >= 2.0**low) & (magnitudes < 2.0**high)
        return noise.choice(numpy.flatnonzero(fit), count).astype("uint8")
    wide = 2.0 ** noise.uniform(low, high, count) * noise.choice([-1.0, 1.0], count)
    if kind.storage == "uint16":
        return (wide.astype("float32").view("uint32") >> 16).astype("uint16")
    # No rounding reaches 2^high.
    return (wide * (1 - 2 * kind.unit)).astype(kind.storage)


def _whole(kind, count, noise):
    """Returns whole numbers as floats that have every sum of such numbers."""
    most = int(1 / kind.unit) // RANKS_MAX
    found = noise.integers(-most, most + 1, count)
    if kind.storage == "uint8":
        code = {value: at for at, value in reversed(list(enumerate(kind.values(numpy.arange(256)))))}
        return numpy.array([code[value] for value in range(-most, most + 1)], "uint8")[found + most]
    if kind.storage == "uint16":
        return (found.astype("float32").view("uint32") >> 16).astype("uint16")
    return found.astype(kind.storage)


class Same:
    """A result whose bits are known."""

    is_rounded = False

    def __init__(self, elements):
        self.elements = elements

    def wrong(self, got):
        """Returns the indices of wrong elements."""
        width = self.elements.dtype.itemsize
        one, other = (numpy.ascontiguousarray(it).view("uint8") for it in (got, self.elements))
        return numpy.flatnonzero((one != other).reshape(-1, width).any(axis=1))

    def __getitem__(self, at):
        return self.elements[at]


class Extreme:
    """A smallest or largest float: the value, with the sign of a zero, or any NaN."""

    is_rounded = False

    def __init__(self, kind, values):
        self.kind, self.values = kind, values

    def wrong(self, got):
        got = self.kind.values(got)
        same = (got == self.values) & (numpy.signbit(got) == numpy.signbit(self.values))
        return numpy.flatnonzero(~(same | (numpy.isnan(got) & numpy.isnan(self.values))))

    def __getitem__(self, at):
        return self.values[at]


class Near:
    """A rounded result: the exact value, and the largest error."""

    is_rounded = True

    def __init__(self, kind, exact, bound):
        self.kind, self.exact, self.bound = kind, exact, bound
        self.share = 0.0

    def wrong(self, got):
        error = numpy.abs(self.kind.values(got).astype(WIDE) - self.exact)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            shares = numpy.where(self.bound > 0, error / self.bound, 0)
        self.share = float(shares.max(initial=0.0))
        # The comparison is false for NaN.
        return numpy.flatnonzero(~(error <= self.bound))

    def __getitem__(self, at):
        return f"{float(self.exact[at])!r} +- {float(self.bound[at]):.3g}"


def result(kind, op, parts, scales, roundings, are_whole=False):
    """Returns the reduction of the parts of some ranks, of which partial results are rounded to
    the type at most `roundings` times. Nothing is rounded in a sum of whole numbers."""
    scales = scales and scales[: len(parts)]
    if are_whole:
        exact = numpy.add.reduce([kind.values(part).astype(WIDE) for part in parts])
        return Near(kind, exact, numpy.zeros(len(exact)))
    with numpy.errstate(over="ignore"):
        return (_of_floats if kind.is_float else _of_integers)(kind, op, parts, scales, roundings)


def _of_floats(kind, op, parts, scales, roundings):
    values = [kind.values(part) for part in parts]
    if op in ("min", "max"):
        return Extreme(kind, _extreme(op, numpy.stack(values)))
    many = len(parts) > 1
    # Every operation rounds once in the type of the sums.
    steps, rounded = len(parts) - 1, roundings if many and kind.is_short else 0
    values = [value.astype(WIDE) for value in values]
    least = 0.0
    if op == "prod":
        exact = numpy.multiply.reduce(values)
        magnitude = numpy.abs(exact)
    else:
        if op == "premulsum":
            values = [value * WIDE(scale) for value, scale in zip(values, scales)]
            steps, rounded, least = steps + 1, rounded + kind.is_short, kind.least
        exact = numpy.add.reduce(values)
        magnitude = numpy.add.reduce([numpy.abs(value) for value in values])
        if op == "avg" and many:
            exact, magnitude = exact / len(parts), magnitude / len(parts)
            steps, least = steps + 1, kind.least
    factor = (1 + WIDE(kind.unit)) ** rounded * (1 + WIDE(kind.sum_unit)) ** steps - 1
    own = 2 * len(parts) * WIDE(WIDE_UNIT) if many else 0
    return Near(kind, exact, (factor + own) * magnitude + least * (rounded + 1) / 2)


def _extreme(op, values):
    """Returns the smallest or largest of each column. -0 is smaller than +0."""
    choose = numpy.min if op == "min" else numpy.max
    found = choose(values, axis=0)
    signs = numpy.signbit(values) | (values != 0)
    negative_zero = numpy.signbit(values) & (values == 0)
    positive_zero = ~signs
    zero = numpy.where(negative_zero.any(axis=0), -0.0, 0.0)
    if op == "max":
        zero = numpy.where(positive_zero.any(axis=0), 0.0, -0.0)
    return numpy.where(found == 0, zero.astype(found.dtype), found)


def _of_integers(kind, op, parts, scales, _roundings):
    table, storage = numpy.stack(parts), kind.storage
    many = len(parts) > 1
    if op == "premulsum":
        table = table * numpy.array(scales).astype(storage)[:, None]
    if op in ("sum", "premulsum", "avg"):
        found = table.sum(axis=0, dtype=storage)
        if op == "avg" and many:
            size = storage.type(len(parts))
            found = (found - numpy.fmod(found, size)) // size
    elif op == "prod":
        found = table.prod(axis=0, dtype=storage)
    elif op in ("min", "max"):
        found = (numpy.min if op == "min" else numpy.max)(table, axis=0)
    elif op in ("band", "bor", "bxor"):
        combine = {"band": "bitwise_and", "bor": "bitwise_or", "bxor": "bitwise_xor"}[op]
        found = getattr(numpy, combine).reduce(table, axis=0)
    elif many:
        combine = {"land": "logical_and", "lor": "logical_or", "lxor": "logical_xor"}[op]
        found = getattr(numpy, combine).reduce(table != 0, axis=0)
    else:
        found = table[0]
    return Same(numpy.asarray(found).astype(storage))

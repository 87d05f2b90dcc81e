"""Random calls: their arguments, their memory and what the memory must hold afterwards."""

import random

import numpy
import oracle
import ringfold
from oracle import Same

COLLECTIVES = [
    "all_reduce", "reduce", "scan", "exscan", "reduce_scatter", "all_gather", "broadcast", "gather",
    "scatter", "all_to_all",
]  # fmt: skip
UNEVEN = ["all_to_all_v", "gather_v", "scatter_v", "all_gather_v", "reduce_scatter_v"]
REDUCTIONS = ["all_reduce", "reduce", "scan", "exscan", "reduce_scatter", "reduce_scatter_v"]
# Lengths in bytes at which ways of messages begin or end, and the longest length.
BOUNDARIES = [64, 1024, 16 << 10, 63 << 10, 126 << 10, 256 << 10]
LONGEST = 1 << 20
PRIMES = [2, 3, 5, 7, 13, 31, 127, 521, 2203, 4099]


class Group:
    """A communicator: the ranks of the job that it has, in its order."""

    def __init__(self, comm, members, me, hosts, is_exact):
        self.comm, self.members = comm, members
        self.size = len(members)
        self.rank = members.index(me) if me in members else None
        # Between hosts each message may round a partial sum.
        one_host = len({hosts[member] for member in members}) == 1
        self.roundings = 1 if one_host or is_exact else self.size
        # The type of two windows, their length, and the windows on ranks of the group.
        self.windows = None


class Region:
    """Memory of one argument in the middle of an array. The bytes around it must not change, nor
    may those within it that no `write` names."""

    def __init__(self, noise, elements):
        before, after = (int(it) for it in noise.integers(0, 80, 2))
        self.whole = noise.integers(0, 256, before + elements.nbytes + after, "uint8")
        self.elements = self.whole[before : before + elements.nbytes].view(elements.dtype)
        self.elements[:] = elements
        self.before = self.whole.copy()
        self.own = self.before[before : before + elements.nbytes].view(elements.dtype)
        self.writes = []

    def write(self, begin, length, result):
        """States what the call leaves at `length` elements from `begin` on."""
        self.writes.append((begin, length, result))

    def faults(self):
        """Returns a text for each wrong part, and the results that were rounded."""
        found, rounded = [], []
        for begin, length, result in self.writes:
            got = self.elements[begin : begin + length]
            wrong = result.wrong(got)
            if len(wrong):
                at = wrong[0]
                found.append(
                    f"{len(wrong)} of {length} elements, first {begin + at}: "
                    f"{got[at]!r} for {result[at]}"
                )
            if result.is_rounded:
                rounded.append((result.share, got.tobytes()))
            self.own[begin : begin + length] = got
        changed = numpy.flatnonzero(self.before != self.whole)
        if len(changed):
            found.append(f"{len(changed)} bytes changed that no result has, first {changed[0]}")
        return found, rounded


class Call:
    """One call: `start` makes it on this rank, and `regions` are its memory."""

    def __init__(self, name, text, start, regions=(), kind=None):
        self.name, self.text, self.start = name, text, start
        self.regions = regions
        self.kind = kind


def count_of(random, width, longest=LONGEST):
    """Returns a number of elements: none, one, few, a prime, about a boundary, or many."""
    most = longest // width
    kind = random.random()
    if kind < 0.12:
        return random.choice([0, 1])
    if kind < 0.45:
        return min(most, random.randrange(2, 260))
    if kind < 0.6:
        return min(most, random.choice(PRIMES))
    if kind < 0.9:
        boundary = random.choice(BOUNDARIES[: 3 if random.random() < 0.6 else None]) // width
        return min(most, max(0, boundary + random.randint(-3, 3)))
    if kind < 0.985:
        return random.randrange(min(most, 20_000) + 1)
    return random.randrange(most + 1)


def noise_of(*words):
    """Returns numpy's generator for a number of a call and a rank."""
    return numpy.random.default_rng([word % 2**63 for word in words])


class Maker:
    """Makes the calls of a job. All ranks make the same ones."""

    def __init__(self, seed):
        self.seed = seed

    def random(self, number):
        return random.Random(f"{self.seed}/{number}")

    def collective(self, number, group, choice=None, is_grouped=False):
        """Makes a collective with equal parts. `choice` fixes its name, type, operation, root and
        the most bytes of a block. A broadcast of a group of calls is in place."""
        random = self.random(number)
        size, me = group.size, group.rank
        name, kind, op, root, longest = choice or self.choose(random, size)
        is_reduction = name in REDUCTIONS
        op = op if is_reduction else None
        inputs_are_many = name in ("reduce_scatter", "scatter", "all_to_all")
        outputs_are_many = name in ("all_gather", "gather", "all_to_all")
        blocks = size if inputs_are_many or outputs_are_many else 1
        count = count_of(random, kind.storage.itemsize * blocks, longest)
        is_in_place = random.random() < 0.5 or (is_grouped and name == "broadcast")
        scales = oracle.factors(kind, size, random) if op == "premulsum" else None
        are_whole = kind.is_float and op == "sum" and random.random() < 0.4
        text = f"{name} of {count} {kind.name}{f' by {op}' if op else ''}, root {root}"
        text += ", in place" if is_in_place else ""
        if me is None:
            return Call(name, text, None, (), kind)

        length = count * (size if inputs_are_many else 1)
        inputs = [
            oracle.inputs(kind, op, length, noise_of(self.seed, number, rank), are_whole)
            for rank in range(size)
        ]
        own = inputs[me]
        block = lambda array, at: array[at * count : (at + 1) * count]  # noqa: E731
        reduced = lambda parts: oracle.result(  # noqa: E731
            kind, op, parts, scales, group.roundings, are_whole
        )
        # The first block that this rank gets, and its contents.
        output = {
            "all_reduce": lambda: (0, reduced(inputs)),
            "reduce": lambda: (0, reduced(inputs)) if me == root else None,
            "scan": lambda: (0, reduced(inputs[: me + 1])),
            "exscan": lambda: (0, reduced(inputs[:me])) if me else None,
            "reduce_scatter": lambda: (me, reduced([block(it, me) for it in inputs])),
            "all_gather": lambda: (0, Same(numpy.concatenate(inputs))),
            "broadcast": lambda: (0, Same(inputs[root])),
            "gather": lambda: (0, Same(numpy.concatenate(inputs))) if me == root else None,
            "scatter": lambda: (0, Same(block(inputs[root], me))),
            "all_to_all": lambda: (0, Same(numpy.concatenate([block(it, me) for it in inputs]))),
        }[name]()
        noise = noise_of(self.seed, number, 1000 + me)
        many = outputs_are_many and (name != "gather" or me == root)
        result_length = count * (size if many else 1)
        if is_in_place:
            start = own
            if many and not inputs_are_many:
                # The rank's own block is the input.
                start = oracle.bits(kind, result_length, noise)
                block(start, me)[:] = own
            elif name == "scatter" and me != root:
                start = oracle.bits(kind, count, noise)
            region = Region(noise, start)
            regions = [region]
            if output and not (name == "scatter" and me == root):
                region.write(output[0] * count, result_length, output[1])
            into, out = region.elements, None
        else:
            source = None
            if name not in ("broadcast", "scatter") or me == root:
                source = Region(noise, own)
            target = Region(noise, oracle.bits(kind, result_length, noise))
            if output:
                target.write(0, result_length, output[1])
            regions = [it for it in (source, target) if it]
            into, out = source and source.elements, target.elements
            if name in ("reduce", "gather") and me != root and random_bit(noise):
                out = None
        op = ringfold.PreMulSum(scales[me]) if scales else op

        def start(target, **options):
            if is_reduction:
                options["op"] = op
            if name in ("reduce", "broadcast", "gather", "scatter"):
                options["root"] = root
            options["dtype"] = kind.name
            places = (into,) if out is None else (into, out)
            return getattr(target, name)(*places, **options)

        return Call(name, text, start, regions, kind)

    def choose(self, random, size, longest=LONGEST):
        """Returns the name, type, operation, root and longest block of a collective."""
        kind = random.choice(oracle.TYPES)
        op = random.choice(oracle.operations(kind))
        return random.choice(COLLECTIVES), kind, op, random.randrange(size), longest

    def uneven(self, number, group):
        """Makes a collective with parts of any lengths, which each rank places as it likes."""
        random = self.random(number)
        size, me = group.size, group.rank
        name = random.choice(UNEVEN)
        kind, root = random.choice(oracle.TYPES), random.randrange(size)
        op = random.choice(oracle.operations(kind)) if name in REDUCTIONS else None
        is_in_place = random.random() < 0.5
        scales = oracle.factors(kind, size, random) if op == "premulsum" else None
        width = kind.storage.itemsize * size
        are_whole = kind.is_float and op == "sum" and random.random() < 0.4
        # Elements from each rank to each rank.
        table = [[count_of(random, width, 1 << 19) for _ in range(size)] for _ in range(size)]
        if name == "all_to_all_v":
            if is_in_place:
                table = [[table[min(a, b)][max(a, b)] for b in range(size)] for a in range(size)]
        else:
            table = [table[0]] * size
        text = f"{name} of {table if name == 'all_to_all_v' else table[0]} {kind.name}"
        text += f"{f' by {op}' if op else ''}, root {root}{', in place' if is_in_place else ''}"
        if me is None:
            return Call(name, text, None, (), kind)
        noise = noise_of(self.seed, number, 1000 + me)
        options = {"dtype": kind.name}
        if name in ("gather_v", "scatter_v"):
            options["root"] = root
        if op:
            options["op"] = ringfold.PreMulSum(scales[me]) if scales else op

        def part(source, to):
            """Returns what rank `source` gives to rank `to`."""
            generator = noise_of(self.seed, number, source, to)
            count = table[source][to]
            if name in ("all_gather_v", "gather_v"):
                generator, count = noise_of(self.seed, number, source), table[0][source]
            return oracle.inputs(kind, op, count, generator, are_whole)

        def region_of(parts, room, filled):
            """Returns memory with room for the parts, of which `filled` are there."""
            region = Region(noise, oracle.bits(kind, room, noise))
            for (begin, length), elements in zip(parts, filled):
                if elements is not None:
                    region.elements[begin : begin + length] = elements
            region.before[:] = region.whole
            return region

        def reduced():
            parts = [part(source, me) for source in range(size)]
            return oracle.result(kind, op, parts, scales, group.roundings, are_whole)

        everyone = range(size)
        counts = table[0]
        has_all = name not in ("gather_v", "scatter_v") or me == root
        outgoing = [part(me, to) for to in everyone]
        incoming = [Same(part(source, me)) for source in everyone]
        if name == "scatter_v":
            incoming = [Same(part(root, me))]
        of_many = [table[source][me] for source in everyone] if name == "all_to_all_v" else counts
        places, room, layout = lay_out(noise, of_many)
        if name == "all_to_all_v":
            options["recv"] = layout
        elif has_all:
            options["parts"] = layout
        if name in ("all_to_all_v", "all_gather_v") or (name == "gather_v" and has_all):
            # The output has the parts.
            is_gather = name != "all_to_all_v"
            if is_in_place:
                mine = [outgoing[0] if it == me else None for it in everyone]
                whole = region_of(places, room, mine if is_gather else outgoing)
                regions, arguments = [whole], (whole.elements,)
            else:
                if is_gather:
                    source = Region(noise, outgoing[0])
                else:
                    sent, sent_room, send = lay_out(noise, table[me])
                    source = region_of(sent, sent_room, outgoing)
                    options["send"] = send
                whole = region_of(places, room, [])
                regions, arguments = [source, whole], (source.elements, whole.elements)
            for (begin, length), result in zip(places, incoming):
                whole.write(begin, length, result)
        elif name == "gather_v":
            source = Region(noise, outgoing[0])
            regions, arguments = [source], (source.elements,)
        elif name == "scatter_v" and not has_all:
            target = Region(noise, oracle.bits(kind, counts[me], noise))
            target.write(0, counts[me], incoming[0])
            regions = [target]
            arguments = (target.elements,) if is_in_place else (None, target.elements)
        else:
            # The input has the parts, and the output is this rank's.
            result = reduced() if name == "reduce_scatter_v" else incoming[0]
            whole = region_of(places, room, outgoing)
            begin, length = places[me]
            if is_in_place:
                whole.write(begin, length, result)
                regions, arguments = [whole], (whole.elements,)
            else:
                target = Region(noise, oracle.bits(kind, length, noise))
                target.write(0, length, result)
                regions, arguments = [whole, target], (whole.elements, target.elements)
        start = lambda target, **more: getattr(target, name)(*arguments, **options, **more)  # noqa: E731
        return Call(name, text, start, regions, kind)

    def message(self, number, group, pair=None):
        """Returns the calls of one message between two ranks: those of this rank. In a group of
        calls a rank may send to itself."""
        random = self.random(number)
        size, me = group.size, group.rank
        kind = random.choice(oracle.TYPES)
        count, tag = count_of(random, kind.storage.itemsize), random.randrange(1 << 31)
        sender, receiver = pair or random.sample(range(size), 2)
        text = f"message of {count} {kind.name} from {sender} to {receiver}"
        elements = oracle.bits(kind, count, noise_of(self.seed, number))
        noise = noise_of(self.seed, number, 1000 + (me or 0))
        is_probed = pair is None and random.random() < 0.2
        calls = []
        if me == sender:
            source = Region(noise, elements)
            send = lambda target, **more: target.send(source.elements, receiver, tag, **more)  # noqa: E731
            calls.append(Call("send", text, send, [source], kind))
        if me == receiver:
            target_region = Region(noise, oracle.bits(kind, count, noise))
            target_region.write(0, count, Same(elements))

            def receive(target, **more):
                if is_probed and "async_op" not in more:
                    while (found := target.probe(sender)) is None:
                        pass
                    assert (found.tag, found.nbytes) == (tag, elements.nbytes), (found, text)
                return target.recv(target_region.elements, sender, tag, **more)

            calls.append(Call("recv", text, receive, [target_region], kind))
        return calls or [Call("recv", text, None, (), kind)]

    def exchange(self, number, group):
        """Makes a `send_recv` of all ranks around a ring, with any distance."""
        random = self.random(number)
        size, me = group.size, group.rank
        kind, distance = random.choice(oracle.TYPES), random.randrange(size)
        tag = random.randrange(1 << 31)
        counts = [count_of(random, kind.storage.itemsize) for _ in range(size)]
        text = f"send_recv of {counts} {kind.name} over distance {distance}"
        if me is None:
            return Call("send_recv", text, None, (), kind)
        to, source = (me + distance) % size, (me - distance) % size
        elements = lambda rank: oracle.bits(kind, counts[rank], noise_of(self.seed, number, rank))  # noqa: E731
        noise = noise_of(self.seed, number, 1000 + me)
        given = Region(noise, elements(me))
        into = Region(noise, oracle.bits(kind, counts[source], noise))
        into.write(0, counts[source], Same(elements(source)))
        start = lambda target, **more: target.send_recv(  # noqa: E731
            given.elements, to, into.elements, source, tag, **more
        )
        return Call("send_recv", text, start, [given, into], kind)

    def from_any(self, number, group):
        """Makes messages from all ranks to one, which receives them from any rank."""
        random = self.random(number)
        size, me = group.size, group.rank
        kind, root = random.choice(oracle.TYPES), random.randrange(size)
        count = count_of(random, kind.storage.itemsize, 1 << 18)
        text = f"recv_any of {count} {kind.name} by {root}"
        if me is None:
            return Call("recv_any", text, None, (), kind)
        noise = noise_of(self.seed, number, 1000 + me)
        elements = lambda rank: oracle.bits(kind, count, noise_of(self.seed, number, rank))  # noqa: E731
        if me != root:
            source = Region(noise, elements(me))
            start = lambda target: target.send(source.elements, root, number % (1 << 31))  # noqa: E731
            return Call("send", text, start, [source], kind)
        regions = [Region(noise, oracle.bits(kind, count, noise)) for _ in range(size - 1)]

        def start(target):
            senders = []
            for region in regions:
                sender = target.recv(region.elements, None, number % (1 << 31)).source
                region.write(0, count, Same(elements(sender)))
                senders.append(sender)
            assert sorted([*senders, root]) == list(range(size)), (senders, text)

        return Call("recv_any", text, start, regions, kind)

    def by_function(self, number, group, op):
        """Makes an all-reduce by a function of the program: the sum of a pair's first number, and
        its largest second one."""
        random = self.random(number)
        size, me = group.size, group.rank
        count = count_of(random, 16, 1 << 17)
        is_in_place = random.random() < 0.5
        text = f"all_reduce_by of {count} pairs{', in place' if is_in_place else ''}"
        if me is None:
            return Call("all_reduce_by", text, None)
        inputs = [noise_of(self.seed, number, rank).uniform(-1, 1, 2 * count) for rank in range(size)]
        wanted = inputs[0].copy()
        for other in inputs[1:]:
            combine(wanted, other)
        noise = noise_of(self.seed, number, 1000 + me)
        source = Region(noise, inputs[me])
        target = source if is_in_place else Region(noise, numpy.zeros(2 * count))
        target.write(0, 2 * count, Same(wanted))
        places = (source.elements,) if is_in_place else (source.elements, target.elements)
        start = lambda comm, **more: comm.all_reduce_by(*places, op=op, **more)  # noqa: E731
        regions = [source] if is_in_place else [source, target]
        return Call("all_reduce_by", text, start, regions)

    def in_window(self, number, group):
        """Makes an all-reduce in windows of the group."""
        random = self.random(number)
        size, me = group.size, group.rank
        kind, room, windows = group.windows
        op = random.choice(oracle.operations(kind))
        begin = random.randrange(room)
        count = min(room - begin, count_of(random, kind.storage.itemsize))
        is_in_place = random.random() < 0.5
        scales = oracle.factors(kind, size, random) if op == "premulsum" else None
        text = f"all_reduce_window of {count} {kind.name} from {begin} by {op}"
        text += ", in place" if is_in_place else ""
        if me is None:
            return Call("all_reduce_window", text, None, (), kind)
        inputs = [
            oracle.inputs(kind, op, count, noise_of(self.seed, number, rank))
            for rank in range(size)
        ]
        regions = [InWindow(window, kind) for window in windows]
        given, into = regions[0], regions[0 if is_in_place else 1]
        given.fill(begin, inputs[me])
        into.write(begin, count, oracle.result(kind, op, inputs, scales, group.roundings))
        op = ringfold.PreMulSum(scales[me]) if scales else op
        output = None if is_in_place else windows[1]
        start = lambda comm, **more: comm.all_reduce_window(  # noqa: E731
            windows[0], output, op, start=begin, count=count, **more
        )
        return Call("all_reduce_window", text, start, regions, kind)


class InWindow(Region):
    """A window as the memory of a call."""

    def __init__(self, window, kind):
        self.whole = numpy.frombuffer(window, "uint8")
        self.elements = self.whole.view(kind.storage)
        self.before = self.whole.copy()
        self.own = self.before.view(kind.storage)
        self.writes = []

    def fill(self, begin, elements):
        self.elements[begin : begin + len(elements)] = elements
        self.before[:] = self.whole


def combine(into, other):
    """Combines pairs: adds the first numbers, and keeps the larger second ones."""
    into[::2] += other[::2]
    numpy.maximum(into[1::2], other[1::2], out=into[1::2])


def random_bit(noise):
    return int(noise.integers(0, 2)) == 1


def lay_out(noise, counts):
    """Places parts one after the other, or in any order with gaps. Returns the places, the
    elements of the whole, and the argument that states the parts."""
    if random_bit(noise):
        begins = [sum(counts[:at]) for at in range(len(counts))]
        return list(zip(begins, counts)), sum(counts), list(counts)
    begins, end = [0] * len(counts), int(noise.integers(0, 5))
    for at in noise.permutation(len(counts)):
        begins[at] = end
        end += counts[at] + int(noise.integers(0, 5))
    return list(zip(begins, counts)), end, (list(counts), begins)

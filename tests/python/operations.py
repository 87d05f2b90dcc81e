"""Every operation on plain memory, against sums in Python."""

import array
import ctypes

import ringfold

comm = ringfold.init()
rank, size = comm.rank, comm.size

# Formats of the module array, with the names of types by which addresses are passed.
TYPES = {
    "b": "int8",
    "B": "uint8",
    "i": "int32",
    "I": "uint32",
    "q": "int64",
    "Q": "uint64",
    "f": "float32",
    "d": "float64",
}
COUNTS = [0, 1, 2, 7, 1000, 65537]


def mine(code, count, of=None):
    """The input of a rank: small numbers, whose sums fit every type."""
    of = rank if of is None else of
    return array.array(code, [(of + at) % 7 for at in range(count)])


def expect(got, wanted, what):
    assert list(got) == list(wanted), (what, rank, list(got)[:9], list(wanted)[:9])


def finish(handle, is_async):
    assert (handle is not None) == is_async, handle
    if is_async:
        handle.wait()
        assert handle.is_completed() and handle.exception() is None


def collectives(code, count, is_async):
    inputs = [mine(code, count, of) for of in range(size)]
    total = [sum(column) for column in zip(*inputs)]
    zeros = array.array(code, [0] * count)

    buffer = mine(code, count)
    finish(comm.all_reduce(buffer, async_op=is_async), is_async)
    expect(buffer, total, "all_reduce")
    output = zeros[:]
    finish(comm.all_reduce(mine(code, count), output, "max", async_op=is_async), is_async)
    expect(output, [max(column) for column in zip(*inputs)], "max")

    everything = zeros * size
    finish(comm.all_gather(mine(code, count), everything, async_op=is_async), is_async)
    expect(everything, sum(map(list, inputs), []), "all_gather")
    again = zeros * size
    again[rank * count : (rank + 1) * count] = mine(code, count)
    finish(comm.all_gather(again, async_op=is_async), is_async)
    expect(again, everything, "all_gather in place")

    blocks = [mine(code, count * size, of) for of in range(size)]
    sums = [sum(column) for column in zip(*blocks)]
    output = zeros[:]
    finish(comm.reduce_scatter(blocks[rank], output, async_op=is_async), is_async)
    expect(output, sums[rank * count : (rank + 1) * count], "reduce_scatter")

    for root in {0, size - 1}:
        buffer = mine(code, count)
        finish(comm.broadcast(buffer, root=root, async_op=is_async), is_async)
        expect(buffer, inputs[root], "broadcast")
        output = zeros[:]
        source = mine(code, count) if rank == root else None
        finish(comm.broadcast(source, output, root, async_op=is_async), is_async)
        expect(output, inputs[root], "broadcast out of place")
        output = zeros[:]
        data = mine(code, count)
        finish(comm.reduce(data, output, root=root, async_op=is_async), is_async)
        expect(output, total if rank == root else zeros, "reduce")
        expect(data, inputs[rank], "the input of reduce")
        output = zeros * size
        finish(comm.gather(mine(code, count), output, root, async_op=is_async), is_async)
        expect(output, everything if rank == root else zeros * size, "gather")
        output = zeros[:]
        finish(comm.scatter(blocks[rank], output, root, async_op=is_async), is_async)
        expect(output, blocks[root][rank * count : (rank + 1) * count], "scatter")

        if rank == root:
            # In place the root's own block is its input of gather, and its output of scatter.
            output = zeros * size
            output[root * count : (root + 1) * count] = mine(code, count)
            finish(comm.gather(output, root=root, async_op=is_async), is_async)
            expect(output, everything, "gather in place")
            buffer = blocks[root][:]
            finish(comm.scatter(buffer, root=root, async_op=is_async), is_async)
            expect(buffer, blocks[root], "scatter in place")
        else:
            finish(comm.gather(mine(code, count).tobytes(), root=root, dtype=TYPES[code],
                async_op=is_async), is_async)
            output = zeros[:]
            finish(comm.scatter(output, root=root, async_op=is_async), is_async)
            expect(output, blocks[root][rank * count : (rank + 1) * count], "scatter in place")

    for name, wanted in [("scan", inputs[: rank + 1]), ("exscan", inputs[:rank])]:
        wanted = [sum(column) for column in zip(*wanted)] if wanted else None
        buffer = mine(code, count)
        finish(getattr(comm, name)(buffer, async_op=is_async), is_async)
        expect(buffer, inputs[rank] if wanted is None else wanted, f"{name} in place")
        output, data = zeros[:], mine(code, count)
        finish(getattr(comm, name)(data, output, async_op=is_async), is_async)
        expect(output, zeros if wanted is None else wanted, name)
        expect(data, inputs[rank], f"the input of {name}")

    output = zeros * size
    finish(comm.all_to_all(blocks[rank], output, async_op=is_async), is_async)
    wanted = [block[rank * count : (rank + 1) * count] for block in blocks]
    expect(output, sum(map(list, wanted), []), "all_to_all")
    buffer = blocks[rank][:]
    finish(comm.all_to_all(buffer, async_op=is_async), is_async)
    expect(buffer, output, "all_to_all in place")
    finish(comm.barrier(async_op=is_async), is_async)


def uneven():
    counts = list(range(size))
    everything = array.array("i", [of for of in range(size) for _ in range(of)])
    output = array.array("i", [9] * len(everything))
    comm.all_gather_v(array.array("i", [rank] * rank), output, parts=counts)
    expect(output, everything, "all_gather_v")
    output = array.array("i", [9] * len(everything))
    comm.gather_v(array.array("i", [rank] * rank), output, counts, root=size - 1)
    expect(output, everything if rank == size - 1 else [9] * len(output), "gather_v")
    output = array.array("i", [9] * rank)
    comm.scatter_v(everything if rank == 0 else None, output, counts if rank == 0 else None)
    expect(output, [rank] * rank, "scatter_v")
    output = array.array("i", [9] * rank)
    comm.reduce_scatter_v(everything, output, parts=counts)
    expect(output, [rank * size] * rank, "reduce_scatter_v")
    # Rank r sends r elements to each rank, which places them from the end.
    where = [sum(counts[of + 1 :]) for of in range(size)]
    data = array.array("h", [rank] * (rank * size))
    output = array.array("h", [9] * sum(counts))
    comm.all_to_all_v(data, output, send=[rank] * size, recv=(counts, where))
    expect(output, [of for of in reversed(range(size)) for _ in range(of)], "all_to_all_v")


def messages():
    after, before = (rank + 1) % size, (rank + size - 1) % size
    into = array.array("d", [0.0] * 100_000)
    comm.send_recv(array.array("d", [rank] * 100_000), after, into, before, 3)
    expect(into[:2], [before] * 2, "send_recv")
    if size > 1 and rank < 2:
        word = array.array("q", [rank])
        if rank == 0:
            comm.send(word, 1, 7)
        else:
            comm.recv(word, 0, 7)
        expect(word, [0], "recv")
    if rank == 0:
        senders = []
        for _ in range(1, size):
            word = array.array("q", [0])
            message = comm.recv(word, None, 9)
            assert (message.tag, message.nbytes) == (9, 8), message
            senders.append(message.source)
            expect(word, [senders[-1]], "a message of any rank")
        expect(sorted(senders), range(1, size), "the senders of any messages")
        for peer in range(1, size):
            while (found := comm.probe(peer)) is None:
                pass
            expect([found.source, found.tag, found.nbytes], [peer, peer, 8 * peer], "probe")
            comm.recv(array.array("q", [0] * peer), peer, peer)
            assert comm.probe(peer) is None
            assert not comm.has_left(peer)
    else:
        comm.send(array.array("q", [rank]), 0, 9)
        comm.send(array.array("q", [rank] * rank), 0, rank)
    comm.barrier()
    from_all = [array.array("i", [9]) for _ in range(size)]
    own, total = array.array("i", [rank]), array.array("f", [1.0])
    with comm.group() as group:
        for peer in range(size):
            group.send(own, peer)
            group.recv(from_all[peer], peer)
        group.all_reduce(total)
        assert len(group) == 2 * size + 1
    expect([it[0] for it in from_all], range(size), "the messages of a group")
    expect(total, [size], "the sum of a group")
    # Collectives alone, each with memory of its own.
    root, ints = size - 1, lambda *values: array.array("i", values)
    own = [ints(rank) for _ in range(4)]
    into = [ints(9), ints(9), ints(9), ints(*[9] * size), ints(*[9] * size), ints(9)]
    rows = ints(*[rank * size + to for to in range(size)]), ints(*range(size))
    with comm.group() as group:
        group.reduce(own[0], into[0], root=root)
        group.scan(own[1], into[1])
        group.exscan(own[2], into[2], "max")
        group.all_to_all(rows[0], into[3])
        group.gather(own[3], into[4], root)
        group.scatter(rows[1] if rank == root else None, into[5], root)
    expect(into[0], [sum(range(size)) if rank == root else 9], "reduce in a group")
    expect(into[1], [sum(range(rank + 1))], "scan in a group")
    expect(into[2], [rank - 1 if rank else 9], "exscan in a group")
    expect(into[3], [of * size + rank for of in range(size)], "all_to_all in a group")
    expect(into[4], range(size) if rank == root else [9] * size, "gather in a group")
    expect(into[5], [rank], "scatter in a group")


def matched_messages():
    """Receives take messages by source and tag, in the background too."""
    if rank == 0:
        for peer in range(1, size):
            # The tags come in reverse, behind a receive that takes any other.
            last, any_tag = array.array("i", [0] * 3), array.array("i", [0] * 50)
            wanted = comm.recv(last, peer, 7, async_op=True)
            handles = [comm.recv(array.array("i", [0]), peer, tag, async_op=True) for tag in (6, 5)]
            other = comm.recv(any_tag, peer, None, async_op=True)
            for handle in [wanted, *handles, other]:
                handle.wait(60)
            found = [handle.message for handle in [wanted, *handles, other]]
            expect([it.source for it in found], [peer] * 4, "the senders")
            expect([it.tag for it in found], [7, 6, 5, 4], "the tags")
            expect([it.nbytes for it in found], [12, 4, 4, 160], "the lengths")
            expect(any_tag[:41], [4] * 40 + [0], "the front of a longer buffer")
            try:
                comm.recv(array.array("i", [0]), peer, 3)
                raise AssertionError("the buffer is too short")
            except ringfold.TruncatedError as error:
                assert "8 bytes" in str(error), error
            assert comm.recv(array.array("i", [0, 0]), peer, 3).nbytes == 8
    else:
        handles = [
            comm.send(array.array("i", [tag] * count), 0, tag, async_op=True)
            for tag, count in [(4, 40), (5, 1), (6, 1), (7, 3), (3, 2)]
        ]
        for handle in handles:
            handle.wait(60)
            assert handle.message is None
    # A ring in the background, beside a collective that is not done.
    into, sums = array.array("d", [0.0] * 50_000), array.array("d", [1.0] * 50_000)
    handles = [comm.all_reduce(sums, async_op=True)]
    after, before = (rank + 1) % size, (rank + size - 1) % size
    data = array.array("d", [rank] * 50_000)
    handles.append(comm.send_recv(data, after, into, before, 9, async_op=True))
    handles[1].wait(60)
    handles[0].wait(60)
    expect(set(into), [before], "a ring in the background")
    expect(set(sums), [size], "a collective beside messages")


def addresses():
    memory = (ctypes.c_float * 3)(*[rank] * 3)
    pair = (ctypes.addressof(memory), ctypes.sizeof(memory))
    comm.all_reduce(pair, dtype="float32", keep=memory)
    expect(memory, [sum(range(size))] * 3, "an address")
    handle = comm.all_reduce(pair, op="avg", dtype="float32", async_op=True, keep=memory)
    finish(handle, True)
    expect(memory, [sum(range(size))] * 3, "the mean")
    scaled = array.array("f", [2.0])
    comm.all_reduce(scaled, op=ringfold.PreMulSum(0.5))
    expect(scaled, [size], "a sum with a factor")
    half = array.array("H", [0x3F80] * 5)
    comm.all_reduce(half, dtype="bfloat16")
    expect(half, [ctypes.c_uint32.from_buffer(ctypes.c_float(size)).value >> 16] * 5, "bfloat16")


def own_operations():
    def larger(into, other):
        # A pair of words: a value and the rank that has it.
        into, other = into.cast("i"), other.cast("i")
        for at in range(0, len(into), 2):
            if other[at] > into[at]:
                into[at : at + 2] = other[at : at + 2]

    def multiply(into, other):
        for at, factor in enumerate(other):
            into[at] *= factor

    def greatest(into, other):
        for at in range(0, len(into), 3):
            if bytes(other[at : at + 3]) > bytes(into[at : at + 3]):
                into[at : at + 3] = other[at : at + 3]

    triple = bytearray([rank, size - rank, 7, 1, rank, size - rank])
    comm.all_reduce_by(triple, op=comm.register_op("greatest", greatest, 3))
    expect(triple, [size - 1, 1, 7, 1, size - 1, 1], "the greatest of three bytes")
    pairs = comm.register_op("larger", larger, 8)
    product = comm.register_op("product", multiply, "float64")
    for count in [0, 1, 2, 7, 100]:
        for is_async in [False, True]:
            buffer = array.array("i", [it for at in range(count) for it in ((rank + at) % size, rank)])
            finish(comm.all_reduce_by(buffer, op=pairs, async_op=is_async), is_async)
            first = [it for at in range(count) for it in (size - 1, (size - 1 - at) % size)]
            expect(buffer, first, "the largest and its rank")
            data, output = array.array("d", [rank + 1.0] * count), array.array("d", [0.0] * count)
            finish(comm.all_reduce_by(data, output, op=product, async_op=is_async), is_async)
            factorial = 1.0
            for factor in range(size):
                factorial *= factor + 1
            expect(output, [factorial] * count, "a product")
            expect(data, [rank + 1.0] * count, "the input of a product")


def groups():
    half = comm.split(rank % 2, -rank)
    total = array.array("i", [rank])
    half.all_reduce(total)
    members = [of for of in range(size) if of % 2 == rank % 2]
    expect(total, [sum(members)], half.name)
    assert members[::-1].index(rank) == half.rank and half.size == len(members)
    half.close()
    assert comm.split(None) is None
    last = comm.subset([size - 1])
    assert (last is None) == (rank != size - 1)
    other = comm.duplicate()
    # Calls of two groups overlap.
    handles = [it.all_reduce(array.array("f", [1.0] * 5000), async_op=True) for it in (comm, other)]
    for handle in reversed(handles):
        handle.wait(60)


def windows():
    window = comm.alloc(1000, "float32")
    view = memoryview(window)
    assert (view.format, view.shape, view.nbytes) == ("f", (1000,), window.nbytes)
    view[:] = memoryview(array.array("f", [rank + 1.0] * 1000))
    comm.all_reduce_window(window, start=10, count=5)
    total = sum(range(1, size + 1))
    expect(view[9:16], [rank + 1] + [total] * 5 + [rank + 1], "a window")
    comm.broadcast(window, root=size - 1)
    expect(view[:2], [size] * 2, "a window as ordinary memory")


def order():
    # A blocking call follows those in the background, and callbacks come in order.
    steps, done = array.array("q", [1]), []
    handles = []
    for step in range(50):
        handle = comm.all_reduce(steps, async_op=True)
        handle.add_done_callback(lambda _, step=step: done.append(step))
        handles.append(handle)
        if size ** (step + 1) > 2**40:
            break
    comm.all_reduce(steps)
    expect(steps, [size ** (len(handles) + 1)], "calls in a row")
    for handle in handles:
        handle.wait()
    comm.barrier(async_op=True).wait()
    expect(done, range(len(handles)), "callbacks")


def profiles():
    assert comm.end_profile().kinds == [], "none has begun"
    comm.begin_profile()
    buffer = array.array("f", [1.0] * 5000)
    for _ in range(10):
        comm.all_reduce(buffer)
    comm.broadcast(buffer)
    profile = comm.end_profile()
    reduced, sent = profile.kinds
    assert (reduced.operation, reduced.calls, reduced.nbytes) == ("allreduce", 10, 200_000)
    assert (sent.operation, sent.calls) == ("broadcast", 1), sent
    parts = reduced.waiting + reduced.moving + reduced.combining
    assert reduced.time > 0 and abs(parts - reduced.time) < 1e-6, reduced
    assert reduced.algorithm in str(profile) and "allreduce" in repr(reduced)


for code in TYPES:
    for count in COUNTS:
        if count < 5000 or code in "fB":
            collectives(code, count, False)
            collectives(code, count, True)
uneven()
messages()
matched_messages()
addresses()
own_operations()
groups()
windows()
order()
profiles()
comm.close()
print(f"rank {rank} of {size} is content", flush=True)

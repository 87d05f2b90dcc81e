"""Invalid arguments, closed and forked communicators, and interrupts, in a group of one or two."""

import array
import ctypes
import math
import os
import signal
import sys
import threading
import time
import weakref

import ringfold


def refused(call, words, kind=ringfold.ArgumentError):
    try:
        call()
    except kind as error:
        assert words in str(error), (words, str(error))
        return error
    raise AssertionError(f"no {kind.__name__} with {words!r}")


def arguments(comm):
    four = array.array("f", [1.0] * 4)
    refused(lambda: comm.all_reduce(b"read-only"), "the input is read-only")
    refused(lambda: comm.all_reduce(memoryview(four)[::2]), "not contiguous")
    refused(lambda: comm.all_reduce([1.0, 2.0]), "a list, which has no memory")
    refused(lambda: comm.all_reduce(four, op="median"), 'op="median"')
    refused(lambda: comm.all_reduce(four, op=3), "op is a int")
    for name in ["float31", "float", "Int"]:
        refused(lambda: comm.all_reduce(four, dtype=name), "is no data type")
    for name in ["fp16", "half", "bf16", "F16"]:
        comm.all_reduce(array.array("H", [0] * 4), dtype=name)
    for name in ["f32", "FP32", "float_32"]:
        comm.all_reduce(four, dtype=name)
    refused(lambda: comm.all_reduce(four, op="band"), "band")
    refused(lambda: comm.all_reduce(four, array.array("f", [0.0] * 3)), "allreduce on rank")
    refused(lambda: comm.all_reduce(four, array.array("d", [0.0] * 4)), "float32 and float64")
    refused(lambda: comm.all_reduce(four, memoryview(four)[1:]), "overlap")
    refused(lambda: comm.all_reduce(four, memoryview(four)[:2]), "overlap")
    refused(lambda: comm.all_reduce(array.array("h", [1])), "name their type by dtype")
    refused(lambda: comm.all_reduce(array.array("b", [1] * 3), dtype="int32"), "not elements of 4")
    refused(lambda: comm.all_reduce((0, 8), dtype="float32"), "at the address 0")
    refused(lambda: comm.all_reduce((1 << 62, 1 << 63), dtype="uint8"), "address space")
    refused(lambda: comm.all_reduce((1, 2, 3), dtype="uint8"), "not (address, bytes)")
    refused(lambda: comm.all_reduce((4096, 8)), "name it by dtype")
    refused(lambda: comm.broadcast(four, root=comm.size), "broadcast on rank")
    refused(lambda: comm.all_to_all_v(four, recv="abc"), "are no parts")
    refused(lambda: comm.all_gather_v(four, parts=[9] * comm.size), "leaves the buffer")
    refused(lambda: comm.send(four, comm.size), "not one of the")
    refused(lambda: comm.subset([0, 0]), "in the list twice")
    group = comm.group()
    group.all_reduce(four)
    group.all_reduce(memoryview(four)[2:])
    refused(group.run, "use the same memory")
    window = comm.alloc(4)
    refused(lambda: comm.all_reduce_window(window, start=3, count=2), "exceed the window")
    for seconds in [-1, math.nan, -math.inf, -1e-9]:
        refused(lambda: comm.set_timeout(seconds), "is no time; pass seconds from 0 on")
        refused(lambda: comm.barrier(timeout=seconds), "is no time; pass seconds from 0 on")
        refused(lambda: ringfold.init(timeout=seconds), "is no time; pass seconds from 0 on")
        refused(lambda: ringfold.init(join_timeout=seconds), "join_timeout=")
        handle = comm.barrier(async_op=True)
        refused(lambda: handle.wait(seconds), "is no time")
        handle.wait()
    assert list(four) == [1.0] * 4
    comm.all_reduce(four)
    assert list(four) == [float(comm.size)] * 4, "the communicator remains usable"


def pointers(comm):
    """Data that holds pointers, or may hold some, never moves."""
    Pair = type("Pair", (ctypes.Structure,), {"_fields_": [("a", ctypes.c_int8), ("b", ctypes.c_double)]})

    def holder(kind, base=ctypes.Structure, **more):
        fields = [("a", ctypes.c_int8), ("b", kind)]
        return type("Holder", (base,), {**more, "_fields_": fields})()

    function = ctypes.CFUNCTYPE(None)
    for data, words in [
        ((ctypes.py_object * 2)(1, 2), "objects of Python"),
        ((ctypes.c_void_p * 2)(), "with pointers"),
        ((ctypes.POINTER(ctypes.c_int) * 2)(), "with pointers"),
        ((ctypes.c_char_p * 2)(), "with pointers"),
        ((ctypes.c_wchar_p * 2)(), "with pointers to text"),
        ((function * 2)(), "with pointers to functions"),
        (holder(ctypes.py_object), "objects of Python"),
        (holder(ctypes.c_void_p), "with pointers"),
        (holder(ctypes.POINTER(Pair)), "with pointers"),
        (holder(type(holder(ctypes.c_char_p))), "with pointers"),
        (holder(ctypes.py_object * 2), "objects of Python"),
        # The formats of unions and packed structures say nothing of their fields.
        (holder(ctypes.c_void_p, ctypes.Union), "does not describe them all"),
        (holder(ctypes.c_void_p, _pack_=1), "does not describe them all"),
        (holder(type(holder(ctypes.c_void_p, ctypes.Union))), "does not describe them all"),
    ]:
        before = bytes(data)
        refused(lambda: comm.broadcast(data), words)
        refused(lambda: comm.broadcast(data, dtype="uint8"), words)
        refused(lambda: comm.send(data, 0), words)
        refused(lambda: comm.group().recv(data, 0), words)
        assert bytes(data) == before
    pairs = (Pair * 3)((1, 2.0), (3, 4.0))
    comm.broadcast(pairs)
    assert (pairs[1].a, pairs[1].b) == (3, 4.0)
    refused(lambda: comm.all_reduce(pairs), "can be moved, not combined")


def registrations(comm):
    """Registered memory is ordinary memory, which lives as long as its registration."""
    buffer = array.array("f", [1.0] * 100_000)
    whole, again = comm.register(buffer), comm.register(buffer)
    assert whole.nbytes == 400_000 and not is_free(buffer)
    assert not whole.is_registered, "there is no RDMA here"
    with comm.register(memoryview(buffer)[10:20]) as part:
        assert part.nbytes == 40 and "40 bytes" in repr(part)
        comm.all_reduce(buffer)
    assert buffer[0] == comm.size
    # A registration may end while a call uses its memory.
    handle = comm.all_reduce(buffer, async_op=True)
    whole.close()
    whole.close()
    handle.wait()
    assert buffer[99_999] == comm.size ** 2 and not is_free(buffer)
    again = weakref.ref(again)
    soon(lambda: again() is None and is_free(buffer), "the last registration has no owner")
    comm.register(array.array("f")).close()
    comm.register((0, 0)).close()
    address, length = buffer.buffer_info()
    comm.register((address, length * 4)).close()
    refused(lambda: comm.register(b"read-only"), "the memory is read-only")
    refused(lambda: comm.register([1.0]), "a list, which has no memory")
    refused(lambda: comm.register((0, 8)), "the memory is at the address 0")
    # Memory of a GPU has an address, and the CPU cannot read it.
    refused(lambda: comm.register((4096, 8)), "register memory of the CPU, not of a GPU")
    one, other = group_of_two()
    kept = one.register(buffer)
    child = os.fork()
    if child == 0:
        try:
            refused(lambda: one.register(buffer), "forked", ringfold.ForkedError)
            kept.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    other.abort("on purpose")
    for comm in [one, other]:
        refused(comm.barrier, "on purpose", ringfold.FailedError)
    refused(lambda: one.register(buffer), "on purpose", ringfold.FailedError)
    close([one, other])
    refused(lambda: one.register(buffer), "is closed", ringfold.ClosedError)
    kept.close()
    assert is_free(buffer)


def together(items, call):
    """Calls a function for each item, in threads, and returns the results."""
    made = [None] * len(items)

    def enter(at):
        made[at] = call(items[at])

    threads = [threading.Thread(target=enter, args=(at,)) for at in range(len(items))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def pair(join):
    """Makes a group of two threads of this process."""
    return together(range(2), join)


def group_of_two(**settings):
    text = ringfold.unique_id()
    return pair(lambda rank: ringfold.init_with_id(text, rank, 2, **settings))


def close(members):
    together(members, lambda comm: comm.close())


def soon(condition, what):
    """Waits for a condition without a call of ringfold."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def is_free(buffer):
    """Whether nobody uses the memory of an array."""
    try:
        buffer.append(buffer[0])
    except BufferError:
        return False
    return True


def exports_end(comm):
    """After a call the memory is its owner's again."""
    buffer = array.array("f", [1.0])
    handle = comm.all_reduce(buffer, async_op=True)
    handle.wait()
    assert is_free(buffer)
    comm.all_reduce(buffer)
    assert is_free(buffer)
    # Nobody needs to wait for it, or to drop the handle.
    comm.all_reduce(buffer, async_op=True)
    soon(lambda: is_free(buffer), "the memory of a call without a handle")
    handle = comm.all_reduce(buffer, async_op=True)
    soon(lambda: is_free(buffer), "the memory of a call whose handle is kept")

    class Object:
        pass

    kept = Object()
    is_alive = weakref.ref(kept)
    comm.all_reduce(buffer, async_op=True, keep=kept)
    del kept
    soon(lambda: is_alive() is None, "the object of a call")
    kept = Object()
    is_alive = weakref.ref(kept)
    comm.barrier(async_op=True).add_done_callback(lambda handle, kept=kept: None)
    del kept
    soon(lambda: is_alive() is None, "the function of a call that is done")
    # A call that waits keeps its own memory alone.
    one, other = group_of_two()
    first, second = array.array("f", [1.0]), array.array("f", [1.0])
    mine, theirs = (it.all_reduce(first if it is one else array.array("f", [1.0]), async_op=True)
        for it in (one, other))
    waiting = one.all_reduce(second, async_op=True)
    soon(lambda: is_free(first), "the memory of a call before one that waits")
    assert not is_free(second) and not waiting.is_completed()
    other.all_reduce(array.array("f", [1.0]))
    soon(lambda: is_free(second), "the memory of a call that has waited")
    close([one, other])


def descriptors():
    """A closed communicator keeps no descriptor, also while its object lives."""
    def opened():
        return len(os.listdir("/proc/self/fd"))

    close(group_of_two())
    kept, before = [], opened()
    for _ in range(3):
        members = group_of_two()
        members += together(members, lambda comm: comm.duplicate())
        assert opened() > before
        together(members[2:], lambda comm: comm.barrier())
        close(members)
        members.append(ringfold.init())
        members[-1].close()
        kept += members
        soon(lambda: opened() <= before, "more descriptors than before")
    assert len(kept) == 15


def timeouts():
    """A timeout is that of the calls made after it, or of one call, and any length is one."""
    one, other = group_of_two(timeout=math.inf, join_timeout=1e300)
    handles = [one.barrier(async_op=True) for _ in range(3)]
    one.set_timeout(0.2)
    other.barrier()
    time.sleep(1)
    assert one.failure() is None, one.failure()
    other.barrier()
    other.barrier()
    for handle in handles:
        handle.wait(math.inf)
    one.set_timeout(1e300)
    handle = one.barrier(async_op=True)
    one.set_timeout(0.2)
    other.barrier()
    handle.wait(1e300)
    handle = one.barrier(async_op=True, timeout=300)
    time.sleep(1)
    other.barrier()
    handle.wait()
    error = refused(one.barrier, "rank 1", ringfold.FailedError)
    assert error.sequence == 6, error
    one, other = group_of_two(timeout=300)
    error = refused(lambda: one.barrier(timeout=0.2), "rank 1", ringfold.FailedError)
    assert error.kind == "absent", error




def ends(comm):
    child = os.fork()
    if child == 0:
        try:
            refused(comm.barrier, "forked", ringfold.ForkedError)
            refused(comm.close, "forked", ringfold.ForkedError)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    comm.close()
    comm.close()
    refused(comm.barrier, "is closed", ringfold.ClosedError)
    refused(lambda: comm.barrier(async_op=True), "is closed", ringfold.ClosedError)


def operations(comm):
    """Operations of the user."""
    refused(lambda: comm.register_op("", max, "int32"), "a name of 0 bytes")
    refused(lambda: comm.register_op("x", max, 0), "an element of 0 bytes is not 1 to 16384")
    refused(lambda: comm.register_op("x", max, 16385), "an element of 16385 bytes")
    refused(lambda: comm.register_op("x", max, "int31"), "is no data type")
    op = comm.register_op("x", max, "float32")
    four = array.array("f", [1.0] * 4)
    refused(lambda: comm.all_reduce_by(array.array("i", [1]), op=op), "the buffers have int32")
    refused(lambda: comm.all_reduce_by(four, four[:2], op=op), "different lengths in bytes")
    refused(lambda: comm.all_reduce_by((1 << 20, 6), op=op), "not elements of 4 bytes")
    refused(lambda: comm.all_reduce_by(four, memoryview(four)[1:3], op=op), "different lengths")
    refused(lambda: comm.all_reduce_by(b"1234", op=op), "read-only")
    comm.all_reduce_by(four, op=op)
    assert comm.size > 1 or list(four) == [1.0] * 4


def failing_operations():
    """The exception of an operation fails the call on all ranks, with its text."""
    reported = []
    sys.unraisablehook = lambda report: reported.append(report.exc_value)

    def both(what):
        """Makes the same call by both ranks of a new group, and returns what each raised."""
        members = group_of_two(timeout=30)
        raised = [None, None]

        def call(rank):
            try:
                what(members[rank])
            except BaseException as error:
                raised[rank] = error

        thread = threading.Thread(target=call, args=(1,))
        thread.start()
        call(0)
        thread.join()
        return raised

    def broken(into, other):
        raise LookupError("no such thing")

    def call(comm):
        comm.all_reduce_by(array.array("f", [1.0] * 4), op=comm.register_op("o", broken, "float32"))

    for error in both(call):
        assert isinstance(error, ringfold.FailedError), error
        assert "LookupError: no such thing" in str(error), error
    assert reported and all(isinstance(error, LookupError) for error in reported)

    def resized(into, other):
        memory = into.obj
        into.release()
        memory.clear()

    def nested(comm):
        def operation(into, other):
            comm.barrier()

        op = comm.register_op("o", operation, 4)
        comm.all_reduce_by(array.array("f", [1.0] * 4), op=op, async_op=True).wait(60)

    def grown(comm):
        op = comm.register_op("o", resized, 4)
        comm.all_reduce_by(array.array("f", [1.0] * 4), op=op)

    for error in both(nested):
        assert "within a call of the communicator" in str(error), error
    for error in both(grown):
        assert isinstance(error, ringfold.FailedError), error

    def stopped(comm):
        def operation(into, other):
            raise KeyboardInterrupt

        comm.all_reduce_by(array.array("f", [1.0] * 4), op=comm.register_op("o", operation, 4))

    kinds = {type(error) for error in both(stopped)}
    assert KeyboardInterrupt in kinds and kinds <= {KeyboardInterrupt, ringfold.FailedError}, kinds
    different = both(lambda comm: comm.register_op("ab"[comm.rank], max, 4))
    assert all("registers" in str(error) for error in different), different
    sys.unraisablehook = sys.__unraisablehook__


def callbacks():
    """A callback runs within a call: it may start calls, and not wait for them."""
    one, other = group_of_two()
    found, ended, last = [], threading.Event(), array.array("f", [1.0])

    def callback(_):
        for wait in [one.barrier, one.duplicate, one.close]:
            try:
                wait()
            except ringfold.Error as error:
                found.append(str(error))
        handle = one.all_reduce(last, async_op=True)
        try:
            handle.wait(60)
        except ringfold.Error as error:
            found.append(str(error))
        found.append(handle)
        ended.set()

    one.barrier(async_op=True).add_done_callback(callback)
    other.barrier()
    assert ended.wait(60)
    *texts, handle = found
    assert len(texts) == 4 and all("within a call" in text for text in texts), texts
    other.all_reduce(array.array("f", [2.0]))
    handle.wait(60)
    assert last[0] == 3.0


class Store:
    """A store that two threads share."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key):
        return self.values.get(key)

    def wait(self, key, timeout):
        with self.changed:
            self.changed.wait_for(lambda: key in self.values, timeout)
            return self.values[key]


def interrupted(call, after=0.3):
    """Sends this process the signal of Ctrl-C during a call that waits."""
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        call()
    except KeyboardInterrupt:
        return
    finally:
        timer.join()
    raise AssertionError("no KeyboardInterrupt")


def interrupts():
    store = Store()
    one, other = pair(lambda rank: ringfold.init_with_store(store, rank, 2))
    handle = one.barrier(async_op=True)
    interrupted(lambda: handle.wait(60))
    assert not handle.is_completed(), "an interrupted wait leaves the call alone"
    refused(lambda: handle.wait(0.01), "is not done", TimeoutError)
    other.barrier()
    handle.wait(60)
    interrupted(one.barrier)
    began = time.monotonic()
    error = refused(other.barrier, "KeyboardInterrupt", ringfold.FailedError)
    assert time.monotonic() - began < 30
    assert (error.rank, error.kind, error.peers, error.group) == (1, "aborted", (0,), None)
    assert error.sequence == 2 and error.operation.startswith("barrier"), error.operation
    assert "KeyboardInterrupt" in other.failure()
    # A blocking call behind one in the background.
    one, other = group_of_two()
    handle = one.barrier(async_op=True)
    interrupted(one.barrier)
    refused(lambda: handle.wait(60), "KeyboardInterrupt", ringfold.FailedError)
    assert handle.exception().kind == "aborted"
    # Joining.
    text = ringfold.unique_id()
    interrupted(lambda: ringfold.init_with_id(text, 0, 2, join_timeout=5))
    refused(lambda: ringfold.init_with_id("x", 0, 2), "not a unique id")


def aborts():
    one, other = group_of_two()
    threading.Timer(0.2, one.abort, ("enough",)).start()
    error = refused(one.barrier, "enough", ringfold.FailedError)
    assert error.peers == (0,)
    refused(other.barrier, "enough", ringfold.FailedError)
    one, other = group_of_two()
    one.set_timeout(0.3)
    refused(one.barrier, "rank 1", ringfold.FailedError)

    class Broken(Store):
        def get(self, key):
            raise OSError("the store is down")

    error = refused(
        lambda: ringfold.init_with_store(Broken(), 0, 2), "the store is down", ringfold.InitError
    )
    assert isinstance(error.__cause__, OSError)


# A job in the background of a shell begins with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
comm = ringfold.init()
arguments(comm)
pointers(comm)
operations(comm)
exports_end(comm)
registrations(comm)
descriptors()
timeouts()
ends(comm)
interrupts()
aborts()
callbacks()
failing_operations()
print("content", flush=True)

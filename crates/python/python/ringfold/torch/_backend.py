"""The backend: torch's operations as calls of a communicator."""

import itertools
import weakref
from collections import defaultdict, deque
from datetime import timedelta

import torch
from torch.autograd import profiler
from torch.distributed import PrefixStore
from torch._C._distributed_c10d import Backend

import ringfold
from ringfold import errors
from ringfold.torch._bits import copies, replaced
from ringfold.torch._flights import Flights
from ringfold.torch._memory import (
    TYPES, combinable, fill, is_memory, joined, on_stream, operation, place, readable, room, writable,
)
from ringfold.torch._reconfigure import Absent, Group, Handle, read, read_all
from ringfold.torch._store import Store, connect
from ringfold.torch._windows import Windows
from ringfold.torch._work import Work, are_completed, as_torch

#: Seconds to join. A first rank may come much earlier than the last.
JOIN_SECONDS = 1800

#: The largest tag of a message.
TAG_MAX = 2**32 - 1


#: The timeout of an operation that has one is longer.
NO_TIME = timedelta(0)


class RingfoldBackend(Backend):
    """A group of ranks. Synchronous operations run in the caller's thread, others in ringfold's."""

    def __init__(self, store, rank, size, timeout, is_world=False, comm=None):
        super().__init__(rank, size)
        self._is_world = is_world
        self._first_store = store
        self._options = Backend.Options("ringfold", timeout=timeout)
        self._seconds = timeout.total_seconds()
        #: The unique id in the handle of this rank, and the numbers of the groups it has been in.
        self._id, self._uuids = None, []
        if comm is None:
            comm = self._join(ringfold.init_with_store, Store(store), rank, size)
        self._adopt(comm, rank, size, store)

    def _join(self, init, *arguments, limit=JOIN_SECONDS):
        """A communicator that this function makes."""
        try:
            return init(
                *arguments, timeout=self._seconds, join_timeout=min(self._seconds, limit)
            )
        except errors.Error as error:
            raise as_torch(error) from error

    def _adopt(self, comm, rank, size, store):
        """Takes a communicator, with a store of its ranks."""
        # torch's own methods take longer, and their results never change.
        self._rank, self._size = rank, size
        self._comm, self._store = comm, store
        self._windows = Windows(comm)
        self._count = 0
        self._barriers = 0
        #: The number of the next split into a group of these ranks.
        self._split_numbers = defaultdict(itertools.count)
        self._pending = deque()
        self._coalesced = None
        self._flights = Flights()

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    @property
    def options(self):
        return self._options

    @property
    def supports_splitting(self):
        return True

    @property
    def supports_coalescing(self):
        return True

    def getBackendName(self):
        return "ringfold"

    def _run(self, name, opts, inputs, outputs, calls, finish=None):
        """Makes the calls: a method and its arguments each. Returns a handle of all, or None if
        they are done."""
        event = begin_event(name, inputs) if profiler._is_profiler_enabled else None
        work = None
        if outputs and copies.pairs:
            finish = with_replaced(outputs, finish)
        self._count += 1
        entry = self._flights.begin()
        is_async = opts.asyncOp or self._coalesced is not None
        limit = opts.timeout
        seconds = limit.total_seconds() if limit > NO_TIME else None
        try:
            if is_async:
                handles = [
                    call(*arguments, **names, async_op=True, timeout=seconds)
                    for call, arguments, names in calls
                ]
                work = self._keep(Work(handles, outputs, finish, ended(event)))
                self._flights.watch(entry, handles)
            else:
                for call, arguments, names in calls:
                    call(*arguments, **names, timeout=seconds)
                if finish is not None:
                    finish()
                entry.end()
        except errors.Error as error:
            raise as_torch(error) from error
        finally:
            if event is not None and work is None:
                torch.autograd._record_function_with_args_exit(event)
        return work

    def _keep(self, work):
        """Notes an operation in the background until its calls are done. The calls keep their
        memory, and `work` if it has results to copy. So nothing here keeps a tensor."""
        pending = self._pending
        while pending and are_completed(pending[0][0]):
            pending.popleft()
        pending.append((work._handles, work._finish and weakref.ref(work)))
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def start_coalescing(self):
        self._coalesced = []

    def end_coalescing(self):
        works, self._coalesced = self._coalesced or [], None
        handles = [handle for work in works for handle in work._handles]
        tensors = [tensor for work in works for tensor in work._tensors]
        return Work(handles, tensors, lambda: [work._complete() for work in works])

    # Reductions.

    def _reduction(self, tensor, op, is_read=True):
        """Memory for a reduction in place, its names, and what brings the result back."""
        memory, finish = writable(tensor, is_read)
        view = combinable(memory)
        if view is not memory and view.data_ptr() != memory.data_ptr():
            finish = on_stream(tensor, lambda: fill(tensor, view))
        return view, TYPES[view.dtype], operation(op, tensor.dtype), finish

    def allreduce(self, tensors, opts):
        if tensors and tensors[0].is_sparse:
            return self.allreduce_sparse(tensors, opts)
        op, calls, ends = opts.reduceOp, [], []
        for tensor in tensors:
            view, dtype, name, finish = self._reduction(tensor, op)
            found = self._windows.find(view)
            if found is None:
                names = {"dtype": dtype, "keep": view}
                calls.append((self._comm.all_reduce, (place(view), None, name), names))
            else:
                names = {"dtype": dtype, "start": found[1], "count": view.numel()}
                calls.append((self._comm.all_reduce_window, (found[0], None, name), names))
            if finish is not None:
                ends.append(finish)
        return self._run("all_reduce", opts, tensors, list(tensors), calls, all_of(ends))

    def allreduce_coalesced(self, tensors, opts):
        return self.allreduce(tensors, opts)

    def allreduce_sparse(self, tensors, opts):
        """Sums sparse tensors: all ranks get the entries of all, and add them."""
        for tensor in tensors:
            if operation(opts.reduceOp, tensor.dtype) != "sum":
                raise ValueError("ringfold combines sparse tensors only by their sum")
            tensor_sum = self._sparse_sum(tensor.detach().coalesce().cpu())
            # A detached sparse tensor has entries of its own.
            with torch.no_grad():
                tensor.copy_(tensor_sum)
        return Work([], list(tensors)) if opts.asyncOp else None

    def _sparse_sum(self, tensor):
        indices, values = tensor.indices(), readable(tensor.values())
        own, entries = torch.tensor([values.shape[0]]), torch.zeros(self._size, dtype=torch.int64)
        self._comm.all_gather(place(own), place(entries), dtype="int64")
        counts = entries.tolist()
        # Entry after entry, so that each rank's are one part.
        indices = indices.t().contiguous()
        found = []
        for part in [indices, values]:
            row = part[0].nbytes if part.shape[0] else part.new_empty(part.shape[1:]).nbytes
            whole = torch.empty((sum(counts), *part.shape[1:]), dtype=part.dtype)
            parts = [count * row for count in counts]
            self._comm.all_gather_v(place(part), place(whole), parts=parts, dtype="uint8")
            found.append(whole)
        return torch.sparse_coo_tensor(found[0].t(), found[1], tensor.shape).coalesce()

    def reduce(self, tensors, opts):
        tensor = single(tensors)
        view, dtype, op, finish = self._reduction(tensor, opts.reduceOp)
        names = {"dtype": dtype, "keep": view}
        is_root = opts.rootRank == self._rank
        call = (self._comm.reduce, (place(view), None, op, opts.rootRank), names)
        finish = finish if is_root else None
        return self._run("reduce", opts, tensors, list(tensors), [call], finish)

    def reduce_scatter_single(self, output, input, opts):
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        op, calls, ends = opts.reduceOp, [], []
        for output, input in zip(outputs, inputs):
            self._scatter_sum(output, input, None, op, calls, ends)
        return self._run("reduce_scatter", opts, inputs, list(outputs), calls, all_of(ends))

    def _scatter_sum(self, output, input, parts, op, calls, ends):
        """Adds the call that reduces the input, and leaves this rank's part in the output."""
        check_type((output,), input)
        view, dtype, name, finish = self._reduction(output, op, is_read=False)
        source = combinable(readable(input))
        names = {"dtype": dtype, "keep": (view, source)}
        if parts is None:
            calls.append((self._comm.reduce_scatter, (place(source), place(view), name), names))
        else:
            # A complex element is two floats.
            parts = [count * source.numel() // max(input.numel(), 1) for count in parts]
            names["parts"] = parts
            calls.append((self._comm.reduce_scatter_v, (place(source), place(view), name), names))
        if finish is not None:
            ends.append(finish)

    def reduce_scatter(self, outputs, inputs, opts):
        flats, calls, ends = [], [], []
        for output, parts in zip(outputs, inputs):
            check_count(parts, self._size, "reduce_scatter")
            check_type(parts, output)
            flat = torch.cat([readable(part).reshape(-1) for part in parts])
            counts = [part.numel() for part in parts]
            counts = None if len(set(counts)) == 1 else counts
            self._scatter_sum(output, flat, counts, opts.reduceOp, calls, ends)
            flats.append(flat)
        return self._run("reduce_scatter", opts, flats, list(outputs), calls, all_of(ends))

    # Movement: any type, as bytes.

    def broadcast(self, tensors, opts):
        calls, ends = [], []
        is_root = opts.rootRank == self._rank
        for tensor in tensors:
            memory, finish = writable(tensor, is_root)
            names = {"dtype": "uint8", "keep": memory}
            calls.append((self._comm.broadcast, (place(memory), None, opts.rootRank), names))
            if finish is not None and not is_root:
                ends.append(finish)
        return self._run("broadcast", opts, tensors, list(tensors), calls, all_of(ends))

    def all_gather_single(self, output, input, opts):
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        calls, ends = [], []
        for output, input in zip(outputs, inputs):
            check_type((output,), input)
            source = readable(input)
            memory, finish = writable(output, is_read=False)
            names = {"dtype": "uint8", "keep": (memory, source)}
            calls.append((self._comm.all_gather, (place(source), place(memory)), names))
            if finish is not None:
                ends.append(finish)
        return self._run("all_gather", opts, inputs, list(outputs), calls, all_of(ends))

    def allgather(self, outputs, inputs, opts):
        calls, ends = [], []
        for parts, input in zip(outputs, inputs):
            check_count(parts, self._size, "all_gather")
            check_type(parts, input)
            source = readable(input)
            memory, kept, finish = room(parts)
            names = {"dtype": "uint8", "keep": (kept, source)}
            sizes = [part.nbytes for part in parts]
            if len(set(sizes)) == 1:
                calls.append((self._comm.all_gather, (place(source), memory), names))
            else:
                names["parts"] = sizes
                calls.append((self._comm.all_gather_v, (place(source), memory), names))
            if finish is not None:
                ends.append(finish)
        tensors = [part for parts in outputs for part in parts]
        return self._run("all_gather", opts, inputs, tensors, calls, all_of(ends))

    def allgather_coalesced(self, outputs, inputs, opts):
        """The outputs are a list for each rank."""
        return self.allgather([list(parts) for parts in zip(*outputs)], inputs, opts)

    def gather(self, outputs, inputs, opts):
        source, root = readable(single(inputs)), opts.rootRank
        memory, kept, finish = None, None, None
        if self._rank == root:
            parts = single(outputs)
            check_count(parts, self._size, "gather")
            check_type(parts, inputs[0])
            check_sizes(parts, inputs[0], "gather")
            memory, kept, finish = room(parts)
        names = {"dtype": "uint8", "keep": (kept, source)}
        call = (self._comm.gather, (place(source), memory, root), names)
        tensors = list(outputs[0]) if outputs else []
        return self._run("gather", opts, inputs, tensors, [call], finish)

    def scatter(self, outputs, inputs, opts):
        output, root = single(outputs), opts.rootRank
        memory, finish = writable(output, is_read=False)
        source, kept = None, None
        if self._rank == root:
            parts = single(inputs)
            check_count(parts, self._size, "scatter")
            check_type(parts, output)
            check_sizes(parts, output, "scatter")
            source, kept = joined(parts)
        names = {"dtype": "uint8", "keep": (kept, memory)}
        call = (self._comm.scatter, (source, place(memory), root), names)
        return self._run("scatter", opts, outputs, list(outputs), [call], finish)

    def alltoall(self, outputs, inputs, opts):
        check_count(outputs, self._size, "all_to_all")
        check_count(inputs, self._size, "all_to_all")
        source, kept = joined(inputs)
        memory, into, finish = room(outputs)
        names = {"dtype": "uint8", "keep": (kept, into)}
        names["send"], names["recv"] = [t.nbytes for t in inputs], [t.nbytes for t in outputs]
        call = (self._comm.all_to_all_v, (source, memory), names)
        return self._run("all_to_all", opts, inputs, list(outputs), [call], finish)

    def all_to_all_single(self, output, input, output_splits, input_splits, opts):
        if output.dtype != input.dtype:
            check_type((output,), input)
        source = readable(input)
        memory, finish = writable(output, is_read=False)
        # A rank does not know whether others have splits, so all make the same call.
        recv = self._splits(output, output_splits, "output")
        names = {"dtype": "uint8", "keep": (memory, source), "recv": recv}
        if input_splits or output_splits or input.shape != output.shape:
            names["send"] = self._splits(input, input_splits, "input")
        call = (self._comm.all_to_all_v, (place(source), place(memory)), names)
        return self._run("all_to_all", opts, [input], [output], [call], finish)

    def _splits(self, tensor, splits, name):
        """The bytes of each rank's rows."""
        shape, size = tensor.shape, self._size
        rows = shape[0] if shape else 1
        if not splits:
            if rows % size:
                raise ValueError(
                    f"Tensor's dim 0 does not divide equally across group size: the {name} has "
                    f"{rows} rows, for {size} ranks"
                )
            return [tensor.nbytes // size] * size
        if len(splits) != size or sum(splits) != rows:
            raise ValueError(
                f"Split sizes doesn't match total dim 0 size: the {name} has {rows} rows, and "
                f"its splits for {size} ranks are {list(splits)}"
            )
        row = tensor.nbytes // rows if rows else 0
        return [count * row for count in splits]

    def barrier(self, opts):
        return self._run("barrier", opts, (), (), [(self._comm.barrier, (), {})])

    def monitored_barrier(self, opts, wait_all_ranks=False):
        """A barrier by the store, in which rank 0 names the ranks that are missing."""
        limit = opts.timeout if opts.timeout >= NO_TIME else self._options._timeout
        self._barriers += 1
        prefix, rank = f"monitored/{self._barriers}", self._rank
        store = Store(self._store)
        milliseconds = int(limit.total_seconds() * 1000)
        if rank != 0:
            store.set(f"{prefix}/{rank}", "here")
            try:
                # Rank 0 may wait as long for each rank before this one.
                longest = limit * self._size + timedelta(seconds=1)
                end = store.wait(f"{prefix}/end", longest.total_seconds())
            except RuntimeError as error:
                end = str(error).encode()
            end = end or b"rank 0 has not come"
            if end != b"passed":
                raise RuntimeError(
                    f"Rank {rank} successfully reached monitoredBarrier, but received errors "
                    f"while waiting for send/recv from rank 0: {end.decode()}"
                )
            return
        missing = []
        for other in range(1, self._size):
            if store.wait(f"{prefix}/{other}", limit.total_seconds()) is None:
                missing.append(str(other))
                if not wait_all_ranks:
                    break
        if not missing and limit > NO_TIME:
            store.set(f"{prefix}/end", "passed")
            return
        named = ("Ranks " if wait_all_ranks else "Rank ") + ", ".join(missing)
        text = f"{named} failed to pass monitoredBarrier in {milliseconds} ms"
        if limit <= NO_TIME:
            text = f"Rank 0 timed out in monitoredBarrier after {milliseconds} ms"
        store.set(f"{prefix}/end", text)
        raise RuntimeError(f"[Rank 0]: {text}")

    # Messages.

    def send(self, tensors, dst, tag=0):
        source = readable(single(tensors))
        return self._message("send", tensors, self._comm.send, source, dst, tag)

    def recv(self, tensors, src, tag=0):
        memory, finish = writable(single(tensors), is_read=False)
        return self._message("recv", tensors, self._comm.recv, memory, src, tag, finish)

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, None, tag)

    def _message(self, name, tensors, call, memory, peer, tag, finish=None):
        """Starts a message of the memory to a peer, or from it."""
        if not 0 <= tag <= TAG_MAX:
            raise ValueError(f"the tag {tag} is not between 0 and {TAG_MAX}")
        if peer == self._rank:
            raise ValueError(f"rank {peer} cannot send to itself")
        event = begin_event(name, tensors) if profiler._is_profiler_enabled else None
        entry, work = self._flights.begin(), None
        if copies.pairs and name == "recv":
            finish = with_replaced(tensors, finish)
        try:
            handle = call(place(memory), peer, tag, async_op=True, keep=memory)
            work = self._keep(Work([handle], list(tensors), finish, ended(event)))
            self._flights.watch(entry, [handle])
        except errors.Error as error:
            raise as_torch(error) from error
        finally:
            if event is not None and work is None:
                torch.autograd._record_function_with_args_exit(event)
        return work

    # Memory.

    def allocate_tensor(self, size, *, dtype=torch.float32, device=None):
        """Makes a tensor of `size` elements that all ranks of the host have mapped. Every rank must
        call it alike, and all-reduce the same part of it."""
        try:
            return self._windows.allocate(size, dtype)
        except errors.Error as error:
            raise as_torch(error) from error

    def register_tensor(self, tensor):
        """Registers a tensor with the RDMA devices of this rank, for the operations of all groups.

        Returns a `ringfold.Registration`. It ends by its `close`, or with the tensor.
        """
        if not is_memory(tensor):
            what = "is not contiguous" if tensor.is_cpu else "is not in the memory of the CPU"
            raise errors.ArgumentError(
                f"a tensor of {tensor.device} {what}; register a contiguous tensor of the CPU"
            )
        try:
            # An address does not keep the tensor alive.
            registration = self._comm.register(place(tensor))
        except errors.Error as error:
            raise as_torch(error) from error
        weakref.finalize(tensor, registration.close).atexit = False
        return registration

    def supports_tensor_alloc(self, _device):
        """No: callers of this hook, as FSDP2, allocate without the other ranks."""
        return False

    # Groups.

    def split(self, _store, ranks, opts):
        ranks = list(ranks)
        if self._rank not in ranks:
            return None
        timeout = opts._timeout if opts is not None else self._options._timeout
        # The members count their splits, also those that fail on some of them.
        number = next(self._split_numbers[tuple(ranks)])
        store = PrefixStore(f"split/{ranks}/{number}", self._store)
        child = RingfoldBackend(store, ranks.index(self._rank), len(ranks), timeout)
        if opts is not None:
            child._options = opts
        return keep(child)

    def survive(self):
        """Makes a communicator of the ranks that survive a failure."""
        try:
            return self._comm.shrink()
        except errors.Error as error:
            raise as_torch(error) from error

    def successor(self, comm, store):
        """The backend of the survivors, which have this communicator."""
        timeout = self._options._timeout
        return keep(RingfoldBackend(store, comm.rank, comm.size, timeout, self._is_world, comm))

    def former_ranks(self, comm):
        """The ranks in this group of the ranks that survive."""
        old = [self._comm.identity(rank) for rank in range(self._size)]
        return [old.index(comm.identity(rank)) for rank in range(comm.size)]

    # Other ranks.

    @property
    def supports_reconfigure(self):
        """Only in a group that `enable_reconfigure` has made, since only its size may change."""
        return isinstance(self._comm, Absent) or bool(self._uuids)

    def get_reconfigure_handle(self):
        """What the other ranks of a new group must know of this one. It holds a secret."""
        if not self.supports_reconfigure:
            raise RuntimeError("the group was made without enable_reconfigure=True")
        if self._id is None:
            self._id = ringfold.unique_id()
        return str(Handle(self._rank, (self._uuids or [-1])[-1], self._id))

    def reconfigure(self, opts):
        """Makes a group of the ranks with these handles, in place of this one. Every one of them
        must call it alike, and waits for the others. The calls of this group that have not ended
        fail. After an error this group is as before."""
        handles, own = read_all(opts.handles), read(self.get_reconfigure_handle())
        if own not in handles:
            raise ValueError("the handle of this rank is not among those of the new group")
        if opts.uuid in self._uuids:
            raise RuntimeError(f"the uuid {opts.uuid} was already used: take a fresh one each time")
        rank, size, id = handles.index(own), len(handles), handles[0].id
        if rank == 0:
            # An id is good for one attempt.
            self._id = None
        limit = self._seconds if opts.timeout is None else opts.timeout.total_seconds()
        comm = self._join(ringfold.init_with_id, id, rank, size, limit=limit)
        self._uuids.append(opts.uuid)
        if not are_completed(self._unfinished()):
            self._comm.abort("the group was reconfigured")
        self._leave(wait=False)
        self._adopt(comm, rank, size, PrefixStore(f"reconfigured/{opts.uuid}", self._first_store))
        keep(self)
        return Work([], [])

    def perform_nocolor_split(self, _device):
        """The other ranks meet by the store, so a rank outside the group does nothing."""

    def set_timeout(self, timeout):
        self._options._timeout = timeout
        self._seconds = timeout.total_seconds()
        self._comm.set_timeout(self._seconds)

    def get_error(self):
        kinds = torch._C._distributed_c10d.ErrorType
        return kinds.SUCCESS if self._comm.failure() is None else kinds.REMOTE_ERROR

    def _set_sequence_number_for_group(self):
        """Numbers begin at 0 on every rank."""

    def _get_sequence_number_for_group(self):
        return self._count

    def _wait_for_pending_works(self):
        for handles, work in list(self._pending):
            # Nobody may have kept one without results to copy.
            (work and work() or Work(handles, [])).wait()

    def abort(self):
        reason = f"rank {self._rank} aborted its process group"
        self._comm.abort(reason)
        _backends.discard(self)

    def shutdown(self):
        """Leaves the group after the operations before it, in the background but for rank 0 of a
        world without unfinished operations. That has the store, by which others may just make a
        group, and waits for them to leave the world, for a few seconds at most."""
        is_idle = are_completed(self._unfinished())
        self._leave(wait=is_idle and self._is_world and self._rank == 0)
        _backends.discard(self)

    def _unfinished(self):
        """The calls in the background that may run."""
        return [handle for operation in self._pending for handle in operation[0]]

    def _leave(self, wait):
        try:
            self._comm.close(wait=wait)
        except errors.Error:
            # The operations have raised it, and the log has it.
            pass


def begin_event(name, tensors):
    """Begins an event of torch's profiler."""
    return torch.autograd._record_function_with_args_enter(f"ringfold:{name}", *tensors)


def ended(event):
    """What ends an event, if there is one, in any thread. A future has the state of this thread's
    profiler."""
    if event is None:
        return None
    future = torch.futures.Future()
    torch.ops.profiler._call_end_callbacks_on_jit_fut(event, future)
    return lambda: future.set_result(None)


def with_replaced(outputs, finish):
    """What copies the results to outputs, and from there to the tensors that they replace."""
    ends = [] if finish is None else [finish]
    for copy, tensor in replaced(outputs):
        ends.append(on_stream(tensor, lambda copy=copy, tensor=tensor: fill(tensor, copy)))
    return all_of(ends)


def all_of(ends):
    """What copies all results, or None if there are none to copy."""
    return (lambda: [end() for end in ends]) if ends else None


def single(tensors):
    """The only one of a list."""
    if len(tensors) != 1:
        raise ValueError(f"ringfold takes one tensor of each rank, not {len(tensors)}")
    return tensors[0]


def check_count(tensors, size, name):
    if len(tensors) != size:
        raise ValueError(f"{name} needs {size} tensors, one for each rank, not {len(tensors)}")


def check_type(tensors, like):
    dtype = like.dtype
    for tensor in tensors:
        if tensor.dtype != dtype:
            raise ValueError(f"the tensors have different types: {tensor.dtype} and {dtype}")


def check_sizes(tensors, like, name):
    wrong = next((t for t in tensors if t.numel() != like.numel()), None)
    if wrong is not None:
        raise ValueError(
            f"{name} needs tensors of one size, and got {list(wrong.shape)} and {list(like.shape)}"
        )


#: The backends of living groups. torch keeps the part in C++ alone, which calls methods of the part
#: in Python.
_backends = set()


def keep(backend):
    """Keeps a backend until it is shut down or aborted."""
    _backends.add(backend)
    return backend


def create(opts, backend_options=None):
    """Makes the backend of a process group. torch calls it on every rank of the group. With
    `enable_reconfigure` it makes the process group, which waits for its first ranks."""
    store, rank, size, timeout = connect(opts), opts.group_rank, opts.group_size, opts.timeout
    comm = Absent() if opts.enable_reconfigure else None
    is_world = not opts.global_ranks_in_group
    backend = keep(RingfoldBackend(store, rank, size, timeout, is_world, comm))
    return Group(store, backend) if opts.enable_reconfigure else backend

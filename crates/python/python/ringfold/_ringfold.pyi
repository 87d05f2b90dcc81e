"""The types of the native module. Its docstrings say what each function does."""

from collections.abc import Buffer, Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

__version__: str

class _SupportsDlpack(Protocol):
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

#: An object with the buffer protocol or DLPack, or (address, bytes).
type _Memory = Buffer | _SupportsDlpack | tuple[int, int]
#: The name of an operation, as in "sum", or a PreMulSum.
type _Op = str | PreMulSum | None
#: The name of a data type, as in "float32", "fp32" or "<f4", an object whose text ends in a name of
#: numpy or torch, or a dtype of numpy.
type _Type = object | None
#: Counts in elements, or counts and displacements.
type _Parts = Sequence[int] | tuple[Sequence[int], Sequence[int]]

class _Store(Protocol):
    def set(self, key: str, value: bytes, /) -> object: ...
    def get(self, key: str, /) -> bytes | None: ...
    def wait(self, key: str, timeout: float, /) -> bytes: ...

class PreMulSum:
    factor: float
    def __new__(cls, factor: float) -> Self: ...

class UserOp: ...

class Message:
    @property
    def source(self) -> int: ...
    @property
    def tag(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

class Profile:
    @property
    def kinds(self) -> list[ProfiledCalls]: ...

class ProfiledCalls:
    @property
    def operation(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def calls(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def waiting(self) -> float: ...
    @property
    def moving(self) -> float: ...
    @property
    def combining(self) -> float: ...
    @property
    def expected(self) -> float | None: ...

class Handle:
    @property
    def message(self) -> Message | None: ...
    def wait(self, timeout: float | None = None) -> None: ...
    def is_completed(self) -> bool: ...
    def exception(self) -> BaseException | None: ...
    def add_done_callback(self, function: Callable[[Handle], object]) -> None: ...
    def __await__(self) -> Generator[Any, None, None]: ...

class Prepared:
    def start(self) -> Handle: ...

class Window:
    @property
    def dtype(self) -> str: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Registration:
    @property
    def nbytes(self) -> int: ...
    @property
    def is_registered(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exception: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool: ...

class CallGroup:
    def send(
        self, data: _Memory, to: int, tag: int = 0, *, keep: object = None
    ) -> None: ...
    def recv(
        self, data: _Memory, source: int | None, tag: int | None = 0, *, keep: object = None
    ) -> None: ...
    def all_reduce(
        self,
        input: _Memory,
        output: _Memory | None = None,
        op: _Op = None,
        *,
        dtype: _Type = None,
        keep: object = None,
    ) -> None: ...
    reduce_scatter = all_reduce
    scan = all_reduce
    exscan = all_reduce
    def all_gather(
        self,
        input: _Memory,
        output: _Memory | None = None,
        *,
        dtype: _Type = None,
        keep: object = None,
    ) -> None: ...
    all_to_all = all_gather
    def broadcast(
        self, buffer: _Memory, root: int = 0, *, dtype: _Type = None, keep: object = None
    ) -> None: ...
    def reduce(
        self,
        input: _Memory,
        output: _Memory | None = None,
        op: _Op = None,
        root: int = 0,
        *,
        dtype: _Type = None,
        keep: object = None,
    ) -> None: ...
    def gather(
        self,
        input: _Memory,
        output: _Memory | None = None,
        root: int = 0,
        *,
        dtype: _Type = None,
        keep: object = None,
    ) -> None: ...
    def scatter(
        self,
        input: _Memory | None,
        output: _Memory | None = None,
        root: int = 0,
        *,
        dtype: _Type = None,
        keep: object = None,
    ) -> None: ...
    def run(self, *, async_op: bool = False, timeout: float | None = None) -> Handle | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exception: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool: ...
    def __len__(self) -> int: ...

class Communicator:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def name(self) -> str | None: ...
    def set_timeout(self, seconds: float) -> None: ...
    def split(self, color: int | None, key: int = 0) -> Communicator | None: ...
    def duplicate(self) -> Communicator: ...
    def subset(self, ranks: Sequence[int]) -> Communicator | None: ...
    def shrink(self, without: Sequence[int] = ()) -> Communicator: ...
    def grow(self, newcomers: int, id: str | None = None) -> Communicator | None: ...
    def wait_for_replacement(self, seconds: float) -> Communicator | None: ...
    def identity(self, rank: int) -> int: ...
    @property
    def epoch(self) -> int: ...
    def abort(self, reason: str = ...) -> None: ...
    def revoke(self) -> None: ...
    def agree(self, flag: int) -> int: ...
    def begin_profile(self) -> None: ...
    def end_profile(self) -> Profile: ...
    def failed_ranks(self) -> list[int]: ...
    def failure(self) -> str | None: ...
    def close(self, *, wait: bool = True) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exception: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool: ...
    def alloc(self, count: int, dtype: _Type = None) -> Window: ...
    def register(self, memory: _Memory) -> Registration: ...
    def prepare(
        self, method: Callable[..., object], /, *args: Any, **kwargs: Any
    ) -> Prepared: ...
    def group(self) -> CallGroup: ...
    def barrier(
        self, *, async_op: bool = False, timeout: float | None = None
    ) -> Handle | None: ...
    def all_reduce_window(
        self,
        input: Window,
        output: Window | None = None,
        op: _Op = None,
        *,
        start: int = 0,
        count: int | None = None,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Handle | None: ...
    def all_reduce(
        self,
        input: _Memory,
        output: _Memory | None = None,
        op: _Op = None,
        *,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    reduce_scatter = all_reduce
    scan = all_reduce
    exscan = all_reduce
    def all_gather(
        self,
        input: _Memory,
        output: _Memory | None = None,
        *,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    all_to_all = all_gather
    def broadcast(
        self,
        input: _Memory | None,
        output: _Memory | None = None,
        root: int = 0,
        *,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    scatter = broadcast
    def reduce(
        self,
        input: _Memory,
        output: _Memory | None = None,
        op: _Op = None,
        root: int = 0,
        *,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    def register_op(
        self,
        name: str,
        function: Callable[[memoryview, memoryview], object],
        dtype: object,
    ) -> UserOp: ...
    def all_reduce_by(
        self,
        input: _Memory,
        output: _Memory | None = None,
        *,
        op: UserOp,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    def gather(
        self,
        input: _Memory,
        output: _Memory | None = None,
        root: int = 0,
        *,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    def all_to_all_v(
        self,
        input: _Memory,
        output: _Memory | None = None,
        *,
        send: _Parts | None = None,
        recv: _Parts,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    def gather_v(
        self,
        input: _Memory,
        output: _Memory | None = None,
        parts: _Parts | None = None,
        root: int = 0,
        *,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    def scatter_v(
        self,
        input: _Memory | None,
        output: _Memory | None = None,
        parts: _Parts | None = None,
        root: int = 0,
        *,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    def all_gather_v(
        self,
        input: _Memory,
        output: _Memory | None = None,
        *,
        parts: _Parts,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    def reduce_scatter_v(
        self,
        input: _Memory,
        output: _Memory | None = None,
        op: _Op = None,
        *,
        parts: _Parts,
        dtype: _Type = None,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    def send(
        self,
        data: _Memory,
        to: int,
        tag: int = 0,
        *,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...
    def recv(
        self,
        data: _Memory,
        source: int | None,
        tag: int | None = 0,
        *,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | Message: ...
    def probe(self, source: int | None = None, tag: int | None = None) -> Message | None: ...
    def has_left(self, peer: int) -> bool: ...
    def send_recv(
        self,
        data: _Memory,
        to: int,
        into: _Memory,
        source: int,
        tag: int = 0,
        *,
        async_op: bool = False,
        timeout: float | None = None,
        keep: object = None,
    ) -> Handle | None: ...

def init(*, timeout: float | None = None, join_timeout: float | None = None) -> Communicator: ...
def unique_id() -> str: ...
def init_with_id(
    id: str,
    rank: int,
    size: int,
    *,
    timeout: float | None = None,
    join_timeout: float | None = None,
) -> Communicator: ...
def init_as_newcomer(
    id: str, *, timeout: float | None = None, join_timeout: float | None = None
) -> Communicator: ...
def init_with_store(
    store: _Store,
    rank: int,
    size: int,
    *,
    timeout: float | None = None,
    join_timeout: float | None = None,
) -> Communicator: ...
def subset_with_store(
    parent: Communicator,
    store: _Store,
    ranks: Sequence[int],
    *,
    timeout: float | None = None,
    join_timeout: float | None = None,
) -> Communicator: ...
def close_all(reason: str | None = None) -> None: ...
def hold_for_fork() -> None: ...
def end_fork() -> None: ...
def count_fork() -> None: ...

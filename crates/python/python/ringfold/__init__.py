"""ringfold, a collective communication library for training jobs.

    import ringfold, numpy

    comm = ringfold.init()
    gradient = numpy.ones(1000, dtype="float32")
    comm.all_reduce(gradient, op="avg")
"""

import sysconfig as _sysconfig

if _sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError(
        "ringfold has not been tested on free-threaded Python; use a Python with the GIL"
    )

import atexit as _atexit
import sys as _sys

from . import errors
from ._ringfold import (
    CallGroup,
    Communicator,
    Handle,
    Message,
    PreMulSum,
    Prepared,
    Profile,
    ProfiledCalls,
    Registration,
    UserOp,
    Window,
    __version__,
    init,
    init_as_newcomer,
    init_with_id,
    init_with_store,
    subset_with_store,
    unique_id,
)
from ._ringfold import close_all as _close_all
from .errors import (
    ArgumentError,
    ClosedError,
    ConfigError,
    Error,
    FailedError,
    ForkedError,
    GroupError,
    InitError,
    LeaveError,
    RegroupError,
    TruncatedError,
)

__all__ = [
    "ArgumentError",
    "CallGroup",
    "ClosedError",
    "Communicator",
    "ConfigError",
    "Error",
    "FailedError",
    "ForkedError",
    "GroupError",
    "Handle",
    "InitError",
    "LeaveError",
    "Message",
    "PreMulSum",
    "Prepared",
    "Profile",
    "ProfiledCalls",
    "Registration",
    "RegroupError",
    "TruncatedError",
    "UserOp",
    "Window",
    "__version__",
    "errors",
    "init",
    "init_as_newcomer",
    "init_with_id",
    "init_with_store",
    "subset_with_store",
    "unique_id",
]


@_atexit.register
def _close_at_exit() -> None:
    """Leaves all groups. After an exception that ends the program, the other ranks learn of it."""
    reason = None
    # An interactive session goes on after an exception.
    if not hasattr(_sys, "ps1"):
        value = getattr(_sys, "last_value", None)
        if value is not None:
            reason = f"the program ended with {type(value).__name__}: {value}"
    _close_all(reason)

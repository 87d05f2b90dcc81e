"""The exceptions of ringfold."""


class Error(RuntimeError):
    """The base of all exceptions of ringfold."""


class ArgumentError(Error, ValueError):
    """An argument is invalid. This rank sent nothing, and the communicator remains usable."""


class TruncatedError(Error):
    """A message is longer than the buffer of its receive. It stays for a later one, and the
    communicator remains usable."""


class ClosedError(Error):
    """The communicator is closed."""


class ForkedError(Error):
    """This process is a child that fork has made. Only its parent may use the communicator."""


class ConfigError(Error):
    """A variable of the environment has an invalid value."""


class InitError(Error):
    """The ranks could not make a communicator."""


class GroupError(Error):
    """The ranks could not make a group of a communicator, which remains usable."""


class RegroupError(Error):
    """The survivors of a failure could not make a communicator.

    Too few ranks have come, or the others have left this one out.
    """


class FailedError(Error):
    """The job has failed. All surviving ranks get the same cause, and all later calls raise it.

    The contents of output buffers are undefined.
    """

    #: This rank in its group.
    rank: int | None = None
    #: The name of the group, or None for a group that is not a part of another.
    group: str | None = None
    #: The operation that this rank was in, as in "allreduce [2 x f32, sum] #7".
    operation: str | None = None
    #: The number of the collective on its communicator, from 1. A message has None.
    sequence: int | None = None
    #: The cause: the same text on every surviving rank.
    cause: str | None = None
    #: The kind of the cause: "died", "silent", "absent", "mismatch", "link", "message", "tags",
    #: "stalled", "aborted", "revoked" or "left".
    kind: str | None = None
    #: The ranks to inspect first.
    peers: tuple[int, ...] = ()


class LeaveError(FailedError):
    """The job has failed, and this rank learned it only when it closed the communicator."""

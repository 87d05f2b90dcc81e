"""What torch's Flight Recorder does not learn of a backend in Python: how operations end."""

import bisect
import os
import pickle
import time
from collections import deque
from pathlib import Path

from torch import distributed
from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d

#: The operations that a group remembers: as many as torch's recorder by default.
ENTRIES_MAX = 2000


class Entry:
    """An operation. Times are nanoseconds since 1970, as in torch's recorder."""

    __slots__ = ("began", "ended", "handles")

    def __init__(self):
        self.began, self.ended, self.handles = time.time_ns(), None, None

    def end(self):
        self.ended = time.time_ns()

    def look(self):
        """Notes that the calls of the operation have ended, unless one has failed. Returns whether
        no call runs."""
        if not all(handle.is_completed() for handle in self.handles):
            return False
        if all(handle.exception() is None for handle in self.handles):
            self.end()
        return True


#: In place of all entries while torch's recorder is off.
NO_ENTRY = Entry()


class Flights:
    """The last operations of a group, as they began."""

    def __init__(self):
        self._is_on = os.environ.get("TORCH_FR_BUFFER_SIZE") != "0"
        self._entries = deque(maxlen=ENTRIES_MAX)
        #: Those in the background that may run.
        self._open = deque(maxlen=ENTRIES_MAX)

    def begin(self):
        if not self._is_on:
            return NO_ENTRY
        if self._open:
            self.look()
        entry = Entry()
        self._entries.append(entry)
        return entry

    def watch(self, entry, handles):
        """Waits for the end of an operation's calls."""
        if self._is_on:
            entry.handles = handles
            self._open.append(entry)

    def look(self):
        """Notes which operations have ended since. They end in their order, but for messages."""
        while self._open and self._open[0].look():
            self._open.popleft()

    def all(self):
        return list(self._entries)


def complete(entries, flights):
    """Adds to torch's entries of a group how its operations ended. torch notes an operation just
    before the backend does, and one may have several parts."""
    flights.look()
    created = [entry["time_created_ns"] for entry in entries]
    parts = [[] for _ in entries]
    for flight in flights.all():
        place = bisect.bisect_right(created, flight.began) - 1
        if place >= 0:
            parts[place].append(flight)
    for entry, found in zip(entries, parts):
        if not found:
            continue
        entry["state"] = "started"
        entry["time_discovered_started_ns"] = found[0].began
        if all(flight.ended is not None for flight in found):
            end = max(flight.ended for flight in found)
            entry["state"], entry["time_discovered_completed_ns"] = "completed", end
            entry["duration_ms"] = (end - found[0].began) / 1e6


def status(entries):
    """The numbers of a group's last collectives, by what has become of them."""
    states = {"enqueued": None, "started": ["started", "completed"], "completed": ["completed"]}
    last = {}
    for name, wanted in states.items():
        numbers = [
            entry["collective_seq_id"] for entry in entries
            if not entry["is_p2p"] and (wanted is None or entry["state"] in wanted)
        ]
        last[f"last_{name}_collective"] = max(numbers, default=-1)
    return last


def dump(folder, backend_of):
    """See `ringfold.torch.dump_flights`. `backend_of` finds ringfold's backend of a group."""
    found = pickle.loads(_distributed_c10d._dump_fr_trace(backend="ringfold"))
    for group in list(distributed_c10d._world.pg_map):
        backend = backend_of(group)
        key = (group.group_name, group.group_desc)
        entries = [it for it in found.get("entries", []) if tuple(it["process_group"]) == key]
        if backend is not None and entries:
            complete(entries, backend._flights)
            found["pg_status"][group.group_name] = status(entries)
    path = Path(folder) / f"rank_{distributed.get_rank()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    # A reader never sees a part of the file.
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(pickle.dumps(found))
    part.rename(path)
    return path

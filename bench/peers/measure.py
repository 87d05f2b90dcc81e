"""Runs all libraries in turn, round after round, and collects their times."""

import dataclasses

import figures
import processes

# The largest size in trials of a library's settings.
TRIAL_BYTES_MAX = 4 << 20
# The time of each size in a trial.
TRIAL_SECONDS = 0.5


class Series:
    """The cells of one collective, number of ranks and type."""

    def __init__(self, job, say, patience):
        self.job, self.say, self.patience = job, say, patience
        self.cells = {}
        for place in job.places.split(","):
            for size, _ in job.cells:
                key = (place, size)
                self.cells[key] = figures.Cell(job.collective, job.ranks, place, size)
        self.settings = {}
        # The failure of each library and size.
        self.failures = {}

    def measure(self, libraries, rounds, settings=None):
        """Runs all rounds: A B C, B C A, and so on. Uses `settings` of the same job with another
        type, or else finds the best ones."""
        libraries = [library for library in libraries if library.runs(self.job)]
        for library in libraries:
            known = (settings or {}).get(library.name)
            self.settings[library.name] = known or self._best_setting(library)
        for number in range(rounds):
            start = number % len(libraries)
            for library in libraries[start:] + libraries[:start]:
                self._round(library, number)

    def _round(self, library, number):
        setting = self.settings[library.name]
        left = [cell for cell in self.job.cells if (library.name, cell[0]) not in self.failures]
        starts_in_vain = 0
        while left:
            job = dataclasses.replace(self.job, cells=tuple(left))
            measured, outcome = self._start(library, setting, job)
            for (place, size), (used, time, wrong) in measured.items():
                cell = self.cells[(place, size)]
                cell.used[library.name] = used
                if wrong:
                    self._fail(library, size, f"{wrong} wrong elements")
                else:
                    cell.add(library.name, number, time)
            places = self.job.places.split(",")
            done = {size for size, _ in left if all((place, size) in measured for place in places)}
            rest = [cell for cell in left if cell[0] not in done]
            if not rest:
                return
            # The first unfinished cell failed. The others are tried again.
            self._fail(library, rest[0][0], outcome.reason())
            left = rest[1:]
            starts_in_vain = 0 if measured else starts_in_vain + 1
            if starts_in_vain == 2:
                for size, _ in left:
                    self._fail(library, size, "given up")
                return

    def _fail(self, library, size, reason):
        self.failures[(library.name, size)] = reason
        job = self.job
        self.say(f"{library.title}: {job.collective} x {job.ranks}, {size} bytes: {reason}")

    def _start(self, library, setting, job):
        measured = {}
        argv, environment = library.command(job, setting), library.environment(job, setting)
        read = lambda line: measured.update(library.read(line, job))  # noqa: E731
        return measured, processes.run(argv, environment, self.patience, read)

    def _best_setting(self, library):
        settings = library.settings(self.job)
        if len(settings) == 1:
            return settings[0]
        small = [cell for cell in self.job.cells if cell[0] <= TRIAL_BYTES_MAX] or self.job.cells
        some = tuple(dict.fromkeys([small[0], small[len(small) // 2], small[-1]]))
        seconds = min(self.job.seconds, TRIAL_SECONDS)
        job = dataclasses.replace(self.job, cells=some, batches=3, seconds=seconds)
        # For each setting, the better of two tries of each cell.
        tried = [{} for _ in settings]
        for _ in range(2):
            for best, setting in zip(tried, settings):
                measured, _ = self._start(library, setting, job)
                for cell, (_, time, wrong) in measured.items():
                    if not wrong:
                        best[cell] = min(time, best.get(cell, time))
        # A setting with a failure is worse than any without.
        scores = [(-len(best), figures.geometric_mean(best.values()) or 0) for best in tried]
        return settings[scores.index(min(scores))]

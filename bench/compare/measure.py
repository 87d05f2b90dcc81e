"""Runs all libraries in turn, round after round, and collects their times."""

import dataclasses

import figures
import processes

# The largest size in trials of a library's settings.
TRIAL_BYTES_MAX = 4 << 20
# The time of each size in a trial.
TRIAL_SECONDS = 0.5


def turns(things, rounds):
    """Yields the number of a round with each thing, round after round: A B C, B C A, and so on."""
    for number in range(rounds):
        first = number % len(things)
        for thing in things[first:] + things[:first]:
            yield number, thing


def alternate(cases, rounds, measure):
    """Returns what `measure` finds for each named case, in turn, by name and round."""
    found = {name: [] for name in cases}
    for _, name in turns(list(cases), rounds):
        found[name].append(measure(cases[name]))
    return found


def until_done(wanted, start, failed):
    """Runs jobs until each wanted cell is done or has failed. `start` runs a job of cells, and returns
    what it found, the cells that are left, and its outcome. The first of those has failed, and the
    others run again, unless two jobs in a row found nothing. Yields what `start` finds and what
    `failed` makes of a cell and a reason."""
    left, in_vain = list(wanted), 0
    while left:
        found, left, outcome = start(left)
        yield found
        in_vain = 0 if found else in_vain + 1
        if left:
            yield failed(left[0], outcome.reason())
        left = left[1:]
        if in_vain == 2:
            for cell in left:
                yield failed(cell, "given up")
            return


class Series:
    """The cells of one collective, number of ranks and type."""

    def __init__(self, job, patience):
        self.job, self.patience = job, patience
        self.cells = {}
        for place in job.places.split(","):
            for size, _ in job.cells:
                key = (place, size)
                self.cells[key] = figures.Cell(job.collective, job.ranks, place, size)
        self.settings = {}
        # The failure of each library and size.
        self.failures = {}

    def measure(self, libraries, rounds, settings=None):
        """Runs all rounds. Uses `settings` of the same job with another type, or else finds the best
        ones."""
        libraries = [library for library in libraries if library.runs(self.job)]
        for library in libraries:
            known = (settings or {}).get(library.name)
            self.settings[library.name] = known or self._best_setting(library)
        for number, library in turns(libraries, rounds):
            self._round(library, number)

    def _round(self, library, number):
        setting, places = self.settings[library.name], self.job.places.split(",")
        wanted = [cell for cell in self.job.cells if (library.name, cell[0]) not in self.failures]

        def start(left):
            job = dataclasses.replace(self.job, cells=tuple(left))
            measured, outcome = self._start(library, setting, job)
            for (place, size), (used, time, wrong) in measured.items():
                cell = self.cells[(place, size)]
                cell.used[library.name] = used
                if wrong:
                    self._fail(library, size, f"{wrong} wrong elements")
                else:
                    cell.add(library.name, number, time)
            rest = [cell for cell in left
                if not all((place, cell[0]) in measured for place in places)]  # fmt: skip
            return measured, rest, outcome

        failed = lambda cell, reason: self._fail(library, cell[0], reason)  # noqa: E731
        list(until_done(wanted, start, failed))

    def _fail(self, library, size, reason):
        self.failures[(library.name, size)] = reason
        job = self.job
        processes.say(f"{library.title}: {job.collective} x {job.ranks}, {size} bytes: {reason}")

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

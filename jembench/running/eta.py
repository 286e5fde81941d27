"""How fast work goes on, and how long a run will still take: an estimate from its units of work. Imports no torch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

Group = tuple[str, ...]
"""What units must share to take about as long as each other, the most general word first: kind, model, dataset ..."""


@dataclass
class Speed:
    """How far something is and how fast it goes on, by its reports. Times are in seconds, on any clock."""

    done: float = 0.0  # by the last report
    time: float = 0.0  # of the last report
    first: tuple[float, float] | None = None  # the time and what was done by the first report, or one that went back

    def report(self, done: float, time: float) -> None:
        """Take in how far it is. What resumes does not begin at 0."""
        if self.first is None or done < self.done:
            self.first = time, done
        self.done, self.time = done, time

    @property
    def rate(self) -> float:
        """What is done per second; 0: it is not known."""
        time, done = self.first or (self.time, self.done)
        return (self.done - done) / (self.time - time) if self.time > time else 0.0

    def end(self, total: float) -> float | None:
        """When all is done at its present speed; None: it is not known."""
        return self.time + (total - self.done) / self.rate if self.rate else None


@dataclass
class _Running:
    """A unit that runs. What it does is 1 in all."""

    group: Group
    start: float
    speed: Speed = field(default_factory=Speed)

    @property
    def end(self) -> float | None:
        """When it will have ended at its present speed; None: it is not known."""
        return self.speed.end(1.0)


class Eta:
    """Estimates how long a run will still take.

    A unit takes as long as the others of its group do on average: those that have ended, and those that report how far
    they are. Where there are none, it takes as long as those whose group begins with the same words, at least the kind.
    A unit that does not report and is over that time by a minute is taken to need one more.
    """

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}  # of the units that have not ended
        self._waiting: Counter[Group] = Counter()
        self._running: dict[str, _Running] = {}
        self._most = 0  # that have run at once
        self._ended = _Means()

    def queued(self, unit: str, group: Group) -> None:
        """A unit is to be done."""
        self._groups[unit] = group
        self._waiting[group] += 1

    def started(self, unit: str, time: float) -> None:
        """A unit has started."""
        if unit in self._groups:
            self._waiting[self._groups[unit]] -= unit not in self._running  # it may be the next worker's try
            self._running[unit] = _Running(self._groups[unit], time)
            self._most = max(self._most, len(self._running))

    def progressed(self, unit: str, fraction: float, time: float) -> None:
        """A unit has reported which fraction of it is done."""
        if one := self._running.get(unit):
            one.speed.report(fraction, time)

    def ended(self, unit: str, time: float, *, done: bool, again: bool) -> None:
        """A unit has ended: its duration counts if it is done; ``again``: it will be started again."""
        if unit not in self._groups:
            return
        one = self._running.pop(unit, None)
        self._waiting[self._groups[unit]] += again - (one is None)
        if not again:
            del self._groups[unit]
        if one and done:
            self._ended.add(one.group, time - one.start)

    def left(self, now: float) -> float | None:
        """Seconds that the run will still take; None while of some kind of unit nothing is known."""
        means = self._ended.copy()
        for one in self._running.values():
            if one.end is not None:
                means.add(one.group, one.end - one.start)
        unknown = [one.group for one in self._running.values() if one.end is None]
        if any(not means.counts[group[:1]] for group in (*unknown, *+self._waiting)):
            return None
        longer, running = means.copy(), []
        for one in self._running.values():
            if one.end is not None:
                running.append(max(one.end - now, 0))
                continue
            over = now - one.start - means.of(one.group)
            running.append(abs(over))
            if over > 0:
                longer.add(one.group, now - one.start + over)
        waiting = sum(count * longer.of(group) for group, count in self._waiting.items() if count)
        at_once = max(min(self._most, len(running) + self._waiting.total()), 1)
        return max((sum(running) + waiting) / at_once, *running, 0)


class _Means:
    """Mean durations of groups of units."""

    def __init__(self) -> None:
        self.seconds: defaultdict[Group, float] = defaultdict(float)  # the sum; also of the more general groups
        self.counts: Counter[Group] = Counter()

    def copy(self) -> _Means:
        """The same means, to which more can be added."""
        other = _Means()
        other.seconds, other.counts = self.seconds.copy(), self.counts.copy()
        return other

    def add(self, group: Group, seconds: float) -> None:
        """Add a duration."""
        for each in _widening(group):
            self.seconds[each] += seconds
            self.counts[each] += 1

    def of(self, group: Group) -> float:
        """The mean of a group, or of the least general one of which any is known."""
        known = next(each for each in _widening(group) if self.counts[each])
        return self.seconds[known] / self.counts[known]


def _widening(group: Group) -> Iterator[Group]:
    """The group, and the more general ones that it is in."""
    return (group[:length] for length in range(len(group), 0, -1))


def duration(seconds: float) -> str:
    """A duration in words, roughly."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def pace(rate: float) -> str:
    """What is done per second, or per minute if that is less than one."""
    if rate < 1:
        return f"{60 * rate:.1f}/min"
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"

"""The subjects of measurements of a network, each with rows of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import attacks
import contests
import rate
import torch
from contests import Contest, Setting
from turns import Spread, Turn, spread, take_turns


class Row(NamedTuple):
    """A row of the table."""

    subject: str
    per: str
    measure: Literal["seconds", "percent"]
    textbook: Spread
    ours: Spread
    # of each turn, above 1 if jembench is better; None if a ratio has no meaning
    ratio: Spread | None
    notes: Mapping[str, float]


class Timed(NamedTuple):
    """The turns of a contest, without the objects of the contest, whose memory is freed."""

    unit: str
    units: float
    agreement: Mapping[str, float]
    turns: list[Turn]


class Session:
    """The measurements of one network.

    Args:
        setting: the network, the device and the amount of work.
        repeats: the number of turns of each contest.
        rates: True to time the network's convolutions alone in the same turns, for rates.
    """

    def __init__(self, setting: Setting, repeats: int, *, rates: bool) -> None:
        self.setting = setting
        self.repeats = repeats
        self.works = rate.works_of(setting, setting.model("jem").net) if rates else None
        self.rulers = rulers(setting, self.works) if self.works else {}
        self._timed: dict[str, Timed] = {}

    def rows(self, subject: str) -> list[Row]:
        """Return the rows of a subject."""
        return [contest_row(subject, self.timed(subject))] if subject in CONTESTS else rates(self)

    def timed(self, subject: str) -> Timed:
        """Return the turns of a contest, which rates use as well."""
        if subject not in self._timed:
            contest = CONTESTS[subject](self.setting)
            alone = self.rulers if subject in RATED else {}
            contestants = {"textbook": contest.textbook, "ours": contest.ours}
            contestants |= {name: convolutions.compute for name, convolutions in alone.items()}
            turns = take_turns(contestants, self.repeats, self.setting.place)
            self._timed[subject] = Timed(contest.unit, contest.units, contest.agreement, turns)
        return self._timed[subject]


def contest_row(subject: str, timed: Timed) -> Row:
    """Return the row of seconds per unit of both, and their ratio turn by turn."""
    turns = timed.turns
    textbook, ours = (
        spread(turn[side] / timed.units for turn in turns) for side in ("textbook", "ours")
    )
    ratio = spread(turn["textbook"] / turn["ours"] for turn in turns)
    return Row(subject, timed.unit, "seconds", textbook, ours, ratio, timed.agreement)


def rulers(setting: Setting, works: rate.Works) -> dict[str, rate.Convolutions]:
    """Return the convolutions of a step and of a loss, each in the precision and layout of either
    side.
    """
    execution = setting.execution
    ours = torch.channels_last if execution.channels_last else torch.contiguous_format
    sides = {
        "textbook": (torch.float32, torch.contiguous_format),
        "ours": (getattr(torch, execution.precision), ours),
    }
    return {
        f"{side} {part}": rate.convolutions_of(work.carry_out, *form, setting.place)
        for side, form in sides.items()
        for part, work in works._asdict().items()
    }


def rates(session: Session) -> list[Row]:
    """Return the rows of model FLOP utilisation of a sampling step and of an iteration of JEM."""
    return [
        _rate_row(session, "sampling", 1, 0),
        _rate_row(session, "jem", session.setting.steps, 1),
    ]


def _rate_row(session: Session, subject: str, steps: int, losses: int) -> Row:
    """Return the row of shares of the convolutions' rate, of a unit of so many steps and losses."""
    assert session.works
    _, units, _, turns = session.timed(subject)
    amounts = {"step": steps, "loss": losses}
    operations = sum(
        getattr(session.works, part).operations * times for part, times in amounts.items()
    )

    def alone(turn: Turn, side: str) -> float:
        """Return the rate of the convolutions."""
        seconds = sum(times * turn[f"{side} {part}"] for part, times in amounts.items())
        done = sum(
            times * session.rulers[f"{side} {part}"].operations for part, times in amounts.items()
        )
        return done / seconds

    def share(turn: Turn, side: str) -> float:
        return 100 * operations * units / turn[side] / alone(turn, side)

    precision = session.setting.execution.precision
    names = {"textbook": "textbook's convolutions GFLOP/s", "ours": "our convolutions GFLOP/s"}
    notes = {"GFLOP": operations / 1e9} | {
        name: spread(alone(turn, side) / 1e9 for turn in turns).median
        for side, name in names.items()
    }
    return Row(
        f"rate of {subject}",
        f"convolutions' rate, float32 and {precision}",
        "percent",
        spread(share(turn, "textbook") for turn in turns),
        spread(share(turn, "ours") for turn in turns),
        None,
        notes,
    )


CONTESTS: Mapping[str, Callable[[Setting], Contest]] = {
    "sampling": contests.sampling,
    "jem": contests.jem,
    "classifier": contests.classifier,
    "evaluation": contests.evaluation,
    "gradient-norm": contests.gradient_norm,
    "scores": contests.scores,
    "bootstrap": contests.bootstrap,
    "attack": attacks.attack,
}
RATED = ("sampling", "jem")
SUBJECTS = (*CONTESTS, "rate")

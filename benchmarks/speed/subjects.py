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
    ratio: Spread | None  # of each turn, above 1 if jembench is better; None if a ratio has no meaning
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
        rates: True to time matrix products in the same turns, for rates.
    """

    def __init__(self, setting: Setting, repeats: int, *, rates: bool) -> None:
        self.setting = setting
        self.repeats = repeats
        precisions = ("float32", setting.execution.precision) if rates else ()
        self.products = {name: rate.matrix_product(getattr(torch, name), setting.place) for name in precisions}
        self._timed: dict[str, Timed] = {}

    def rows(self, subject: str) -> list[Row]:
        """Return the rows of a subject."""
        return [contest_row(subject, self.timed(subject))] if subject in CONTESTS else rates(self)

    def timed(self, subject: str) -> Timed:
        """Return the turns of a contest, which rates use as well."""
        if subject not in self._timed:
            contest = CONTESTS[subject](self.setting)
            products = self.products if subject in RATED else {}
            contestants = {"textbook": contest.textbook, "ours": contest.ours}
            contestants |= {name: product.multiply for name, product in products.items()}
            turns = take_turns(contestants, self.repeats, self.setting.place)
            self._timed[subject] = Timed(contest.unit, contest.units, contest.agreement, turns)
        return self._timed[subject]


def contest_row(subject: str, timed: Timed) -> Row:
    """Return the row of seconds per unit of both, and their ratio turn by turn."""
    turns = timed.turns
    textbook, ours = (spread(turn[side] / timed.units for turn in turns) for side in ("textbook", "ours"))
    ratio = spread(turn["textbook"] / turn["ours"] for turn in turns)
    return Row(subject, timed.unit, "seconds", textbook, ours, ratio, timed.agreement)


def rates(session: Session) -> list[Row]:
    """Return the rows of model FLOP utilisation of a sampling step and of an iteration of JEM."""
    work = rate.work_of(session.setting, session.setting.model("jem").net)
    return [
        _rate_row(session, "sampling", work.step),
        _rate_row(session, "jem", work.iteration),
    ]


def _rate_row(session: Session, subject: str, operations: int) -> Row:
    """Return the row of shares of the rate of a matrix product in the precision of each side."""
    _, units, _, turns = session.timed(subject)
    precision = session.setting.execution.precision
    products = session.products

    def share(turn: Turn, side: str, ruler: str) -> float:
        return 100 * (operations * units / turn[side]) / (products[ruler].operations / turn[ruler])

    notes = {"GFLOP": operations / 1e9} | {
        f"{name} {product.size}^3 GFLOP/s": spread(product.operations / turn[name] / 1e9 for turn in turns).median
        for name, product in products.items()
    }
    return Row(
        f"rate of {subject}",
        f"matrix rate, float32 and {precision}",
        "percent",
        spread(share(turn, "textbook", "float32") for turn in turns),
        spread(share(turn, "ours", precision) for turn in turns),
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

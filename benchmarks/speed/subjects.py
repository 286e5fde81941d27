"""What is measured of a network: each subject gives rows of the table."""

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
    """One line of the table."""

    subject: str
    per: str
    measure: Literal["seconds", "percent"]
    textbook: Spread
    ours: Spread
    ratio: Spread | None  # of each turn, above 1 where ours is better; None where the two are not to be divided
    notes: Mapping[str, float]


class Timed(NamedTuple):
    """A contest's turns. What took them is gone, and with it its memory."""

    unit: str
    units: float
    agreement: Mapping[str, float]
    turns: list[Turn]


class Session:
    """All that is measured of one network.

    Args:
        setting: the network, and how much of everything.
        repeats: turns of each contest.
        rates: whether matrix products take turns as well, of which rates are read.
    """

    def __init__(self, setting: Setting, repeats: int, *, rates: bool) -> None:
        self.setting = setting
        self.repeats = repeats
        precisions = ("float32", setting.execution.precision) if rates else ()
        self.products = {name: rate.matrix_product(getattr(torch, name), setting.place) for name in precisions}
        self._timed: dict[str, Timed] = {}

    def rows(self, subject: str) -> list[Row]:
        """What there is to say of a subject."""
        return [contest_row(subject, self.timed(subject))] if subject in CONTESTS else rates(self)

    def timed(self, subject: str) -> Timed:
        """The turns of a contest: those that the rate is read of are the ones that its own row shows."""
        if subject not in self._timed:
            contest = CONTESTS[subject](self.setting)
            products = self.products if subject in RATED else {}
            contestants = {"textbook": contest.textbook, "ours": contest.ours}
            contestants |= {name: product.multiply for name, product in products.items()}
            turns = take_turns(contestants, self.repeats, self.setting.place)
            self._timed[subject] = Timed(contest.unit, contest.units, contest.agreement, turns)
        return self._timed[subject]


def contest_row(subject: str, timed: Timed) -> Row:
    """Seconds a unit of both, and their ratio turn by turn."""
    turns = timed.turns
    textbook, ours = (spread(turn[side] / timed.units for turn in turns) for side in ("textbook", "ours"))
    ratio = spread(turn["textbook"] / turn["ours"] for turn in turns)
    return Row(subject, timed.unit, "seconds", textbook, ours, ratio, timed.agreement)


def rates(session: Session) -> list[Row]:
    """Model FLOP utilisation of a sampling step and of a whole iteration of JEM."""
    work = rate.work_of(session.setting, session.setting.model("jem").net)
    return [
        _rate_row(session, "sampling", work.step),
        _rate_row(session, "jem", work.iteration),
    ]


def _rate_row(session: Session, subject: str, operations: int) -> Row:
    """The share of the rate of a matrix product in the precision that each side computes in."""
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

"""The search for the smallest eps by PGD: foolbox's own attack and restarts in a search by hand,
and ours.

Foolbox has no such search, and an eps that is one number for a whole batch, so whoever wants the
smallest of each image searches image by image. Both sides attack a classifier of digits, trained
here, whatever network else is timed.
"""

from __future__ import annotations

from typing import Any

import torch
from contests import Contest, Setting
from torch import Tensor
from torch.nn import functional as F

from jembench import seeds
from jembench.attacks.foolbox_bridge import foolbox, wrapped
from jembench.attacks.pgd import FIRST, PGD, STRIDE
from jembench.attacks.target import Target
from jembench.attacks.threat import distance, starts
from jembench.catalog import registry
from jembench.data.pixels import to_float
from jembench.interfaces import Dataset

RESTARTS, STEPS, TOLERANCE = 20, 40, 0.01
CHECKED = 2
ITERATIONS = 300  # of training


def attack(setting: Setting) -> Contest:
    """Return the contest of PGD in L-inf with 20 restarts of 40 steps, to 1 % of the smallest eps
    of each image.
    """
    data = registry.resolve("datasets", "digits").make()
    model = _classifier(data, setting.place)
    images, labels = data.split("test")
    chosen = torch.randperm(len(images), generator=seeds.generator(0, "robustness/images"))[
        : setting.attacked
    ]
    x, y = to_float(images[chosen], (0.0, 1.0)).to(setting.place), labels[chosen].to(setting.place)
    target = Target(model, data.spec)
    right = target.classes(x) == y
    x, y = x[right], y[right]
    begin = torch.stack(
        [
            starts(RESTARTS, tuple(x.shape[1:]), "linf", seeds.generator(0, f"{i}"))
            for i in range(len(x))
        ]
    )

    def ours(count: int = len(x)) -> Tensor:
        pgd = PGD(norm="linf", steps=STEPS, tolerance=TOLERANCE)
        return pgd.minimal(target, x[:count], y[:count], begin[:count].to(x.device)).distance

    def theirs(count: int = len(x)) -> Tensor:
        return _by_foolbox(target, x[:count], y[:count])

    agreement = {
        f"our distance over foolbox's, of {CHECKED} images": float(
            (ours(CHECKED) / theirs(CHECKED)).mean()
        )
    }
    return Contest(f"image of digits, {RESTARTS} restarts", len(x), theirs, ours, agreement)


def _by_foolbox(target: Target, x: Tensor, y: Tensor) -> Tensor:
    """Search the smallest eps of each image by foolbox's attack: doubled until a success, then by
    bisection.
    """
    model = wrapped(target.logits, x.device)
    attack = foolbox().attacks.LinfPGD(rel_stepsize=STRIDE / STEPS, steps=STEPS).repeat(RESTARTS)
    nearest = []
    for image, label in zip(x[:, None], y[:, None], strict=True):
        failed, best = 0.0, torch.tensor(torch.inf).double()
        while best.isinf() or best - failed > TOLERANCE * best:
            eps = float((failed + best) / 2) if best.isfinite() else 2 * failed or FIRST["linf"]
            _, clipped, success = attack(model, image, label, epsilons=eps)
            if success.item():
                best = distance(image, clipped, "linf")[0]
            else:
                failed = eps
        nearest.append(best)
    return torch.stack(nearest)


def _classifier(data: Dataset, device: torch.device) -> Any:
    """Train a small network on the digits."""
    with seeds.drawing(0, "initialisation"):
        model = registry.resolve("models", "baseline").make(data.spec).to(device)
    images, labels = data.split("train")
    x, y = to_float(images, data.spec.bounds).to(device), labels.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    draw = seeds.generator(0, "batches")
    for _ in range(ITERATIONS):
        batch = torch.randint(len(x), (64,), generator=draw)
        optimizer.zero_grad()
        F.cross_entropy(model.logits(x[batch]), y[batch]).backward()
        optimizer.step()
    return model.eval()

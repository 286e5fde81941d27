"""Coverage of every kind of 95 % interval that jembench gives, by simulation.

``python benchmarks/coverage.py`` prints the table of ``docs/coverage.md``; ``--only ece,fid``
selects rows by the names of values, ``--simulations`` changes their number. In each simulation data
of a known distribution are drawn, and the code that a run uses gives the value and its interval.
*Truth* is the value for infinitely many observations, in closed form or by numerical integration;
*own mean* is the mean of the value over the simulations.

Legend: N, M observations, D features, K classes.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.integrate import quad

from jembench.interfaces import Features, Resampling, Value
from jembench.metrics.base import Estimate, mean, median, share, value_of
from jembench.metrics.classification import (
    ECE,
    AdaptiveECE,
    Classification,
    ClasswiseECE,
    DebiasedECE,
)
from jembench.metrics.densities import EnergyGap
from jembench.metrics.generation import FID, IS, KID, FeatureMetric
from jembench.metrics.log_density import LogDensity, among_highest, effective_classes
from jembench.metrics.ood import OutOfDistribution, OutOfDistributionGroup
from jembench.metrics.pretrained import InceptionFeatures
from jembench.metrics.sample_protocol import Generated
from jembench.metrics.samples import epsilon_squared
from jembench.stats import ranking
from jembench.stats.paired import (
    PairedDifference,
    bootstrap_difference,
    from_intervals,
    seed_difference,
)
from jembench_energy_ood.selective import Selective
from jembench_generation.coverage import PRC, DensityCoverage
from jembench_generation.infinity import FIDInfinity
from jembench_generation.memorisation import data_copying
from jembench_generation.neighbours import Neighbours
from jembench_robustness.gradient_checks import BY_STEPS, _largest_rise
from jembench_robustness.shift_metric import Shift

Generator = np.random.Generator
PHI = NormalDist()


class Case(NamedTuple):
    """A row of the table."""

    value: str
    situation: str
    truth: float | None  # None: not known in closed form, and the interval is of the mean
    draw: Callable[[Generator], Value | PairedDifference]
    simulations: int = 500


def measured(estimate: Estimate, rng: Generator, resamples: int = 1000) -> Value:
    """Return a value with its interval, as a metric does."""
    return value_of(estimate, rng, resamples)


# --- shares, means, medians -----------------------------------------------------------------------


def simple() -> Iterator[Case]:
    """Yield values of one sample."""
    for p in (0.9, 0.99, 0.999):
        yield Case(
            "accuracy",
            f"N = 397, p = {p}",
            100 * p,
            lambda rng, p=p: measured(share(rng.random(397) < p), rng),
        )
    yield Case(
        "nll",
        "N = 397, exponential",
        1.0,
        lambda rng: measured(mean(rng.exponential(size=397)), rng),
    )
    yield Case(
        "nll",
        "N = 397, log-normal (sigma 1.5)",
        math.exp(1.125),
        lambda rng: measured(mean(rng.lognormal(0, 1.5, 397)), rng),
    )
    yield Case(
        "pgd-l2",
        "N = 300, log-normal",
        1.0,
        lambda rng: measured(median(rng.lognormal(size=300)), rng),
    )
    yield Case(
        "iteration-time",
        "10 windows, normal",
        1.0,
        lambda rng: measured(median(rng.normal(1, 0.1, 10)), rng),
    )
    yield Case(
        "energy-gap",
        "N = 397, M = 1,000, normal",
        1.0,
        lambda rng: measured(
            EnergyGap().estimates(
                {"energy-data": rng.normal(1, 2, 397), "energy-samples": rng.normal(0, 5, 1000)}
            )["energy-gap"],
            rng,
        ),
    )
    yield Case(
        "log-px-spread",
        "N = 397, normal",
        1.0,
        lambda rng: measured(
            LogDensity().estimates({"log-px": rng.normal(size=397)})["log-px-spread"], rng
        ),
    )
    yield Case(
        "accuracy-top",
        "100 highest of N = 400, p = rank",
        87.5,
        lambda rng: measured(top_share(rng), rng),
    )
    yield Case(
        "confidence-64",
        "64 highest of N = 1,000, uniform",
        96.8,
        lambda rng: measured(top_mean(rng), rng),
        500,
    )
    for n in (100, 1000):
        yield Case(
            "classes",
            f"N = {n:,}, 10 classes, equal",
            10.0,
            lambda rng, n=n: measured(effective_classes(rng.integers(0, 10, n), 10), rng),
        )
    yield Case(
        "age-dependence",
        "N = 1,000, 10 classes, independent",
        0.0,
        lambda rng: measured(dependence(rng), rng),
        200,
    )
    yield Case(
        "steps",
        "N = 100, accuracies of .5 in four columns",
        0.0,
        lambda rng: measured(rise(rng), rng),
    )


def top_share(rng: Generator) -> Estimate:
    """Return the share right among the highest quarter, where the probability is the quantile."""
    density = rng.random(400)
    return among_highest(share(rng.random(400) < density), np.argsort(-density), 100)


def top_mean(rng: Generator) -> Estimate:
    """Return the mean of the 64 highest."""
    confidence = 100 * rng.random(1000)
    return among_highest(mean(confidence, within=(0.0, 100.0)), np.argsort(-confidence), 64)


def dependence(rng: Generator) -> Estimate:
    """Return the ages' variance between classes, for classes independent of ages."""
    ages, classes = rng.integers(0, 500, 1000), rng.integers(0, 10, 1000)
    return Estimate(Resampling(epsilon_squared(ages, classes), (1000,), (0.0, 1.0)))


def rise(rng: Generator) -> Estimate:
    """Return the largest rise of accuracy with stronger attacks, where there is none."""
    return Estimate(
        Resampling(_largest_rise(rng.random((100, len(BY_STEPS))) < 0.5), (100,), (0.0, 100.0))
    )


# --- calibration ----------------------------------------------------------------------------------


def logits_of(confidence: np.ndarray[Any, Any], classes: int = 2) -> torch.Tensor:
    """Return logits (N, K) whose class 0 has that probability, the others the same each."""
    first = torch.from_numpy(np.log(confidence * (classes - 1) / (1 - confidence)))
    return torch.cat(
        [first[:, None], torch.zeros(len(first), classes - 1, dtype=torch.float64)], dim=1
    )


def calibration_of(
    metric: Classification, rng: Generator, n: int, gap: float, lowest: float = 0.55
) -> Estimate:
    """Return a calibration error where confidences are uniform and accuracy is confidence minus
    ``gap``.
    """
    confidence = rng.uniform(lowest, 1, n)
    labels = (rng.random(n) >= confidence - gap).astype(np.int64)
    (estimate,) = metric.estimates(
        metric.scores(logits_of(confidence), torch.from_numpy(labels))
    ).values()
    return estimate


def classwise(rng: Generator, n: int) -> Estimate:
    """Return the classwise error of calibrated probabilities over 10 classes."""
    logits = torch.from_numpy(rng.normal(0, 2, (n, 10)))
    labels = (logits + torch.from_numpy(rng.gumbel(size=(n, 10)))).argmax(dim=1)
    (estimate,) = ClasswiseECE().estimates(ClasswiseECE().scores(logits, labels)).values()
    return estimate


def withdrawn(rng: Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Return calibrated confidences and errors: the risk at coverage c is c / 2."""
    confidence = rng.random(397)
    return {"score": confidence, "correct": rng.random(397) < confidence}


def calibration() -> Iterator[Case]:
    """Yield calibration errors of calibrated and of miscalibrated classifiers."""
    for metric in (ECE(), AdaptiveECE(), DebiasedECE()):
        in_unit = (
            (lambda gap: gap**2) if isinstance(metric, DebiasedECE) else (lambda gap: 100 * gap)
        )
        for n, gap in ((397, 0.0), (397, 0.05), (397, 0.15), (10_000, 0.0)):
            if n > 1000 and isinstance(metric, AdaptiveECE):
                continue
            yield Case(
                metric.name,
                f"N = {n:,}, confidence uniform in .55 to 1, "
                f"{f'{100 * gap:g} % too high' if gap else 'calibrated'}",
                in_unit(gap),
                lambda rng, metric=metric, n=n, gap=gap: measured(
                    calibration_of(metric, rng, n, gap), rng
                ),
                500 if n < 1000 else 100,
            )
    yield Case(
        "classwise-ece",
        "N = 397, 10 classes, calibrated",
        0.0,
        lambda rng: measured(classwise(rng, 397), rng),
        200,
    )
    for label, truth in {"aurc": 25.0, "augrc": 50 / 3}.items():
        yield Case(
            label,
            "N = 397, confidence uniform in 0 to 1, calibrated",
            truth,
            lambda rng, label=label: measured(Selective().estimates(withdrawn(rng))[label], rng),
            200,
        )


def shifted(label: str, rng: Generator) -> Value:
    """Return a value of five corruptions of each image, which are classified by chance and have the
    same mean score.
    """
    difficulty, score = rng.uniform(0.8, 1, (397, 1)), rng.normal(size=(397, 1))
    arrays = {
        "correct": rng.random((397, 5)) < difficulty,
        "confidence": rng.uniform(0.8, 1, (397, 5)),
    }
    arrays |= {
        "score": (score + rng.normal(size=(397, 5))) / 2**0.5,
        "inside": rng.normal(1, 1, 397),
    }
    return measured(Shift(set="uniform").estimates(arrays)[label], rng)


def shift() -> Iterator[Case]:
    """Yield means over corruptions of the same images."""
    for label, truth in {"accuracy": 90.0, "auroc": PHI.cdf(0.5**0.5)}.items():
        yield Case(
            label,
            "N = 397, five corruptions of each image",
            truth,
            lambda rng, label=label: shifted(label, rng),
            200,
        )


# --- detection ------------------------------------------------------------------------------------


def detection_truth(shift: float, n: int, m: int) -> dict[str, float]:
    """Return the values of N(shift, 1) against N(0, 1)."""

    def precision(x: float) -> float:
        inside, outside = n * PHI.cdf(shift - x), m * PHI.cdf(-x)
        return NormalDist(shift).pdf(x) * inside / (inside + outside)

    return {
        "auroc": PHI.cdf(shift / 2**0.5),
        "fpr95-in": PHI.cdf(PHI.inv_cdf(0.95) - shift),
        "aupr-in": quad(precision, shift - 8, shift + 8, limit=200)[0],
    }


def ranked(
    label: str, rng: Generator, inside: np.ndarray[Any, Any], outside: np.ndarray[Any, Any]
) -> Value:
    """Return a value of scores with its interval."""
    scores = {"inside": inside, "outside": outside}
    return measured(OutOfDistribution(set="uniform").estimates(scores)[label], rng)


def grouped(label: str, rng: Generator, shifts: tuple[float, ...]) -> Value:
    """Return a mean over sets of outliers, against the same test images, with its interval."""
    scores = {"inside": rng.normal(size=397)} | {
        f"set{shift}": rng.normal(-shift, 1, 397) for shift in shifts
    }
    return measured(OutOfDistributionGroup(group="near").estimates(scores)[label], rng)


def detection() -> Iterator[Case]:
    """Yield OOD detection by normal scores, up to nearly saturated ones, and by scores with a few
    bad outliers.
    """
    for n, m in ((397, 397), (397, 5000)):
        for shift in (1.0, 3.0, 4.5, 6.0) if m == n else (4.5,):
            for label, truth in detection_truth(shift, n, m).items():
                yield Case(
                    label,
                    f"N = {n}, M = {m:,}, N({shift:g}, 1) and N(0, 1)",
                    truth,
                    lambda rng, label=label, shift=shift, n=n, m=m: ranked(
                        label, rng, rng.normal(shift, 1, n), rng.normal(size=m)
                    ),
                    200,
                )
    yield Case(
        "auroc",
        "N = M = 397, apart but for .3 % of the outliers, above all",
        0.997,
        lambda rng: ranked(
            "auroc",
            rng,
            rng.random(397),
            rng.random(397) + np.where(rng.random(397) < 0.003, 2, -2),
        ),
        200,
    )
    near = (0.5, 1.0, 1.5)
    for label in ("auroc", "fpr95-in"):
        yield Case(
            label,
            "N = 397, mean over three sets of M = 397, 0.5, 1 and 1.5 apart",
            sum(detection_truth(shift, 397, 397)[label] for shift in near) / 3,
            lambda rng, label=label: grouped(label, rng, near),
            200,
        )


# --- features -------------------------------------------------------------------------------------


def scored(
    metric: FeatureMetric,
    rng: Generator,
    images: np.ndarray[Any, Any],
    real: np.ndarray[Any, Any],
    label: str = "",
) -> Value:
    """Return a value of a metric of features, the first by default."""
    given, reference = torch.from_numpy(images), torch.from_numpy(real)
    sample = Generated(
        given,
        Features(given, given),
        torch.arange(len(given)),
        InceptionFeatures(),
        {"features": "given"},
    )
    estimates = metric.scores(sample, reference).estimates
    estimate = estimates[label or next(iter(estimates))]
    return measured(estimate, rng, 200 if metric.resamples is None else metric.resamples)


def mmd(d: int, shift: float) -> float:
    """Return the squared MMD of N(shift 1, I) and N(0, I) under the kernel (x y / D + 1)^3."""

    def third(a: float, b: float) -> float:  # E (x y / D + 1)^3 with means a 1 and b 1
        ab, aa, bb = d * a * b, d * a * a, d * b * b
        moments = (1, ab, d + aa + bb + ab**2, ab**3 + 3 * ab * aa + 3 * ab * (d + bb + 2))
        return sum(
            weight * moment / d**power
            for power, (weight, moment) in enumerate(zip((1, 3, 3, 1), moments, strict=True))
        )

    return third(shift, shift) + third(0, 0) - 2 * third(shift, 0)


def generation() -> Iterator[Case]:
    """Yield metrics of features of Gaussian images."""
    for metric, truth_of in (
        (FID(), lambda d, s: d * s * s),
        (FIDInfinity(), lambda d, s: d * s * s),
    ):
        for d, n, m in ((16, 400, 400), (64, 1000, 1797)):
            for shift in (0.0, 0.3):
                yield Case(
                    metric.name,
                    f"D = {d}, N = {n:,}, M = {m:,}, means "
                    f"{f'{shift:g} apart' if shift else 'equal'}",
                    truth_of(d, shift),
                    lambda rng, metric=metric, d=d, n=n, m=m, shift=shift: scored(
                        metric, rng, rng.normal(shift, 1, (n, d)), rng.normal(size=(m, d))
                    ),
                    100 if d < 20 else 40,
                )
    for shift in (0.0, 0.3):
        yield Case(
            "kid",
            f"D = 16, N = M = 400, means {f'{shift:g} apart' if shift else 'equal'}",
            mmd(16, shift),
            lambda rng, shift=shift: scored(
                KID(subsets=1, subset_size=400),
                rng,
                rng.normal(shift, 1, (400, 16)),
                rng.normal(size=(400, 16)),
            ),
            200,
        )
    yield Case(
        "precision",
        "D = 16, N = M = 400, equal",
        None,
        lambda rng: scored(PRC(), rng, rng.normal(size=(400, 16)), rng.normal(size=(400, 16))),
        60,
    )
    for label in ("density", "coverage"):
        for shift in (0.0, 0.3):
            yield Case(
                label,
                f"D = 16, N = M = 400, means {f'{shift:g} apart' if shift else 'equal'}",
                1.0 if label == "density" and not shift else None,
                lambda rng, label=label, shift=shift: scored(
                    DensityCoverage(),
                    rng,
                    rng.normal(shift, 1, (400, 16)),
                    rng.normal(size=(400, 16)),
                    label,
                ),
                200,
            )
    for splits in (1, 10):
        yield Case(
            "is",
            f"N = 1,000, 10 classes, {splits} splits",
            inception_truth(),
            lambda rng, splits=splits: scored(
                IS(splits=splits), rng, 2 * rng.normal(size=(1000, 10)), np.zeros((10, 10))
            ),
            200,
        )
    for label, truth in (("memorised", 1.0), ("nearest-ratio", 1.0)):
        yield Case(
            label,
            "N = 1,000, M = 397, equal distances",
            truth,
            lambda rng, label=label: measured(
                Neighbours().estimates(
                    {"distance": rng.gamma(9, 1, 1000), "test-distance": rng.gamma(9, 1, 397)}
                )[label],
                rng,
                200,
            ),
            500,
        )
    for factor in (1.0, 0.9):
        yield Case(
            "ct",
            "N = 1,000, M = 397, three cells, "
            f"{'equal distances' if factor == 1 else 'samples 10 % nearer'}",
            0.0 if factor == 1 else None,
            lambda rng, factor=factor: measured(copying(rng, factor), rng, 200),
            500,
        )


def copying(rng: Generator, factor: float) -> Estimate:
    """Return C_T where the distances of samples are ``factor`` times those of test images."""
    distances = (
        factor * rng.gamma(9, 1, 1000),
        rng.integers(0, 3, 1000),
        rng.gamma(9, 1, 397),
        rng.integers(0, 3, 397),
    )
    return Estimate(Resampling(data_copying(*distances), (1000, 397)))


def inception_truth() -> float:
    """Return the score of infinitely many logits N(0, 4) over 10 classes."""
    logits = torch.from_numpy(2 * np.random.default_rng(0).normal(size=(200_000, 10)))
    log_p = logits.log_softmax(dim=1)
    return 10 * math.exp(float((log_p.exp() * log_p).sum(dim=1).mean()))


# --- differences ----------------------------------------------------------------------------------


def compared(
    a: Resampling, b: Resampling, rng: Generator, *, paired: bool = True
) -> PairedDifference:
    """Return the difference of two models with its interval, as a comparison does."""
    value_a, value_b = (
        float(one.statistic(*(np.arange(n)[None] for n in one.sizes))[0]) for one in (a, b)
    )
    return bootstrap_difference(
        a, b, value_a - value_b, paired=paired, seed=int(rng.integers(2**63)), resamples=1000
    )


def difference_of_shares(rng: Generator, a: float, b: float) -> PairedDifference:
    """Return the difference of two accuracies on the same images, of which both find the same ones
    hard.
    """
    hard = rng.random(397)
    flips = rng.random((2, 397)) < 0.01
    right = [((hard < p) ^ flip) for p, flip in zip((a, b), flips, strict=True)]
    return compared(share(right[0]).resampling, share(right[1]).resampling, rng)


def difference_of_aurocs(rng: Generator, shift: float) -> PairedDifference:
    """Return the difference of two AUROCs on the same images, equal in truth."""
    inside, outside = rng.normal(size=397), rng.normal(size=397)
    of_models = [
        ranking.auroc_resampling(
            shift + 0.8 * inside + 0.6 * rng.normal(size=397),
            0.8 * outside + 0.6 * rng.normal(size=397),
        )
        for _ in range(2)
    ]
    return compared(*of_models, rng)


def difference_of_errors(metric: ECE, rng: Generator) -> PairedDifference:
    """Return the difference in calibration error of two calibrated models, one surer."""
    of_models = [calibration_of(metric, rng, 397, 0.0, lowest).resampling for lowest in (0.55, 0.9)]
    return compared(*of_models, rng)


def difference_of_fids(rng: Generator) -> PairedDifference:
    """Return the difference of two FIDs from their own intervals."""
    values = [
        scored(FID(), rng, rng.normal(shift, 1, (400, 16)), rng.normal(size=(400, 16)))
        for shift in (0.3, 0.3)
    ]
    return from_intervals(*((value.value, value.low, value.high) for value in values))  # type: ignore[arg-type]


def difference_of_means(rng: Generator, *, paired: bool) -> PairedDifference:
    """Return the difference of two means of exponential numbers."""
    hard = rng.exponential(size=397)
    a, b = (
        hard * rng.exponential(size=397) if paired else rng.exponential(size=397) for _ in range(2)
    )
    return compared(mean(a).resampling, mean(b).resampling, rng, paired=paired)


def over_seeds(rng: Generator) -> PairedDifference:
    """Return the difference of three seeds."""
    found = seed_difference(list(rng.normal(size=3)), list(rng.normal(size=3)))
    assert found
    return found


def differences() -> Iterator[Case]:
    """Yield differences of two models."""
    for a, b in ((0.9, 0.88), (0.995, 0.995)):
        truth = 100 * 0.98 * (a - b)
        situation = f"N = 397, p = {a} and {b}, paired"
        yield Case(
            "accuracy (difference)",
            situation,
            truth,
            lambda rng, a=a, b=b: difference_of_shares(rng, a, b),
        )
    for paired in (True, False):
        yield Case(
            "nll (difference)",
            f"N = 397, exponential, {'paired' if paired else 'unpaired'}",
            0.0,
            lambda rng, paired=paired: difference_of_means(rng, paired=paired),
        )
    for shift in (1.0, 4.5):
        yield Case(
            "auroc (difference)",
            f"N = M = 397, N({shift:g}, 1) and N(0, 1), paired",
            0.0,
            lambda rng, shift=shift: difference_of_aurocs(rng, shift),
            300,
        )
    for metric in (ECE(), DebiasedECE()):
        yield Case(
            f"{metric.name} (difference)",
            "N = 397, calibrated, confidence uniform in .55 to 1 and in .9 to 1",
            0.0,
            lambda rng, metric=metric: difference_of_errors(metric, rng),
        )
    yield Case(
        "fid (difference)", "D = 16, N = M = 400, from both intervals", 0.0, difference_of_fids, 200
    )
    yield Case("over seeds (difference)", "3 seeds, normal", 0.0, over_seeds)


# --- the table ------------------------------------------------------------------------------------


def cases() -> list[Case]:
    """Return all rows."""
    return [*simple(), *calibration(), *shift(), *detection(), *generation(), *differences()]


def row(case: Case, factor: float = 1.0) -> str:
    """Simulate, and return a line of the table."""
    streams = np.random.default_rng(zlib.crc32(f"{case.value} {case.situation}".encode())).spawn(
        max(2, round(factor * case.simulations))
    )
    found = [case.draw(rng) for rng in streams]
    own = float(np.mean([one.value for one in found]))

    def covered(truth: float | None) -> str:
        if truth is None:
            return "not known"
        inside = [
            one.low is not None and one.high is not None and one.low <= truth <= one.high
            for one in found
        ]
        return f"{100 * np.mean(inside):.1f} %"

    truth = "not known" if case.truth is None else f"{case.truth:.4g}"
    texts = (
        case.value,
        case.situation,
        truth,
        f"{own:.4g}",
        covered(case.truth),
        covered(own),
        str(len(found)),
    )
    return f"| {' | '.join(texts)} |"


HEAD = (
    "value",
    "situation",
    "truth",
    "its own mean",
    "covers the truth",
    "covers its own mean",
    "simulations",
)


def main(arguments: Iterable[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="names of values, separated by commas")
    parser.add_argument("--simulations", type=float, default=1.0, help="a factor of their numbers")
    options = parser.parse_args(list(arguments))
    torch.set_num_threads(1)
    chosen = [case for case in cases() if not options.only or case.value in options.only.split(",")]
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for case in chosen:
        begin = time.perf_counter()
        print(row(case, options.simulations), flush=True)
        print(f"{case.value}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Whether images made against a model without refinement deceive the same model with it.

Grathwohl et al. (2020), arXiv:1912.03263, Appendix G, Figure 17: made against JEM-0, shown to JEM-1 and JEM-10.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jembench.attacks.eps import parse_eps
from jembench.attacks.threat import VERIFICATIONS
from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.attacked import CURVE, Attacked, Shard, choose, in_shards, measured, verified, withstands
from jembench.metrics.attacks import Transfer
from jembench.metrics.estimates import Arrays, Estimate, share
from jembench.metrics.robustness import descend
from jembench.sampling.chain import require_chains
from jembench.stats import Statistic


def transfer(metric: Transfer, evaluation: Evaluation) -> Measurement:
    """Show the refined model what was made against the unrefined one."""
    found = _shown(metric, evaluation)
    shown, deceived = found.arrays["found-source"], found.arrays["found"]
    details = {
        "misclassified": int((deceived & ~shown).sum()),
        "shown": int(shown.sum()),
        "refined-back": int((shown & ~deceived).sum()),
    }
    return measured(metric, evaluation, found, details, searched=False)


def _shown(metric: Transfer, evaluation: Evaluation) -> Attacked:
    """The answers of the refined model, given now or at an earlier time.

    Raises:
        NotApplicable: if the model was trained without chains.
    """
    require_chains(evaluation.sampler)  # before the images are made
    defence = metric.defence
    source = descend(metric.source, evaluation)
    done = choose(evaluation, source.images)
    row = {index: place for place, index in enumerate(done.index.tolist())}

    def show(shard: Shard) -> Mapping[str, Tensor]:
        rows = [row[index] for index in shard.index.tolist()]
        made, distance = (
            torch.from_numpy(source.arrays[key][rows]).to(shard.x.device)
            for key in ("adversarial", f"distance-{metric.norm}")
        )
        claimed = torch.from_numpy(source.arrays["found"][rows]).to(shard.x.device)
        target, fresh = (
            defence.target(evaluation, f"{look} {metric.name} {metric.norm} {shard.number}")
            for look in ("look", "verify")
        )
        wrong = target.wrong_share(shard.x, shard.y, VERIFICATIONS) > 0.5
        shown = claimed & (distance > 0) & ~wrong
        images = torch.where(shown[:, None, None, None], made, shard.x)
        return {**verified(fresh, shard, images, shown | wrong), "found-source": shown}

    found = in_shards(metric, evaluation, done, show)
    as_it_is = {  # what the model withstands without refinement, to be shown beside
        f"{key}-as-it-is": source.arrays[key][: found.images] for key in ("found", f"distance-{metric.norm}")
    }
    return Attacked({**found.arrays, **as_it_is}, source.wanted)


def transfer_estimates(metric: Transfer, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of images; of two models' images the same may be shown or not."""
    label, shown, found = f"{metric.name}-{metric.norm}", arrays["found-source"], arrays["found"]
    deceived: dict[str, Estimate] = {}
    if shown.any():
        among = Resampling(_share_among(found, shown), (len(shown),), (0.0, 100.0))
        deceived[label] = share(found[shown], "lower")._replace(resampling=among)
    return deceived | {
        f"{label}@{eps}": share(withstands(arrays, metric.norm, parse_eps(eps)), "higher") for eps in CURVE[metric.norm]
    }


def _share_among(which: NDArray[np.bool_], among: NDArray[np.bool_]) -> Statistic:
    """The share in % of some images among others, as a statistic of all; 0 where none of the others was drawn."""
    return lambda indices: 100 * (which & among)[indices].sum(axis=1) / np.maximum(among[indices].sum(axis=1), 1)

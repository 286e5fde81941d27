"""What figures call a trained model, in their titles and in the names of their files."""

from __future__ import annotations

from collections.abc import Sequence

from jembench.catalog.spec import slug, stable_hash
from jembench.experiment import recipe as recipes
from jembench.experiment.plan import PRETRAINED
from jembench.experiment.sweep import bare_name
from jembench.store.outcome import FitKey

_LONGEST = 80  # letters, for people; file systems allow more


def model_of(fit: FitKey) -> str:
    """The model, with its recipe where that is not the usual one of the dataset."""
    model, *recipe = _parts(fit)
    return f"{model} ({recipe[0]})" if recipe else model


def identity(fit: FitKey) -> tuple[object, ...]:
    """What a person tells trained models apart by."""
    return fit.dataset, fit.model, fit.recipe, fit.seed


def title_of(fit: FitKey) -> str:
    """The trained model, in full."""
    return f"{model_of(fit)} on {fit.dataset}, seed {fit.seed}"


def stem(figure: str, fits: Sequence[FitKey], limit: int | None = None) -> str:
    """The name, without ending, of a figure of models that were trained on one dataset: ``auroc-digits-jem-glow-s0``.

    The seed is in it if all have the same one. A name from which letters had to be left out has a hash of what it
    stands for, so that no two figures share one.
    """
    parts = [figure, fits[0].dataset, *dict.fromkeys(part for fit in fits for part in _parts(fit))]
    seeds = {fit.seed for fit in fits}
    ending = [f"s{seed}" for seed in seeds if len(seeds) == 1] + ([] if limit is None else [f"limit{limit}"])
    slugs = [slug(part, _LONGEST) for part in parts]
    readable = "-".join(slugs)
    if len(readable) > _LONGEST or slugs != [part.replace(":", "-", 1).replace(",", "-") for part in parts]:
        readable = f"{readable[:_LONGEST].rstrip('-')}-{stable_hash(parts)[:6]}"
    return "-".join((readable, *ending))


def _parts(fit: FitKey) -> list[str]:
    dataset = bare_name(fit.dataset)
    usual = recipes.made_for(bare_name(fit.model), dataset) or recipes.default_for(dataset)
    return [fit.model] if fit.recipe in (usual, PRETRAINED) else [fit.model, fit.recipe]

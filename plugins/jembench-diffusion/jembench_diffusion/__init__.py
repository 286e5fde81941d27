"""Class-conditional diffusion models (Ho et al., 2020; Li et al., 2023) as jembench models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from jembench.plugin import Names, Range, SpecError

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_diffusion.model import DiffusionClassifier

Count = Annotated[int, Range(least=1, most=10_000)]


def diffusion(
    data: DataSpec,
    *,
    net: Annotated[str, Names()] = "unet-64",
    timesteps: Annotated[int, Range(least=2, most=10_000)] = 1000,
    schedule: Literal["linear", "cosine", "log-snr"] = "linear",
    weighting: Literal["bound", "uniform"] = "bound",
    evaluations: Count = 25,
    sampling_steps: Count = 50,
    eta: Annotated[float, Range(least=0, most=1)] = 0.0,
) -> DiffusionClassifier:
    """A class-conditional diffusion model, which classifies by its errors in predicting noise.

    ``net`` is ``unet-WIDTH``, ``mlp-WIDTH`` or the import path of a function that is called with
    the DataSpec and returns a module eps(x_t, t, y). ``weighting=bound`` gives log p(x|y) as the
    variational bound; ``uniform`` gives the logits of Li et al. (2023), and no density. Either
    takes ``evaluations`` passes for each class. Samples take ``sampling_steps`` steps: of DDIM with
    ``eta=0``, ancestral ones with ``eta=1``.
    """
    from jembench_diffusion.model import DiffusionClassifier, DiffusionDensity
    from jembench_diffusion.networks import build

    if data.num_classes < 1:
        raise SpecError(
            f"{data.name} is unlabelled, and diffusion needs labels. Choose a labelled dataset."
        )
    if max(evaluations, sampling_steps) > timesteps:
        raise SpecError(
            f"evaluations of diffusion is {evaluations} and sampling_steps {sampling_steps}; "
            f"neither may exceed the timesteps, {timesteps}."
        )
    made = DiffusionDensity if weighting == "bound" else DiffusionClassifier
    network = build(net, data, timesteps)
    return made(data, network, timesteps, schedule, evaluations, sampling_steps, eta)

"""The import of weights that were trained elsewhere, as a fit."""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from jembench.catalog import discovery, registry, trust
from jembench.catalog.spec import Spec
from jembench.data.datasets import count, make
from jembench.errors import CheckpointError, Remark, SpecError
from jembench.experiment.plan import PRETRAINED, FitPlan, plan_fit
from jembench.experiment.stored import imports
from jembench.files import digest
from jembench.interfaces import Dataset, DataSpec, Import
from jembench.models import ranges
from jembench.models.capabilities import capabilities
from jembench.models.importing import fit_together, non_finite
from jembench.running import fits
from jembench.store import checkpoint
from jembench.store.store import Store


class Imported(NamedTuple):
    """The fit that :func:`import_fit` wrote."""

    fit: FitPlan
    content: Import
    parameters: int  # number of values in the weights


def import_fit(
    importer: str,
    file: Path,
    model: str | None,
    dataset: str,
    name: str,
    store: Store,
    *,
    form: str | None = None,
) -> Imported:
    """Write weights that were trained elsewhere to a store, as a fit.

    Args:
        importer: the spec of the component that reads the file.
        file: the file of the weights; no code in it is run.
        model: the spec of the model; None: the file names it.
        dataset: the spec of the dataset that the model was trained on.
        name: the fit's name in commands.
        store: receives the fit.
        form: options of ``adapted`` for the model's input and outputs; None: they are jembench's.

    Raises:
        CheckpointError: if the file is damaged or does not fit; the message lists all misfits.
        SpecError: if a component does not exist, the name is taken, or the file names code that the
            user did not name.
        StoreError: if the store cannot be written.
    """
    images = make(registry.resolve("datasets", dataset), download=True)
    data = images.spec
    if form and model:
        model = Spec(f"adapted:{form}").with_(model=str(Spec(model)))
    reader = registry.resolve("importers", importer)
    content = reader.make().read(file, data, model)
    trust.refuse_code([content.model, content.sampler], str(file))
    sha256 = digest(file)
    settings = [f"source={sha256[:12]}"]
    if content.sampler:
        settings.append(f"chains.sampler={content.sampler}")
    fit = plan_fit(content.model, dataset, PRETRAINED, settings)

    # the name must be valid, and no other model's
    names = {component.name for component in discovery.components("models")}
    namesakes = {record.key.id for record in imports(store, name)}
    if name in names or namesakes - {fit.key.id}:
        raise SpecError(f"{name!r} is the name of another model. Choose another with --name.")
    if not _is_name(name):
        raise SpecError(
            f"{name!r} cannot be a name: it has more than letters, digits, - and _. Choose another "
            "with --name."
        )

    # the weights and the chains
    made = fit_together(content, data, file)
    _remark_on_range(made, images)
    kept: Mapping[str, Tensor] = {}
    if content.sampler:
        kept = _chains(content, data, file)
    folder = store.fit_folder(fit.key)
    checkpoint.write(folder / "sampler.safetensors", kept)
    checkpoint.write(folder / "model.safetensors", dict(made.state_dict()))
    record = fits.new_record(fit)
    source = {"name": name, "importer": str(reader.component), "file": file.name, "sha256": sha256}
    about = {**record.provenance, "imported": source}
    store.write_fit(
        record._replace(status="imported", files=fits.digests(folder), provenance=about)
    )
    return Imported(fit, content, sum(parameter.numel() for parameter in made.parameters()))


def _remark_on_range(model: nn.Module, images: Dataset) -> None:
    """Remark on another range of images in which a classifier is better."""
    if "logits" not in capabilities(model) or count(images, "train") == 0:
        return
    train = images.split("train")
    if train.labels is None:
        return
    correct = ranges.correct(model, ranges.judged(train), images.spec, torch.device("cpu"))
    if text := ranges.remark(correct, ranges.IMPORTED):
        warnings.warn(text, Remark, stacklevel=2)


def _is_name(text: str) -> bool:
    """Return whether a text is a spec without options."""
    with suppress(SpecError):
        return Spec(text).name == text and ":" not in text
    return False


def _chains(content: Import, data: DataSpec, file: Path) -> Mapping[str, Tensor]:
    """Return the state of the sampler with the file's chains.

    Raises:
        CheckpointError: if the chains do not fit the sampler, or are not finite.
    """
    sampler = registry.resolve("samplers", content.sampler).make(data)
    sampler.load_state_dict(content.chains)
    state: Mapping[str, Tensor] = sampler.state_dict()
    if wrong := non_finite(content.chains, sampler):
        raise CheckpointError(
            f"The chains in {file} hold numbers that are not finite, and nothing was imported: "
            f"{', '.join(wrong)}. Take them out, or import weights of a training that did not "
            "diverge."
        )
    return state

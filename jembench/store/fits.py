"""The folder of a fit: record, training files and checkpoints.

Imports no torch.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from jembench.catalog.spec import Spec, format_value, stable_hash, without_digest
from jembench.catalog.validation import Range
from jembench.errors import CheckpointError, DamagedError, StoreError
from jembench.interfaces.evaluation import Stability
from jembench.store import records, tensors
from jembench.store.layout import id_of
from jembench.store.outcome import FitKey

RECORD = "fit.json"
"""The file of a fit's folder that is written last: without it, training is not complete."""

WEIGHTS = ("model.safetensors", "sampler.safetensors")
"""The files of a fit's folder with the chosen model and its chains."""

HISTORY = "history.csv"
"""The file of a fit's folder with the losses and energies of its training."""

INTERVENTIONS = "interventions.json"
"""The file of a fit's folder with the interventions of the guard, if there were any."""

UNREADABLE = (OSError, StoreError, CheckpointError)
"""The errors of reading a record or a file of tensors that is missing, damaged or of a newer
version.
"""


class FitRecord(NamedTuple):
    """The record of a trained model, ``fit.json``."""

    key: FitKey
    status: Literal["done", "imported", "failed"]
    reason: str  # why training failed
    recipe: Mapping[str, Any]  # every field
    iteration: Annotated[int, Range(least=0)]  # of the kept weights
    validation_accuracy: float | None
    seconds: float  # spent in training iterations
    iteration_seconds: Sequence[float]  # in each window of the last attempt but the first
    interventions: Sequence[str]  # of the guard against divergence, a sentence each
    provenance: Mapping[str, Any]
    identity: Mapping[str, Any] = MappingProxyType({})  # the values whose hash is the family
    stability: Stability | None = None  # None: the guard was off, or had no energies to judge
    files: Mapping[str, str] = MappingProxyType({})  # SHA-256 of each file that training left

    @property
    def import_name(self) -> str:
        """The name under which the weights were imported.

        The name is "" if no weights were imported, or if it is not one line of text.
        """
        source = self.provenance.get("imported")
        if self.status == "imported" and isinstance(source, Mapping):
            name = source.get("name")
            if isinstance(name, str) and name.isprintable():
                return name
        return ""

    @property
    def dataset_id(self) -> str:
        """The hash of the dataset's identity, which does not depend on the place of its files."""
        return stable_hash(self.identity.get("dataset"))

    @property
    def asked(self) -> str:
        """The name of the import, or the model's spec as asked for."""
        with suppress(AttributeError, KeyError, TypeError):  # the file may lack them
            arguments = self.identity["model"]["arguments"]
            return self.import_name or asked(self.key.model, arguments, self.recipe["model"])
        return self.import_name or self.key.model


def asked(model: Spec, arguments: Mapping[str, Any], of_recipe: Mapping[str, str]) -> Spec:
    """Return a model's spec as asked for, without its recipe's options.

    Args:
        model: the canonical spec.
        arguments: all its options, defaults included.
        of_recipe: the options of models that the recipe sets.
    """
    options = dict(model.options)
    for key in of_recipe.keys() & arguments.keys():
        value = options.pop(key, format_value(arguments[key]))
        if value != of_recipe[key]:  # the recipe was overridden
            options[key] = value
    return Spec.of(without_digest(model.name), options)


def read(folder: Path) -> FitRecord:
    """Read the record of a fit.

    Raises:
        FileNotFoundError: if there is no record.
        DamagedError: if the record is damaged, or its fit is not the fit of the folder's name.
        StoreError: if the record was written by a newer version.
    """
    path = folder / RECORD
    record = records.read(path).read(FitRecord)
    if record.key.id != id_of(folder):
        raise DamagedError(
            f"{path} is the record of the fit {record.key.id}, in the folder of {id_of(folder)}."
        )
    files = {name: sha for name, sha in record.files.items() if Path(name).name == name}
    return record._replace(files=files)


def weights_digest(folder: Path) -> str:
    """Return the digest of the weights of a trained model.

    Raises:
        CheckpointError: if the file is missing, or its header is damaged.
    """
    return tensors.read_seal(folder / WEIGHTS[0]).digest


def age(folder: Path) -> int:
    """Return an unfinished training's last saved iteration; -1: there is none."""
    return max(map(tensors.age_of, folder.glob("checkpoint-*.safetensors")), default=-1)

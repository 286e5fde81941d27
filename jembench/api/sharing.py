"""The sharing of trained models between stores, folders, archives and the hub."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from jembench.api.arguments import checked
from jembench.catalog import registry, trust
from jembench.errors import JembenchError, SpecError, Unavailable
from jembench.experiment.plan import CellPlan, plan_again
from jembench.experiment.twins import between
from jembench.files import copy
from jembench.report.card import LICENSE, card
from jembench.store import hub, manifest, share
from jembench.store.fits import FitRecord
from jembench.store.merge import merge
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import Store
from jembench.store.walk import FileFinding


class Pushed(NamedTuple):
    """A model that was shared."""

    fit: FitKey
    files: int
    size: int  #: in bytes
    where: str


class Fetched(NamedTuple):
    """A model that was fetched."""

    fit: FitKey
    results: int
    findings: list[FileFinding]  #: a finding for each fit and file that was copied or kept
    differences: list[str]  #: between the installed components and the model's


@checked
def push(
    store: Store,
    fit: FitKey,
    to: str,
    *,
    chains: bool = True,
    license: str = LICENSE,
    private: bool = False,
) -> Pushed:
    """Write a trained model with results and model card.

    The target is a folder, a zip archive or a repository.

    Args:
        store: that holds the model.
        fit: the model.
        to: a new or empty folder, a file that ends in .zip, or ``hf://user/name``.
        chains: True to share the chains of training too.
        license: of the weights, for the card.
        private: True to create a private repository.

    Raises:
        SpecError: if there is nothing to share, or the folder is not empty.
        DamagedError: if a file of the store is damaged.
        Unavailable: if the hub cannot be reached or refuses.
    """
    is_hub, path = to.startswith(hub.PREFIX), Path(to)
    if is_hub:
        hub.parse(to)
    elif path.suffix != ".zip" and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SpecError(
            f"{path} exists and is no empty folder. Name a new one, a file that ends in .zip, or "
            "hf://..."
        )
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, "model")
        record, cells = share.build(store, fit, folder, chains=chains)
        name = to if is_hub else path.name
        text = card(record, cells, folder, name, license)
        (folder / manifest.CARD).write_text(text, encoding="utf-8")
        parts = manifest.write(folder)
        size = sum(part.stat().st_size for part in parts)
        if is_hub:
            to = hub.upload(folder, to, private=private)
        elif path.suffix == ".zip":
            share.write_zip(folder, path)
        else:
            for part in parts:
                copy(part, path / part.relative_to(folder))
    return Pushed(fit, len(parts), size, to)


def fetch(source: str, store: Store) -> Fetched:
    """Copy a shared model into a store.

    Args:
        source: a folder, a zip archive or ``hf://user/name``, optionally followed by ``@revision``.
        store: that receives the model; existing files are kept.

    Raises:
        SpecError: if the source is no shared model, or names code that is not installed.
        DamagedError: if a file differs from the shared one.
        Unavailable: if the hub cannot be reached or refuses.
    """
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if source.startswith(hub.PREFIX):
            there = hub.download(source)
            record = share.unpack(there, folder, source, within=there.parent.parent)
        else:
            record = share.unpack(Path(source), folder)
        shared = Store(folder)
        cells = shared.cells()
        metrics = [cell.metric for cell in cells]
        trust.refuse_code([record.key.model, record.key.dataset, record.recipe, *metrics], source)
        findings = merge(shared, store)
    return Fetched(record.key, len(cells), findings, list(_differences(record, cells, source)))


def _differences(record: FitRecord, cells: Iterable[Cell], source: str) -> Iterable[str]:
    """Yield how installed components differ from a shared fit's."""
    try:
        plan = plan_again(record, record.key.dataset, source, ())
        if plan.key.id != record.key.id:
            parts = "; ".join(between(record, plan))
            yield (
                f"The model was trained with other code or options than are installed here "
                f"({parts}): a run trains it again."
            )
            return
        for cell in cells:
            metric = registry.resolve("metrics", cell.metric)
            planned = CellPlan(fit=plan, metric=metric, limit=cell.limit, split=cell.split)
            if planned.id != cell.id:
                yield (
                    f"{cell.metric} was measured by other code than is installed here: a run "
                    "measures it again."
                )
    except Unavailable as error:
        yield f"The results can be reported; the model is used once its data are here. {error}"
    except JembenchError as error:
        yield f"The model cannot be used or measured here: {error}"

"""The model card of a trained model that is shared."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jembench.report.formats import in_markdown
from jembench.report.rows import Row, rows
from jembench.report.table import row_cell
from jembench.store.fits import FitRecord
from jembench.store.manifest import MANIFEST
from jembench.store.outcome import Cell

LICENSE = "unknown"
"""The licence in a card whose author names none, a word that the hub knows."""


def card(
    of: FitRecord, cells: Sequence[Cell], folder: Path, source: str, license: str = LICENSE
) -> str:
    """Return a model card in Markdown.

    The front matter is YAML, as the Hugging Face Hub reads it.

    Args:
        of: the record of the fit.
        cells: the fit's results, of which those on test images are shown.
        folder: of the shared model, with its pictures.
        source: the argument of ``jembench fetch``.
        license: of the weights.
    """
    from jinja2 import Environment

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, finalize=_plain
    )
    environment.filters["prose"] = _prose
    template = resources.files("jembench.report").joinpath("card.md.jinja").read_text()
    cells = [cell for cell in cells if cell.split == "test"]
    measured = [cell for cell in cells if cell.outcome.status == "ok"]
    pictures = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    provenance = _provenance(of)
    return environment.from_string(template).render(
        record=of,
        fit=of.key,
        model=of.key.model.name,
        dataset=of.key.dataset.name,
        license=license,
        rows=[_value(row) for row in rows(measured)],
        cells=cells,
        limits=sorted({cell.limit for cell in measured if cell.limit}),
        whole=any(not cell.limit for cell in measured),
        pictures=pictures,
        source=source,
        manifest=MANIFEST,
        provenance=provenance,
        hardware=_hardware(provenance["hardware"]),
        distributions=_distributions(of),
        recipe=list(_toml(of.recipe)),
    )


def _plain(value: Any) -> Any:
    """Return a text in one line without backticks; Markup stays."""
    from markupsafe import Markup

    if isinstance(value, str) and not isinstance(value, Markup):
        return " ".join(value.splitlines()).replace("`", "'")
    return value


def _prose(text: Any) -> Any:
    from markupsafe import Markup

    return Markup(in_markdown(str(text)))


def _value(row: Row) -> dict[str, Any]:
    """Return a value for the front matter.

    The hub accepts only finite numbers.
    """
    numbers = [number for number in (row.value, row.low, row.high) if number is not None]
    return {
        "type": row.metric.name,
        "of": row,
        "finite": all(map(math.isfinite, numbers)),
        "text": row_cell(row),
    }


def _provenance(record: FitRecord) -> dict[str, Any]:
    provenance = {"command": "not known", "python": "", **record.provenance}
    for name in ("packages", "hardware"):
        if not isinstance(provenance.get(name), Mapping):  # a foreign record may hold anything
            provenance[name] = {}
    return provenance


def _hardware(hardware: Mapping[str, Any]) -> str:
    text = str(hardware.get("device") or "a device that is not known")
    if hardware.get("processor"):
        text += f": {hardware['processor']}"
    if hardware.get("gpu"):
        text += f", {hardware['gpu']}"
    return text


def _distributions(record: FitRecord) -> list[Any]:
    """Return the distributions that the fit needs.

    A part without a distribution is named with its file.
    """
    from markupsafe import Markup

    parts = ["jembench"]
    for line in record.provenance.get("plugins", ()):
        part = str(line).partition(" [")[0]
        if not part.startswith("jembench "):
            parts.append(part)
    return [Markup(f"`{_plain(part)}`") for part in dict.fromkeys(parts)]


def _toml(fields: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the lines of a recipe file, without its name and overrides."""
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from _toml(value, f"{path}{key}.")
        elif value is not None and (path or key not in ("name", "overrides")):
            yield f"{path}{key} = {json.dumps(value, ensure_ascii=False)}"

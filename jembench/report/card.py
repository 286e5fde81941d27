"""The model card of a trained model that is shared: what it is, how good, how it was made and how
it is loaded.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jembench.catalog import spec
from jembench.report.formats import in_markdown
from jembench.report.rows import rows
from jembench.report.table import row_cell
from jembench.store.fits import FitRecord
from jembench.store.manifest import MANIFEST
from jembench.store.outcome import Cell

LICENSE = "unknown"
"""The licence of a card whose author names none; the hub knows the word."""


def card(
    of: FitRecord, cells: Sequence[Cell], folder: Path, source: str, license: str = LICENSE
) -> str:
    """Return a model card in Markdown. Its front matter is YAML, as the Hugging Face Hub reads it.

    Args:
        of: the fit.
        cells: its results.
        folder: of the shared model, with its pictures.
        source: what ``jembench fetch`` is to be given.
        license: of the weights.
    """
    from jinja2 import Environment
    from markupsafe import Markup

    def plain(value: Any) -> Any:
        """Return a text in one line that ends no code; Markup as it is."""
        is_text = isinstance(value, str) and not isinstance(value, Markup)
        return " ".join(value.splitlines()).replace("`", "'") if is_text else value

    measured = [cell for cell in cells if cell.outcome.status == "ok"]
    values = []
    for row in rows(measured):
        numbers = [number for number in (row.value, row.low, row.high) if number is not None]
        finite = all(map(math.isfinite, numbers))  # a hub takes no other numbers
        name, text = spec.parse(row.metric).name, row_cell(row)
        values.append({"type": name, "of": row, "finite": finite, "text": text})
    limits = {cell.limit for cell in measured if cell.limit}
    pictures = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    provenance = {
        "command": "not known",
        "python": "",
        "packages": {},
        "hardware": {},
        **of.provenance,
    }
    for name in ("packages", "hardware"):
        if not isinstance(provenance[name], Mapping):  # of a record that somebody else wrote
            provenance[name] = {}
    hardware = provenance["hardware"]
    device = str(hardware.get("device") or "a device that is not known")
    processor = f": {hardware['processor']}" if hardware.get("processor") else ""
    gpu = f", {hardware['gpu']}" if hardware.get("gpu") else ""
    # a part without a distribution is named with its file
    parts = [
        "jembench",
        *(str(line).partition(" [")[0] for line in of.provenance.get("plugins", ())),
    ]
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, finalize=plain
    )
    environment.filters["prose"] = lambda text: Markup(in_markdown(str(text)))
    return environment.from_string(
        resources.files("jembench.report").joinpath("card.md.jinja").read_text()
    ).render(
        record=of,
        fit=of.key,
        model=spec.parse(of.key.model).name,
        dataset=spec.parse(of.key.dataset).name,
        license=license,
        rows=values,
        cells=cells,
        limits=sorted(limits),
        whole=any(not cell.limit for cell in measured),
        pictures=pictures,
        source=source,
        manifest=MANIFEST,
        provenance=provenance,
        hardware=f"{device}{processor}{gpu}",
        distributions=dict.fromkeys(
            Markup(f"`{plain(part)}`") for part in parts if not part.startswith("jembench ")
        ),
        recipe=list(_toml(of.recipe)),
    )


def _toml(fields: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the lines of a recipe file, without its name and overrides."""
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from _toml(value, f"{path}{key}.")
        elif value is not None and (path or key not in ("name", "overrides")):
            yield f"{path}{key} = {json.dumps(value, ensure_ascii=False)}"

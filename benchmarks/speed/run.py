"""The speed of jembench, as ratios to a textbook implementation of the same work, timed in turns in
one run.

    python benchmarks/speed/run.py                                    # everything, on WRN-28-2
    python benchmarks/speed/run.py sampling rate --net wrn-28-10 --repeats 2 --steps 2
    python benchmarks/speed/run.py --format json > today.json

``textbook.py`` has the textbook implementation and its reasons. OMP_NUM_THREADS sets PyTorch's
threads.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import torch
from contests import IMAGES, Setting
from rich import box
from rich.console import Console
from rich.table import Table
from subjects import SUBJECTS, Row, Session
from turns import Spread, hardware

from jembench.models import devices
from jembench.running import provenance

WIDTH = 150  # of the table where there is no terminal


@click.command()
@click.argument("what", nargs=-1, type=click.Choice(SUBJECTS))
@click.option(
    "--net", "nets", multiple=True, default=["wrn-28-2"], show_default=True, help="Repeatable."
)
@click.option("--batch", default=64, show_default=True, help="Images of a batch.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda ...")
@click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    default="auto",
    show_default=True,
    help="Of our network in training and sampling.",
)
@click.option("--repeats", default=3, show_default=True, help="Turns.")
@click.option("--steps", default=20, show_default=True, help="Sampling steps of a chain.")
@click.option(
    "--images",
    default=IMAGES,
    type=click.IntRange(1, IMAGES),
    show_default=True,
    help="Images whose logits are computed.",
)
@click.option(
    "--scored",
    default=1000,
    type=click.IntRange(1, IMAGES),
    show_default=True,
    help="Images whose gradient norms are computed.",
)
@click.option(
    "--attacked",
    default=300,
    type=click.IntRange(1, 397),
    show_default=True,
    help="Images whose smallest eps is searched: foolbox takes some 10 s of each.",
)
@click.option(
    "--workers",
    type=int,
    help="Processes of each of the textbook's data loaders: 0 on a CPU, 4 on a GPU.",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def main(
    what: tuple[str, ...],
    nets: tuple[str, ...],
    device: str,
    precision: str,
    repeats: int,
    workers: int | None,
    form: str,
    **amounts: int,
) -> None:
    """Print how much faster than the textbook WHAT is: everything if left out."""
    place = devices.resolve(device)
    # The authors' implementation has 4. Beside a network that wants every core itself they were
    # slower than none.
    workers = (4 if place.type == "cuda" else 0) if workers is None else workers
    made_with = provenance.collect(str(place), [])
    runs = []
    for net in nets:
        runs.append(
            _measure(
                Setting(
                    net=net, device=str(place), precision=precision, workers=workers, **amounts
                ),
                what or SUBJECTS,
                repeats,
            )
        )
        if form == "table":
            _print(runs[-1], str(made_with["commit"]))
    if form == "json":
        click.echo(
            json.dumps({"provenance": made_with, "nets": list(map(_as_json, runs))}, indent=1)
        )


class Run(NamedTuple):
    """The measurements of one network, and the load of the CPU at the start and at the end."""

    setting: Setting
    repeats: int
    load_before: float
    load_after: float
    rows: list[Row]


def _measure(setting: Setting, subjects: Sequence[str], repeats: int) -> Run:
    before, rows = os.getloadavg()[0], []
    session = Session(setting, repeats, rates="rate" in subjects)
    for subject in subjects:
        click.echo(f"{setting.net}: {subject} ...", err=True)
        rows += session.rows(subject)
    return Run(setting, repeats, before, os.getloadavg()[0], rows)


def _as_json(run: Run) -> dict[str, Any]:
    """Return a run in JSON types, with spreads as median, low and high."""
    spreads = ("textbook", "ours", "ratio")
    rows = [
        row._asdict()
        | {name: value._asdict() for name in spreads if (value := getattr(row, name)) is not None}
        for row in run.rows
    ]
    return run._asdict() | {"setting": dataclasses.asdict(run.setting), "rows": rows}


def _print(run: Run, commit: str) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    load = f"load average {run.load_before:.1f} before, {run.load_after:.1f} after"
    heading = f"{hardware(run.setting.place)}, {load}; torch {torch.__version__}, jembench {commit}"
    console.print(heading, highlight=False)
    console.print(_table(run))


def _table(run: Run) -> Table:
    """Return the table of medians, and of ratios with their spreads."""
    setting = run.setting
    title = (
        f"{setting.net}, batch {setting.batch} of 3x32x32, {setting.steps} sampling steps: "
        f"median of {run.repeats} turns (min to max)"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("subject")
    table.add_column("of")
    for name in ("textbook", "ours", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("notes")
    for row in run.rows:
        ratio = (
            ""
            if row.ratio is None
            else f"{row.ratio.median:.2f} ({row.ratio.low:.2f} to {row.ratio.high:.2f})"
        )
        sides = (_figure(row, side) for side in (row.textbook, row.ours))
        notes = "; ".join(f"{name} {value:.4g}" for name, value in row.notes.items())
        table.add_row(row.subject, row.per, *sides, ratio, notes)
    return table


def _figure(row: Row, value: Spread) -> str:
    """Return a median in a suitable unit, with its spread if there is no ratio."""
    if row.measure == "percent":
        return f"{value.median:.0f} % ({value.low:.0f} to {value.high:.0f})"
    return f"{value.median:.3g} s" if value.median >= 1 else f"{1e3 * value.median:.3g} ms"


if __name__ == "__main__":
    main()

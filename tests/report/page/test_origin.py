"""Where the numbers of a page come from."""

import dataclasses
import json
import re

from jembench.api.results import Results
from jembench.interfaces import Value
from jembench.report.page.origin import commands_of, origin
from jembench.report.sections import build

VALUE = Value(1.0, 0.5, 2.0, 9)


def made(cell, **provenance):
    return dataclasses.replace(cell, provenance=provenance)


def texts(cells, title):
    (table,) = (table for table in origin(build(cells), cells, {}) if table.title == title)
    return [tuple(text.value for text in row) for row in table.rows]


def test_each_command_with_when_it_began_to_measure_and_how_much(cell):
    late, early = "2026-11-23T09:30:00", "2026-11-23T09:10:59"
    cells = [
        made(cell("jem", accuracy=VALUE), command="run jem", time=late),
        made(cell("jem", "ece", ece=VALUE), command="run jem", time=early),
        made(cell("baseline", accuracy=VALUE), command="run baseline", time="2026-11-23T09:20:00"),
        cell("imported", accuracy=VALUE),
    ]
    assert texts(cells, "Commands") == [
        ("2026-11-23 09:10 UTC", "2", "run jem"),
        ("2026-11-23 09:20 UTC", "1", "run baseline"),
    ]


def test_a_number_leads_to_the_commands_of_its_seeds_alone(cell):
    cells = [
        made(cell(seed=0, accuracy=VALUE), command="run --seeds 0"),
        made(cell(seed=1, accuracy=VALUE), command="run --seeds 1"),
        made(cell("jem", "ece", ece=VALUE), command="run --metrics ece"),
    ]
    assert commands_of(cells)["jem", "digits", "digits", "accuracy"] == ("run --seeds 0", "run --seeds 1")
    known = json.loads(re.search(r'id="known">(.*?)</script>', Results(cells).table("html"))[1])
    found = {known["texts"][record[4]]: [known["texts"][n] for n in record[-1]] for record in known["records"]}
    assert found == {"accuracy": ["run --seeds 0", "run --seeds 1"], "ece": ["run --metrics ece"]}


def test_hardware_and_versions_in_words(cell):
    hardware = {"device": "cuda:0", "processor": "Xeon", "cores": 16, "gpu": "H100", "cuda": "12.9"}
    both = [
        made(cell(metric=name), hardware=hardware, threads=4, commit="abc", python="3.11", packages={"torch": "2.15"})
        for name in ("a", "b")
    ]
    assert texts(both, "Software and hardware") == [
        ("", "2", "Xeon, 16 cores, H100, CUDA 12.9, device cuda:0, threads 4, commit abc", "python 3.11, torch 2.15")
    ]

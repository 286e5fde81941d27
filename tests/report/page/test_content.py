import dataclasses

from jembench.interfaces import Value
from jembench.report.page.content import origin

VALUE = Value(1.0, 0.5, 2.0, 9, "", "higher")


def test_a_trained_model_has_the_commands_and_the_environment_of_its_values(cell):
    made = {
        "hardware": {"gpu": "H100", "cuda": ""},
        "threads": 4,
        "python": "3.11",
        "packages": {"torch": "2.15"},
        "command": "run jem",
    }
    cells = [
        dataclasses.replace(
            cell(metric=metric, **{metric: VALUE}), provenance={**made, "time": time}
        )
        for metric, time in (("accuracy", "2026-11-23T09:30:00"), ("ece", "2026-11-23T09:10:59"))
    ]
    table = origin(cells, {})
    (row,) = table.rows
    assert [text.value for text in row] == [
        *("jem", "digits", "digits", "0", "", "", "2026-11-23 09:10 to 2026-11-23 09:30")
    ]
    assert {("fit", "jem0"), ("by", "run jem")} <= {*row[0].details}
    assert [note.text for note in table.footnotes] == [
        "gpu H100, threads 4, python 3.11, torch 2.15"
    ]

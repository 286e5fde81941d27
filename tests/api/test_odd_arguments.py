"""No argument of the API of a wrong type or out of range begins any work: each is refused in one
paragraph.
"""

import inspect
import itertools
import math

import numpy as np
import pytest
import torch

import jembench as jb
from jembench.errors import JembenchError

OBJECTS = {
    "an object": object(),
    "bytes": b"x",
    "a function": len,
    "a mixture": [1, "a", None],
    "a set": {"a"},
    "a null byte": "a\0b",
    "a long text": "x" * 5_000,
    "a number between": 1.5,
    "nan": math.nan,
    "infinity": math.inf,
    "minus one": -1,
    "a number of NumPy": np.int64(-3),
    "a tensor": torch.tensor(1.5),
}
EMPTY = {"an empty list": [], "an empty text": "", "an empty mapping": {}}
SWITCHES = {"true": True, "false": False}
HUGE = {"a huge number": 10**30, "zero": 0}
NUMBERS, NAMES = OBJECTS | EMPTY | SWITCHES | HUGE, OBJECTS | EMPTY | SWITCHES
HOURS = {
    name: value for name, value in NUMBERS.items() if not isinstance(value, torch.Tensor | int)
} | SWITCHES
HOURS = {**HOURS, "minus one": -1, "zero": 0}
del HOURS["a number between"]

OF_RUNS = {
    "models": NAMES,
    "datasets": NAMES,
    "seeds": OBJECTS | EMPTY | {"too many": itertools.count(), "a huge number": 10**30},
    "recipe": NAMES,
    "settings": {**OBJECTS, "a key": {1: 2}, "a value": {"epochs": []}},
    "names": {**OBJECTS, "a key": {1: "a"}, "a value": {"jem": 3}},
    "limit": NUMBERS,
    "split": NAMES,
    "store": NAMES,
    "device": {**NAMES, "an unknown one": "gpu"},
    "executor": NAMES,
    "max_hours": HOURS,
    "progress": OBJECTS | EMPTY | HUGE | {"none": None},
}
OF_RUN = {
    "suite": NAMES,
    "metrics": NAMES,
    "sampler": NAMES,
    "reference": OBJECTS,
    "skip_missing": OBJECTS | HUGE,
}
# in order: names of tests
OF_TRAIN = ("recipe", "settings", "store", "device", "max_hours", "progress")
# without the type checker of the tests
ECE, AUROC = map(inspect.unwrap, (jb.metrics.ece, jb.metrics.auroc))
FUNCTIONS = {
    jb.run: OF_RUNS | OF_RUN,
    jb.attack: {**OF_RUNS, "name": NAMES, "budget": NAMES, "norm": OBJECTS, "images": OBJECTS},
    jb.train: {name: OF_RUNS[name] for name in OF_TRAIN}
    | {"model": NAMES, "dataset": NAMES, "seed": OBJECTS | EMPTY}
    | {"on_window": {what: value for what, value in OBJECTS.items() if not callable(value)}},
    jb.compare: {
        "resamples": NUMBERS,
        "metrics": NAMES,
        "columns": NAMES,
        "limit": NUMBERS,
        "a": NAMES,
        "recipe": NAMES,
    },
    jb.check: {"baseline": NAMES, "suite": NAMES, "tolerance": OBJECTS, "strict": NAMES},
    jb.load: {
        "model": NAMES,
        "store": NAMES,
        "dataset": NAMES,
        "recipe": NAMES,
        "settings": OF_RUNS["settings"],
        "seed": OBJECTS,
        "device": NAMES,
    },
    jb.open_store: {"root": NAMES},
    jb.status: {"store": NAMES},
    ECE: {"logits": NAMES, "labels": NAMES, "bins": NUMBERS, "resamples": OBJECTS},
    AUROC: {"inside": NAMES, "outside": NAMES, "resamples": OBJECTS | EMPTY},
}
images = np.arange(160, dtype=np.uint8).reshape(10, 4, 4)
DATA = {"train": (images, np.arange(10) % 2), "test": (255 - images, np.arange(10) % 2)}
NET = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
BASES = {
    jb.run: {"suite": "hybrid", "models": NET, "datasets": DATA, "metrics": "accuracy"},
    jb.attack: {"name": "pgd", "models": NET, "datasets": DATA, "norm": "l2"},
    jb.train: {"model": NET, "dataset": DATA},
    jb.compare: {"a": "jem", "b": "baseline"},
    jb.check: {"baseline": "nowhere"},
    jb.load: {"model": NET, "dataset": DATA},
    ECE: {"logits": torch.zeros(4, 2), "labels": torch.arange(4) % 2},
    AUROC: {"inside": torch.arange(4.0), "outside": torch.arange(4.0)},
}
CASES = [(function, name) for function, arguments in FUNCTIONS.items() for name in arguments]


@pytest.mark.parametrize(
    ("function", "name"), CASES, ids=lambda part: getattr(part, "__name__", part)
)
def test_odd_values_are_refused_before_any_work(function, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    accepted, texts = [], {}
    for what, value in FUNCTIONS[function][name].items():
        try:
            function(**BASES.get(function, {}) | {name: value})
        except JembenchError as error:
            texts[what] = str(error)
        else:
            accepted.append(what)
    assert accepted == []
    assert not [what for what, text in texts.items() if "\n" in text or len(text) > 2_000]
    assert not list(tmp_path.iterdir())


def test_numbers_of_numpy_and_whole_hours_are_as_good_as_others(tmp_path):
    how = {
        "store": tmp_path,
        "limit": np.int64(4),
        "seeds": np.arange(1),
        "max_hours": 1,
        "progress": False,
    }
    (record,) = jb.run(**BASES[jb.run], **how)
    assert record.n == 4

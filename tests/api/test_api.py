import doctest
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import jembench as jb
from jembench.api import arguments, check, comparison, live, results, runs, status, stored
from jembench.api import fit as fit_module
from jembench.data.arrays import of_arrays
from jembench.errors import NotApplicable, SpecError, Unavailable
from jembench.experiment.plan import plan_again
from jembench.interfaces import DataSpec, Split

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* are also among its training:jembench.errors.Remark"
)
TINY = str(Path(__file__).parents[1] / "zoo" / "tiny.toml")
RUN = {"datasets": "zoo_of_tests:data", "recipe": TINY, "progress": False}
MODELS = ["zoo_of_tests:jem", "zoo_of_tests:classifier"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store with two models, each of two seeds, and what ``jembench.run`` returned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(TINY).parent)
        root = tmp_path_factory.mktemp("store")
        results = jb.run(
            "hybrid", models=MODELS, metrics="accuracy,ece", seeds=range(2), store=root, **RUN
        )
        yield root, results


@pytest.fixture
def store(folder, zoo_of_tests):
    return jb.open_store(folder[0])


@pytest.fixture
def fit(store):
    # by the recipe of its record, whose file is not installed
    return store.load("zoo_of_tests:jem")


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))


def arrays():
    images = np.arange(30 * 16, dtype=np.uint8).reshape(30, 4, 4)
    return {"train": (images, np.arange(30) % 3), "test": (images, np.arange(30) % 3)}


def test_importing_imports_nothing_heavy():
    script = (
        "import sys, jembench\nprint(*sorted({'torch', 'numpy', 'click', 'rich', 'pandas'} & "
        "sys.modules.keys()), *jembench.__all__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == jb.__all__


def test_every_public_name_exists_and_says_what_it_is():
    assert all(getattr(jb, name).__doc__ for name in jb.__all__)
    assert set(jb.__all__) <= set(dir(jb))
    with pytest.raises(AttributeError, match="nosuch"):
        _ = jb.nosuch


def test_the_arrays_of_a_script_are_not_written_to():
    data = arrays()
    dataset = of_arrays(data)
    dataset.split("train").images.zero_()
    assert data["train"][0].any()
    assert dataset.split("train").images.any()


def test_records_are_tidy(folder):
    _, results = folder
    assert {(record.model, record.label) for record in results} == {
        (m, v) for m in MODELS for v in ("accuracy", "ece")
    }
    assert all(
        record.seeds == (0, 1) and record.sd is not None and record.unit == "%"
        for record in results
    )


def test_a_data_frame_over_seeds_and_of_each(folder):
    _, results = folder
    mean = results.to_dataframe().set_index(["model", "label"])["value"]
    of_seeds = results.per_seed().to_dataframe()
    assert sorted(of_seeds["seed"].unique()) == [0, 1]
    assert of_seeds.groupby(["model", "label"])["value"].mean().to_dict() == pytest.approx(
        mean.to_dict()
    )


def test_without_pandas_the_remedy_is_said(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Unavailable, match=r"jembench\[pandas\]"):
        folder[1].to_dataframe()


def test_tables(folder):
    _, results = folder
    assert "zoo_of_tests:classifier" in str(results)
    assert results.table("csv").startswith("model,name,")
    assert results._repr_markdown_() == results.table("markdown")  # in a notebook
    assert repr(results) == "<Results: 4 rows of 2 models>"
    with pytest.raises(SpecError, match="nosuch"):
        results.table("nosuch")


@pytest.mark.parametrize(
    ("reference", "published"),
    [("none", set()), ([], set()), ("jem-iclr2020/figure4", {"Figure 4"})],
)
def test_the_published_tables_that_are_shown(folder, zoo_of_tests, reference, published):
    again = jb.run(
        "hybrid", models=MODELS, metrics="accuracy", store=folder[0], reference=reference, **RUN
    )
    for shown in (again, jb.open_store(folder[0]).results("hybrid", reference=reference)):
        sources = [row["source"] for row in shown.document.records()]
        assert {source.split(", ")[2] for source in sources if source} == published


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"suite": "nosuch"}, "nosuch"),
        ({"models": "nosuch"}, "nosuch"),
        ({"models": [object()]}, "torch.nn.Module"),
        ({"seeds": [-1]}, "seeds"),
        ({"settings": {"nosuch": 1}}, "nosuch"),
        ({"executor": "nosuch"}, "no executor named 'nosuch'"),
        ({"reference": "nosuch/table1"}, "no published table named 'nosuch/table1'"),
        ({"settings": ["epochs=5"]}, "mapping"),
        ({"sampler": "sgdl"}, "no sampler named 'sgdl'"),
        (
            {"sampler": "sgld", "metrics": "accuracy"},
            "None of the metrics accuracy takes a sampler",
        ),
        ({"datasets": (*arrays()["train"],)}, r'given as ndarray, .* Write {"train": \(x, y\)'),
        (
            {"datasets": TensorDataset(torch.zeros(2))},
            r"given as TensorDataset, .* with torch datasets in place of pairs",
        ),
        (
            {"datasets": {**arrays(), "test": DataLoader([1])}},
            "images of test are given as DataLoader. Write",
        ),
        ({"datasets": {"train": np.zeros((2, 4, 4), np.uint8)}}, "train and test"),
        ({"datasets": {**arrays(), "test": np.zeros((2, 4, 4))}}, "uint8"),
        ({"datasets": {**arrays(), "test": np.zeros((2, 5, 4), np.uint8)}}, "different shapes"),
        (
            {"datasets": {**arrays(), "test": (np.zeros((2, 4, 4), np.uint8), np.array([0]))}},
            "labels of test",
        ),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_done(
    arguments, message, zoo_of_tests, tmp_path
):
    keywords = {"suite": "hybrid", "store": tmp_path / "store", **RUN, **arguments}
    with pytest.raises(SpecError, match=message):
        jb.run(keywords.pop("suite"), **keywords)
    assert not (tmp_path / "store").exists()


def test_a_module_and_arrays_are_measured_as_they_are(tmp_path):
    model, data = net().train(), arrays()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (record,) = jb.run(
        "hybrid", models=model, datasets=data, metrics="accuracy", store=tmp_path, progress=False
    )
    images, labels = data["test"]
    with torch.no_grad():
        predicted = model(torch.from_numpy(images[:, None]).float() / 127.5 - 1).argmax(1).numpy()
    assert record.value == pytest.approx(100 * (predicted == labels).mean())
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_tensor_datasets_and_the_line_that_an_error_shows_are_arrays():
    images, labels = (torch.as_tensor(array) for array in arrays()["train"])
    data = TensorDataset(images, labels)
    x, y = next(iter(DataLoader(data, len(data))))
    of_pairs = live.dataset_spec({"train": (images, labels), "test": (images, labels)})
    assert of_pairs == live.dataset_spec({"train": data, "test": [x, y]})


class Bowl(torch.nn.Module):
    """A model that was not written for jembench: E(x) = |x - c|^2 / 2, without labels, trained
    elsewhere.
    """

    def __init__(self):
        super().__init__()
        self.register_buffer("c", torch.full((1, 4, 4), 0.25))

    def energy(self, x):
        return (x - self.c).square().flatten(1).sum(1) / 2


def test_a_sampler_is_given_to_any_energy_and_is_part_of_what_is_measured(tmp_path):
    def gap(sampler):
        how = {"models": Bowl(), "datasets": arrays(), "metrics": "energy-gap", "progress": False}
        (record,) = jb.run("hybrid", sampler=sampler, store=tmp_path, **how)
        return record

    assert "--sampler sgld:steps=100" in gap(None).reason
    ends = gap("sgld:steps=1,step_size=1,noise=0")  # one step of size 1 leads to the minimum
    images = torch.as_tensor(arrays()["test"][0])[:, None].float() / 127.5 - 1
    in_8_bits = (0.25 - (round(1.25 * 127.5) / 127.5 - 1)) ** 2 * 16 / 2
    assert ends.value == pytest.approx(Bowl().energy(images).mean().item() - in_8_bits, rel=1e-4)
    two_steps = gap("sgld:steps=2,step_size=1,noise=0")
    assert two_steps.protocol == ends.protocol.replace("steps=1", "steps=2") != ends.protocol
    assert len(list((tmp_path / "cells").iterdir())) == 3
    assert gap("sgld:noise=0,step_size=1.0,steps=2") == two_steps  # spelled in another way


def test_other_weights_and_other_layers_are_other_models():
    changed = net()
    with torch.no_grad():
        changed[1].bias[0] += 1
    deeper = torch.nn.Sequential(*net(), torch.nn.Dropout(0.5))
    names = [live.model_spec(model) for model in (net(), net(), changed, deeper)]
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_a_dataset_object(tmp_path):
    class Two:
        spec = DataSpec(name="two", shape=(1, 4, 4), num_classes=2)

        def split(self, name):
            return Split(
                torch.arange(64, dtype=torch.uint8).reshape(4, 1, 4, 4), torch.arange(4) % 2
            )

    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    results = jb.run(
        "hybrid", models=module, datasets=Two(), metrics="accuracy", store=tmp_path, progress=False
    )
    assert results[0].dataset.startswith("two-")
    assert results[0].n == 4


@pytest.mark.parametrize("given", [{"models": net()}, {"models": MODELS, "datasets": arrays()}])
def test_an_object_goes_to_no_other_process(given, zoo_of_tests, tmp_path):
    with pytest.raises(
        SpecError,
        match=r"is an object of this program, which no other process has. Leave executor= o",
    ):
        jb.run(
            "hybrid",
            store=tmp_path,
            executor="processes:jobs=1",
            **{"metrics": "accuracy", **RUN, **given},
        )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_module_that_can_be_trained_is_trained(zoo_of_tests, tmp_path):
    import zoo_of_tests as zoo

    module = zoo.classifier(None)
    fit = jb.train(module, dataset="zoo_of_tests:data", recipe=TINY, store=tmp_path, progress=False)
    assert not fit.plan.model.is_pretrained
    assert not torch.equal(fit.model.net[1].weight, module.net[1].weight)


def test_a_function_gets_each_window_and_may_end_the_training(zoo_of_tests, tmp_path):
    class Enough(Exception):
        pass

    def end(window):
        windows.append(window.done)
        if window.done == 12:
            raise Enough

    windows = []
    fit = {"dataset": "zoo_of_tests:data", "recipe": TINY, "store": tmp_path, "progress": False}
    with pytest.raises(Enough):
        jb.train("zoo_of_tests:classifier", **fit, on_window=end)
    assert windows == [3, 6, 9, 12]
    again = []
    jb.train("zoo_of_tests:classifier", **fit, on_window=lambda window: again.append(window))
    assert [window.done for window in again] == list(range(3, 37, 3))
    # the checkpoint of iteration 9 was continued, and validated its model
    assert {"loss", "validation_accuracy"} <= again[2].values.keys()
    jb.train("zoo_of_tests:classifier", **fit, on_window=end)  # trained already
    assert windows == [3, 6, 9, 12]


def test_a_loaded_model(fit):
    assert not fit.model.training
    assert fit.sampler is not None
    assert (fit.recipe.name, fit.recipe.epochs) == ("tiny", 4)
    images = Split(*_test_split()).images
    by_pixels, by_floats = fit.logits(images), fit.logits(images.float() / 127.5 - 1)
    torch.testing.assert_close(by_pixels, by_floats)
    torch.testing.assert_close(fit.energy(images), -by_pixels.logsumexp(1))
    torch.testing.assert_close(fit.logits(images.numpy()), by_pixels)


def _test_split():
    import zoo_of_tests as zoo

    return zoo.Shades().split("test")


def test_code_that_only_a_record_names_is_refused(store):
    record = store.store.read_fit(store.fits[0])
    record = record._replace(recipe=record.recipe | {"chains": {"sampler": "helper:build"}})
    with pytest.raises(
        SpecError, match="runs names helper:build, which runs code that you did not name"
    ):
        plan_again(record, record.key.dataset, "runs", [record.key.model])
    with pytest.raises(SpecError, match="runs names zoo_of_tests:"):
        plan_again(store.store.read_fit(store.fits[0]), record.key.dataset, "runs", ["jem"])


def test_samples_are_the_same_each_time(fit):
    new = fit.sample(6, steps=2)
    assert (new.images.shape, new.images.dtype) == ((6, 1, 4, 4), torch.uint8)
    assert torch.equal(new.images, fit.sample(6, steps=2).images)
    kept = fit.sample(6)
    assert kept.source == "buffer"
    assert torch.equal(kept.images, fit.sample(6).images)


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda fit: fit.logits(torch.zeros(2, 1, 5, 5)), SpecError),
        (lambda fit: fit.logits(torch.full((2, 1, 4, 4), 2.0)), SpecError),
        (lambda fit: fit.log_prob(torch.zeros(2, 1, 4, 4)), NotApplicable),
        (lambda fit: fit.sample(10_000), SpecError),
        (lambda fit: fit.sample(0), SpecError),
    ],
)
def test_what_a_model_cannot_do_is_refused(fit, use, error):
    with pytest.raises(error):
        use(fit)


@pytest.mark.parametrize("which", [{"model": "zoo_of_tests:jem", "seed": 7}, {"model": "baseline"}])
def test_a_model_that_is_not_there(store, which):
    with pytest.raises(SpecError, match=r"has no trained .* zoo_of_tests:jem on zoo_of_tests:data"):
        store.load(**which)


def test_a_model_is_loaded_by_its_settings(zoo_of_tests, tmp_path):
    how = {"recipe": TINY, "store": tmp_path}
    for settings in ({"epochs": 1}, {"epochs": 2}):
        jb.run("hybrid", models=MODELS[1], metrics="accuracy", settings=settings, **RUN | how)
    fit = jb.load(MODELS[1], dataset=RUN["datasets"], settings={"epochs": 2}, **how)
    assert fit.recipe.epochs == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.load(MODELS[0], setings={}),
        lambda store: jb.load(MODELS[0], store=store, setings={}),
        lambda store: jb.compare(*MODELS, store=store, columnes="ece"),
    ],
)
def test_an_unknown_argument_is_refused_with_the_known_ones(store, call):
    with pytest.raises(
        SpecError, match=r"no argument of \w+\(\) named .* Nearest: (settings|columns)"
    ):
        call(store)


def test_attack_and_compare(fit, store):
    results = jb.attack(
        "pgd", models=fit, norm=["l2"], images=2, restarts=1, steps=2, progress=False
    )
    assert {record.model for record in results} == {"zoo_of_tests:jem"}
    assert all(record.status == "ok" for record in results)
    compared = jb.compare(*MODELS, store=store, metrics=["accuracy"], resamples=100)
    assert [record["label"] for record in compared.records] == ["accuracy"]
    assert "accuracy" in compared._repr_markdown_()
    assert len(compared.to_dataframe()) == 1


def test_check(folder, store, tmp_path):
    root, _ = folder
    shutil.copytree(root, tmp_path / "baseline")
    checked = jb.check(tmp_path / "baseline", store=store, models=MODELS[0], columns="accuracy")
    assert (checked.passed, checked.exit_code) == (True, 0)
    assert [record["name"] for record in checked.records] == [f"accuracy of {MODELS[0]}"]
    assert repr(checked) == "<Check: 1 passed. The exit code is 0.>"
    assert "equal" in checked._repr_markdown_()
    with pytest.raises(SpecError, match=r"tolerance\.accuracy is -1; it must be at least 0"):
        jb.check(tmp_path / "baseline", store=store, tolerance={"accuracy": -1})


EXAMPLES = [arguments, check, comparison, fit_module, results, runs, status, stored]


@pytest.mark.parametrize("module", EXAMPLES, ids=lambda module: module.__name__)
def test_the_examples(module, fit, store, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {
        "fit": fit,
        "store": store,
        "results": folder[1],
        "images": _test_split()[0][:3],
        "model": net(),
        "arrays": arrays(),
        "folder": tmp_path / "runs",
        "name": MODELS[0],
        "other": MODELS[1],
        "data": RUN["datasets"],
        "recipe": TINY,
    }
    outcome = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0


def test_every_public_function_has_an_example():
    public = [jb.run, jb.attack, jb.train, jb.compare, jb.check, jb.load]
    public += [jb.open_store, jb.status]
    methods = [
        value
        for kind in (jb.Fit, jb.OpenStore)
        for name, value in vars(kind).items()
        if not name.startswith("_") and callable(value)
    ]
    assert all(">>>" in function.__doc__ for function in (*public, *methods))

"""Discovery without importing, and loading with errors that name whose fault it is.

Distributions are faked as ``NAME-VERSION.dist-info`` folders on ``sys.path``, see the fixture
``site``.
"""

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Annotated

import pytest
from torch.nn import SiLU

from jembench.catalog import discovery, options, registry
from jembench.catalog.validation import Range
from jembench.errors import Incompatible, PluginError, SpecError, Unavailable
from jembench.interfaces import API


def names(kind):
    return [component.name for component in discovery.components(kind)]


@pytest.mark.parametrize("entry", ["x" * 300, "nowhere"])
def test_a_folder_of_the_search_path_that_cannot_be_looked_at_holds_nothing(
    site, monkeypatch, entry
):
    site.install("zoo", "[jembench.models]\nlion = zoo:build")
    monkeypatch.setattr(sys, "path", [str(Path.cwd() / entry), *sys.path])
    discovery.catalogue.cache_clear()
    assert "lion" in names("models")


BROKEN = {
    "no-header": "zoo = zoo:build\n",
    "no-equals": "[console_scripts]\nzoo\n",
    "duplicate-option": "[console_scripts]\na = b:c\na = b:d\n",
    "duplicate-section": "[console_scripts]\na = b:c\n[console_scripts]\nd = e:f\n",
    "version-without-number": "[jembench.models]\ntiger = b:c\n[jembench.api]\none = b\n",
    "latin-1": "[console_scripts]\ncafé = b:c\n".encode("latin-1"),
}


def test_core_registers_itself_through_the_groups_of_everybody():
    digits = discovery.find("datasets", "digits")
    assert (digits.distribution, digits.target) == ("jembench", "jembench.data.factories:digits")
    assert "sgld" in names("samplers")


def test_finding_imports_nothing(site):
    site.install("zoo", "[jembench.models]\nlion = zoo.lion:Cage.build\n")
    site.module("zoo", "raise RuntimeError('imported')")
    found = discovery.find("models", "lion")
    assert found == discovery.Component("models", "lion", "zoo", "1.0", "zoo.lion", "Cage.build")
    assert str(found) == "zoo 1.0 [lion = zoo.lion:Cage.build]"
    assert "zoo" not in sys.modules


def test_components_are_sorted_whatever_the_order_of_folders(site):
    site.install("b-zoo", "[jembench.models]\nyak = b:c\nant = b:d\n")
    site.install("a-zoo", "[jembench.models]\nbee = a:b\n")
    ours = [name for name in names("models") if name in ("ant", "bee", "yak")]
    assert ours == ["ant", "bee", "yak"]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_foreign_distribution_does_not_stop_ours(site, broken):
    site.install("zoo", "[jembench.models]\nlion = zoo:build\n", version="2.0")
    ordinary = discovery.catalogue()
    discovery.catalogue.cache_clear()
    site.install(f"broken-{broken}", BROKEN[broken])
    assert discovery.catalogue().components == ordinary.components
    (unreadable,) = discovery.catalogue().unreadable
    assert unreadable.distribution == f"broken-{broken}"
    assert unreadable.problem
    assert "\n" not in unreadable.problem


@pytest.mark.parametrize("metadata", [None, "Name: café\n".encode("latin-1")])
def test_metadata_that_cannot_be_read_either(site, metadata):
    site.install("zoo", "[jembench.models]\nlion = zoo:build\n")
    site.install("broken", BROKEN["no-header"])
    file = site.folder / "broken-1.0.dist-info" / "METADATA"
    file.unlink() if metadata is None else file.write_bytes(metadata)
    assert "lion" in names("models")
    assert [unreadable.distribution for unreadable in discovery.catalogue().unreadable] == [
        "(without a name)"
    ]


@pytest.mark.parametrize("target", ["zoo:bu%ild", "zoo build", "zoo:"])
def test_a_malformed_target_is_reported_and_its_neighbours_are_found(site, target):
    site.install("zoo", f"[jembench.models]\nlion = zoo:build\nbad = {target}\n")
    assert "lion" in names("models")
    assert "bad" not in names("models")
    assert discovery.catalogue().unreadable == (
        discovery.Unreadable("zoo", f"bad = {target} in jembench.models is not module:attribute"),
    )


def test_a_percent_sign_elsewhere_is_nobodys_business(site):
    site.install("zoo", "[jembench.models]\nlion = zoo:build\n[other]\nx = 100%\n")
    assert "lion" in names("models")
    assert discovery.catalogue().unreadable == ()


def test_the_same_distribution_twice_on_the_path_counts_once(site, monkeypatch):
    site.install("my-zoo", "[jembench.models]\nlion = zoo:old\n", version="0.9", below="old")
    site.install("my-zoo", "[jembench.models]\nlion = zoo:new\n", version="1.1", below="new")
    monkeypatch.syspath_prepend(site.folder / "old")
    monkeypatch.syspath_prepend(site.folder / "new")
    found = discovery.find("models", "lion")
    assert (found.target, found.version) == ("zoo:new", "1.1")


def test_the_name_is_spelled_as_in_the_metadata(site):
    site.install("My_Zoo.Park", "[jembench.models]\nlion = zoo:build\n")
    assert discovery.find("models", "lion").distribution == "my-zoo-park"


def test_an_egg_info_without_a_version(site):
    info = site.folder / "zoo.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Name: zoo\n")
    (info / "entry_points.txt").write_text(
        f"[jembench.models]\nlion = zoo:build\n[jembench.api]\n{API} = zoo\n"
    )
    assert str(discovery.find("models", "lion")) == "zoo  [lion = zoo:build]"


def test_a_name_offered_twice_lists_the_candidates(site):
    site.install("a-zoo", "[jembench.models]\nlion = a:build\n")
    site.install("b-zoo", "[jembench.models]\nlion = b:build\n")
    with pytest.raises(SpecError) as caught:
        discovery.find("models", "lion")
    assert str(caught.value) == (
        "The model 'lion' is offered by more than one distribution: a-zoo/lion (a:build), "
        "b-zoo/lion (b:build). Write one of these names, or uninstall or rename the "
        "other component."
    )


@pytest.mark.parametrize("name", ["b-zoo/lion", "B_Zoo/lion"])
def test_a_distribution_settles_it(site, name):
    site.install("a-zoo", "[jembench.models]\nlion = a:build\n")
    site.install("b-zoo", "[jembench.models]\nlion = b:build\n")
    assert discovery.find("models", name).target == "b:build"


def test_an_unknown_name():
    with pytest.raises(SpecError) as caught:
        discovery.find("datasets", "cifra10")
    known = ", ".join(sorted(set(names("datasets"))))
    text = str(caught.value)
    assert text.startswith("There is no dataset named 'cifra10'. Nearest: cifar10, cifar100")
    assert text.endswith(f" Known: {known}. `jembench list datasets` says what each one is.")


def test_an_unknown_name_of_a_distribution():
    with pytest.raises(SpecError, match="Nearest: jembench/sgld"):
        discovery.find("samplers", "jembench/sgdl")


@pytest.fixture
def zoo(site):
    """Install an importable distribution with good and bad entry points."""
    site.install(
        "zoo-park",
        "[jembench.models]\nlion = zoo_park:build\ninner = zoo_park:Cage.build\nabsent = "
        "zoo_park:nothing\ngone = zoo_gone:build\nraises = zoo_raises:build\nexits = "
        "zoo_exits:build\nneeds = zoo_needs:build\nnumber = zoo_park:NUMBER\n",
    )
    site.module(
        "zoo_park",
        "NUMBER = 3\n"
        "def build(data_spec, *, width: int = 2, name: str = ''):\n"
        '    """A lion.\n\n    More of it."""\n'
        "    return data_spec, width, name\n"
        "class Cage:\n    @staticmethod\n    def build(data_spec): return 'inner'\n",
    )
    site.module("zoo_raises", "raise RuntimeError('no food.')")
    site.module("zoo_exits", "raise SystemExit('closed')")
    site.module(
        "zoo_needs",
        "from jembench.errors import Unavailable\nraise Unavailable('Buy food: pip install food.')",
    )
    return site


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        (
            "absent",
            "from zoo_park:nothing: AttributeError: module 'zoo_park' has no attribute 'nothing'. ",
        ),
        ("gone", "from zoo_gone:build: ModuleNotFoundError: No module named 'zoo_gone'. "),
        ("raises", "from zoo_raises:build: RuntimeError: no food. "),
        ("exits", "from zoo_exits:build: SystemExit: closed. "),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_named(zoo, name, cause):
    with pytest.raises(PluginError) as caught:
        discovery.load(discovery.find("models", name))
    assert str(caught.value) == (
        f"The model {name!r} of zoo-park 1.0 cannot be loaded {cause}Update or uninstall zoo-park."
    )


def test_a_plugin_that_says_what_it_needs_is_quoted(zoo):
    with pytest.raises(Unavailable, match=r"^Buy food: pip install food\.$"):
        discovery.load(discovery.find("models", "needs"))


def test_an_import_path_that_cannot_be_imported(zoo):
    with pytest.raises(PluginError) as caught:
        discovery.load(discovery.find("models", "zoo_gone:build"))
    assert str(caught.value) == (
        "The model 'zoo_gone:build' cannot be loaded from zoo_gone:build: ModuleNotFoundError: No "
        "module named 'zoo_gone'. Check the path; the package must be importable from here."
    )


def test_resolve_and_make(zoo):
    resolved = registry.resolve("models", "lion:width=4")
    assert str(resolved) == "lion:width=4"
    assert (resolved.name, resolved.arguments) == ("lion", {"name": "", "width": 4})
    assert resolved.make("digits") == ("digits", 4, "")
    assert registry.resolve("models", "inner").make(None) == "inner"
    assert registry.resolve("models", "zoo_park:build:width=4,name=leo").make("digits") == (
        "digits",
        4,
        "leo",
    )


CLASSES = """
from torch import nn
from jembench.interfaces import DataSpec

class Network(nn.Module):
    def __init__(self, *arguments, **options):
        super().__init__()
        self.made = (*arguments, *sorted(options.items()))

class Own(Network):
    def __init__(self, width=2, act=nn.SiLU, *, bias: bool = True):
        super().__init__(width, act, bias)
class Typed(Network):
    def __init__(self, classes: int, rate: float = 1):
        super().__init__(classes, rate)
class Inherited(nn.Module): pass
class Annotated(Network):
    def __init__(self, images: DataSpec, *, width: int = 2):
        super().__init__(images, width)
class Named(Network):
    def __init__(self, data_spec, width=2):
        super().__init__(data_spec, width)
class Bare(Network):
    def __init__(self, d):
        super().__init__(d)
"""


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ("Own", (2, SiLU, True)),
        ("Own:width=4,bias=no", (4, SiLU, False)),
        ("Typed:classes=3", (3, 1.0)),
        ("Annotated:width=4", ("digits", 4)),
        ("Named", ("digits", 2)),
        ("Bare", ("digits",)),
        ("Network:", ("digits",)),
    ],
)
def test_a_class_is_given_the_data_if_it_takes_it(site, spec, made):
    site.module("zoo_classes", CLASSES)
    resolved = registry.resolve("models", f"zoo_classes:{spec}".rstrip(":"))
    assert resolved.make("digits").made == made
    json.dumps(resolved.identity)


def test_a_class_without_a_constructor_of_its_own_is_called_without_arguments(site):
    site.module("zoo_classes", CLASSES)
    registry.resolve("models", "zoo_classes:Inherited").make("digits")


def test_an_argument_without_a_default_must_be_given(site):
    site.module("zoo_classes", CLASSES)
    with pytest.raises(SpecError, match=r"needs classes: write zoo_classes:Typed:classes=\.\.\."):
        registry.resolve("models", "zoo_classes:Typed")
    with pytest.raises(SpecError, match=r"no option of zoo_classes:Own named 'act'"):
        registry.resolve("models", "zoo_classes:Own:act=relu")


def test_what_is_not_callable_is_not_a_factory(zoo):
    with pytest.raises(
        PluginError,
        match=r"model 'number' of zoo-park 1.0 cannot be loaded .*: it is of type int, not a "
        r"factory\. Update",
    ):
        registry.resolve("models", "number")


@pytest.mark.parametrize(
    ("stated", "says", "update"),
    [
        (f"1 = zoo\n{API + 1} = zoo", f"was written for version {API + 1}", "jembench"),
        (f"{API - 1} = zoo", f"was written for version {API - 1}", "zoo"),
        ("", "states no version", "zoo"),
    ],
)
def test_a_plugin_of_another_version_is_found_but_not_used(site, stated, says, update):
    site.install(
        "zoo", "[jembench.models]\nlion = zoo_of_future:build", api=f"[jembench.api]\n{stated}"
    )
    site.module("zoo_of_future", "def build(data): ...")
    assert discovery.find("models", "lion").api != API
    with pytest.raises(Incompatible) as caught:
        registry.resolve("models", "lion")
    assert str(caught.value) == (
        f"zoo 1.0 {says} of jembench's plugin interface, and this jembench has version {API}. "
        f"Update {update}, or uninstall zoo."
    )
    assert "zoo_of_future" not in sys.modules


@pytest.mark.parametrize(
    ("kind", "source", "message"),
    [
        (
            "scores",
            "def build(logits): ...",
            "cannot be made: missing a required argument: 'logits'.",
        ),
        (
            "scores",
            "def build(): return len",
            "which is no OODScore: it lacks reads, requires, scores.",
        ),
        (
            "executors",
            "class build: slots = 1",
            "lacks cancel, close, ended, here, in_process, open, submit. The reference",
        ),
    ],
)
def test_what_is_no_component_of_its_kind_is_refused(tmp_path, monkeypatch, kind, source, message):
    (tmp_path / "own_made.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(PluginError, match=re.escape(message)):
            registry.resolve(kind, "own_made:build").make()
    finally:
        sys.modules.pop("own_made", None)


def test_a_factory_has_the_options_of_its_parts_with_defaults_of_its_own():
    def ball(*, size: float = 1):
        return ("ball", size)

    def box(data, *, width: Annotated[int, Range(least=1)] = 2, height: int = 3):
        return (data, width, height)

    @options.built_from(box, height=5)
    @options.built_from(ball)
    def build(data, in_box, in_ball, *, last: bool = False):
        return (data, in_box, in_ball, last)

    known = options.options_of(build)
    assert [(name, option.default) for name, option in known.items()] == [
        ("width", 2),
        ("height", 5),
        ("size", 1.0),
        ("last", False),
    ]
    assert known["width"].hint == Annotated[int, Range(least=1)]
    assert build("x", height=7, last=True) == ("x", ("x", 2, 7), ("ball", 1.0), True)
    inspect.signature(build).bind("x", width=4)

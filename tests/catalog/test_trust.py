import threading

import pytest

from jembench.catalog import discovery, packages, registry, trust
from jembench.data.ood_sets.resolve import resolve
from jembench.errors import SpecError
from jembench.experiment import recipe
from jembench.interfaces import DataSpec
from jembench.models.nets import build_net


@pytest.fixture
def data():
    return DataSpec(name="four", shape=(1, 4, 4), num_classes=3)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("jem", []),
        ("helper:build", ["helper:build"]),
        (" helper:build ", ["helper:build"]),
        ("helper:build:command=x", ["helper:build"]),
        ("a.b:c.d", ["a.b:c.d"]),
        ("jem:net=helper:build,norm=batch", ["helper:build"]),
        ("ood:set=imagefolder:root=helper:build", ["helper:build"]),
        (r'jem:net="a:b:net=\"c:d\""', ["a:b", "c:d"]),
        ('ensemble:of="jem,a:b,c:d"', ["a:b", "c:d"]),
        ("jem,a:b:x=1,y=2,c:d", ["a:b", "c:d"]),
        ("--models=jem,a:b", ["a:b"]),
        ("chains.sampler=a:b", ["a:b"]),
        ("--set=model.net=a:b", ["a:b"]),
        ('model.net="a:b"', ["a:b"]),
        ('x=["a:b","jem:net=c:d"]', ["a:b", "c:d"]),
        ('{"deep": [["a:b"]]}', ["a:b"]),
        ("imagefolder:root=/data/mine", []),
        ("Two words: no spec", []),
        ("https://example.org/a:b", []),
    ],
)
def test_the_code_that_a_text_names(text, names):
    assert sorted(set(trust.code_in(text))) == sorted(names)


@pytest.mark.parametrize(
    "text", ["a:b=" * 5_000 + "c:d", "a=" * 30 + "c:d", ",".join(["x"] * 9_000)]
)
def test_a_text_that_is_no_spec_takes_no_time(text):
    with pytest.raises(SpecError, match="longer than"):
        list(trust.code_in(text))


def test_what_a_command_named_may_be_loaded_and_nothing_else(data):
    with trust.command(["jem:net=math:sqrt", "--set", "model.net=math:ceil"]):
        assert discovery.find("models", "math:sqrt")
        assert discovery.find("models", "math:ceil")
        for refused in ("math:floor", "os:system"):
            with pytest.raises(
                SpecError, match=f"names {refused}, which runs code that you did not name"
            ):
                discovery.find("models", refused)
        with pytest.raises(SpecError, match="math:floor"):
            build_net("math:floor", data)
        with pytest.raises(SpecError, match="math:floor"):
            resolve("math:floor")
        with pytest.raises(SpecError, match="math:floor"):
            registry.resolve("models", "math:floor:x=1")
    assert discovery.find("models", "math:floor")  # Python code speaks for itself


@pytest.mark.parametrize("word", ["math:floor", "--store=math:floor"])
def test_the_name_of_a_file_is_no_import_path(tmp_path, monkeypatch, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "math:floor").mkdir()
    with trust.command([word]), pytest.raises(SpecError, match="runs code that you did not name"):
        discovery.find("models", "math:floor")


def test_other_threads_are_allowed_no_more():
    refused = []

    def work():
        try:
            discovery.find("models", "math:floor")
        except SpecError as error:
            refused.append(error)

    with trust.command():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert refused


def test_a_default_of_installed_code_may_be_code(monkeypatch, data):
    def factory(data, *, net: str = "math:floor"):
        return build_net(net, data)

    component = discovery.Component("models", "zoo", "zoo-park", "1", "zoo", "factory")
    monkeypatch.setattr(
        discovery, "load", lambda found: factory if found is component else lambda data: None
    )
    monkeypatch.setattr(discovery, "components", lambda kind: [component])
    with trust.command():
        with pytest.raises(SpecError, match="math:floor"):
            discovery.find("models", "math:floor")
        registry.resolve("models", "zoo")
        assert discovery.find("models", "math:floor")


@pytest.mark.parametrize(
    "name", [" math:floor", "math:floor x", "math :floor", "math:", ":floor", "math:floor:x=1"]
)
def test_a_name_that_is_not_an_import_path_imports_nothing(name):
    with pytest.raises(SpecError):
        discovery.find("models", name)


@pytest.mark.parametrize(
    ("line", "hostile"),
    [
        ("[chains]", '[model]\nnet = "math:floor"\n\n[chains]'),
        ("sampler =", 'sampler = "pcd:x=math:floor"  #'),
    ],
)
def test_a_recipe_file_names_no_code_unless_the_user_does(tmp_path, monkeypatch, line, hostile):
    file = tmp_path / "mine.toml"
    installed = packages.source("recipe", "digits", "recipes").content.decode()
    assert line in installed
    file.write_text(installed.replace(line, hostile, 1))
    with pytest.raises(SpecError, match=r"mine\.toml names math:floor"):
        recipe.load(str(file))
    with trust.command(["model.net=math:floor"]):
        assert recipe.load(str(file))
    monkeypatch.setenv(trust.VARIABLE, "a:b,math:floor")
    assert recipe.load(str(file))


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [folder for folder in trust.sys.path if folder])
    (tmp_path / "of_here.py").touch()
    (tmp_path / "json.py").touch()
    return lambda: trust.sys.path


@pytest.mark.parametrize(
    ("word", "importable"),
    [
        ("of_here:build", True),
        ("jem:net=of_here.nets:build", True),
        ("jem", False),
        ("json:loads", False),
        ("x:y", False),
    ],
)
def test_it_is_searched_if_the_user_named_a_module_in_it(path, word, importable):
    with trust.command([word]):
        assert ("" in path()) is importable
        assert not importable or path()[-1] == ""
    assert "" not in path()

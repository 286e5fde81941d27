import pytest

from jembench.catalog import discovery, packages
from jembench.errors import SpecError


@pytest.fixture
def install(site):
    """Install a distribution whose entry point in jembench.suites is a package with these files."""

    def install(name, target=None, *, init="", **files):
        site.install(name, f"[jembench.suites]\n{name} = {target or name}\n")
        folder = site.folder / name
        (folder / "recipes").mkdir(parents=True)
        (folder / "__init__.py").write_text(init)
        for file, content in files.items():
            (folder / f"{file}.toml").write_text(content)
        discovery.catalogue.cache_clear()
        return folder

    return install


def test_core_s_own_files_come_through_the_same_group():
    assert "hybrid" in packages.files()
    assert {"paper", "code", "digits"} <= packages.files("recipes").keys()
    assert "jem-iclr2020" in packages.files("reference")
    assert packages.files("no such folder") == {}


def test_a_package_s_files_by_their_stems(install):
    folder = install("zoo_files", feeding="title = 'Feeding time'", night="")
    (folder / "notes.txt").write_text("no suite")
    (folder / "recipes" / "slow.toml").write_text("")
    found = packages.files()
    assert found["feeding"].read_text() == "title = 'Feeding time'"
    assert {"night", "hybrid"} <= found.keys()
    assert not {"notes", "notes.txt", "slow"} & found.keys()
    assert "slow" in packages.files("recipes")


@pytest.mark.parametrize(
    "init",
    [
        "raise RuntimeError('no food')",
        "from jembench.errors import Unavailable\nraise Unavailable('Buy food.')",
    ],
)
def test_a_package_that_cannot_be_imported_is_nobody_else_s_business(install, init):
    install("zoo_broken", init=init, feeding="")
    assert "hybrid" in packages.files()
    assert "feeding" not in packages.files()


def test_a_module_is_no_package(install):
    folder = install("zoo_module", "zoo_module.keeper", feeding="")
    (folder / "keeper.py").write_text("")
    assert "feeding" not in packages.files()


def test_two_packages_with_a_file_of_one_name(install):
    install("zoo_a", feeding="")
    install("zoo_b", feeding="")
    with pytest.raises(
        SpecError,
        match=r"^Two packages .*zoo_a/feeding\.toml and .*zoo_b/feeding\.toml\. Uninstall one",
    ):
        packages.files()

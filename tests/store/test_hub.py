"""Shared models as repositories of a hub, which answers over loopback to the real client."""

import shutil
import time
import types

import pytest
from fake_hub import TOKEN, serving

from jembench.errors import DamagedError, SpecError, Unavailable
from jembench.store import hub, manifest, records, share
from jembench.store.store import Store

constants = pytest.importorskip("huggingface_hub.constants")

# of the client's own calls
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

WHERE = "hf://user/jem-digits"
NAME = "user/jem-digits"
MODEL = "fits/jem-digits-digits-s0-jem000/model.safetensors"


@pytest.fixture(scope="module")
def built(whole, tmp_path_factory):
    return build(whole, 0, tmp_path_factory.mktemp("built") / "bundle")


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A hub, and a client that knows no other; without the pauses between attempts."""
    impatient = types.SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})
    for module in ("utils._http", "file_download"):
        monkeypatch.setattr(f"huggingface_hub.{module}.time", impatient)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with serving() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            server.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        yield server


@pytest.fixture
def shared(server, built):
    hub.upload(built, WHERE)
    server.asked.clear()
    return server


def build(root, seed, folder):
    store = Store(root)
    fit = next(fit for fit, *_ in store.trained() if (fit.model, fit.seed) == ("jem", seed))
    share.build(store, fit, folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    manifest.write(folder)
    return folder


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def downloaded(server):
    """The names of the files whose content was asked for."""
    return {
        path.rpartition("/")[2]
        for method, path in server.asked
        if method == "GET" and "/resolve/" in path
    }


def fetched(tmp_path, where=WHERE):
    there, folder = hub.download(where), tmp_path / "unpacked"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    share.unpack(there, folder, where, within=there.parent.parent)
    return contents(folder)


def test_what_is_uploaded_is_what_is_downloaded(server, built, tmp_path):
    url = hub.upload(built, WHERE)
    assert url == f"{server.url}/{NAME}/commit/{server.commit(NAME)}"
    assert server.repositories[NAME] == contents(built)
    assert fetched(tmp_path) == contents(built)
    server.asked.clear()
    assert fetched(tmp_path, f"{WHERE}@{server.commit(NAME)}") == contents(built)
    assert downloaded(server) == set()  # all is in the cache


def test_a_second_model_takes_the_place_of_the_first(shared, whole, tmp_path):
    first = shared.commit(NAME)
    shared.repositories[NAME]["LICENSE"] = b"mine"
    second = build(whole, 1, tmp_path / "second")
    hub.upload(second, WHERE)
    assert shared.repositories[NAME] == {**contents(second), "LICENSE": b"mine"}
    # not the license, which the manifest does not name
    assert fetched(tmp_path) == contents(second)
    assert shared.commit(NAME) != first


@pytest.mark.parametrize(
    "text", ["hf://", "hf://user", "hf://user/name/more", "hf://user/name@", "hf://../name@x y"]
)
def test_names_of_repositories(text):
    with pytest.raises(SpecError, match="it must be hf://USER/NAME"):
        hub.parse(text)
    assert hub.parse(f"{WHERE}@refs/pr/1") == (NAME, "refs/pr/1")


def test_without_the_right_to_write_nothing_is_there(server, built, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_badtoken")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "nowhere")
    with pytest.raises(Unavailable, match=r"401 Unauthorized.*your right to write it .*HF_TOKEN"):
        hub.upload(built, WHERE)
    assert server.repositories == {}


def test_a_repository_that_is_not_there_or_may_not_be_read(shared, tmp_path):
    shared.repositories["user/empty"] = {"README.md": b"mine"}
    for where in ("hf://user/other", f"{WHERE}@v9", "hf://user/empty"):
        with pytest.raises(
            Unavailable,
            match=f"^{where} could not be transferred .*Check the name.*`jembench push`",
        ):
            fetched(tmp_path, where)
    shared.refused["/resolve/"] = 403
    with pytest.raises(Unavailable, match=r"your right to read it .*HF_TOKEN"):
        fetched(tmp_path)


@pytest.mark.parametrize("part", ["/lfs/", "/commit/"])
def test_an_upload_that_was_interrupted_changes_nothing(server, built, part):
    server.refused[part] = 500
    with pytest.raises(Unavailable, match=r"could not be transferred.*Run the same command again"):
        hub.upload(built, WHERE)
    assert server.repositories == {NAME: {}}
    server.refused.clear()
    hub.upload(built, WHERE)
    assert server.repositories[NAME] == contents(built)


def test_a_download_that_was_interrupted_goes_on(shared, built, tmp_path):
    shared.cut.add("/model.safetensors")
    with pytest.raises(Unavailable, match="could not be transferred"):
        fetched(tmp_path)
    shared.cut.clear()
    shared.asked.clear()
    assert fetched(tmp_path) == contents(built)
    # the second had not begun
    assert downloaded(shared) <= {"model.safetensors", "sampler.safetensors"}


def test_another_content_on_the_hub_is_refused(shared, tmp_path):
    files = shared.repositories[NAME]
    files[MODEL] = files[MODEL][:-1] + bytes([files[MODEL][-1] ^ 1])
    with pytest.raises(
        DamagedError, match=r"^hf://user/jem-digits is not what was shared: .*model\.safetensors"
    ):
        fetched(tmp_path)
    del files[MODEL]
    with pytest.raises(DamagedError, match=r"model\.safetensors is missing"):
        fetched(tmp_path)


def test_a_manifest_of_other_files_loads_nothing_else(shared, tmp_path):
    shared.repositories[NAME]["manifest.json"] = records.text({"files": {"../x": ""}}).encode()
    with pytest.raises(DamagedError, match="can be no file of a trained model"):
        fetched(tmp_path)
    assert downloaded(shared) == {"manifest.json"}


def test_without_the_client(monkeypatch, built):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(
        Unavailable, match=r'pip install "jembench\[hub\]"; or use a folder or a zip archive'
    ):
        hub.upload(built, WHERE)

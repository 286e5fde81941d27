"""CIFAR and SVHN, read from small files in their authors' formats; nothing here needs a network."""

import hashlib
import io
import os
import pickle
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch

from jembench.data.factories import cifar10, cifar100, svhn
from jembench.errors import Unavailable
from jembench.interfaces import Split

FACTORIES = pytest.mark.parametrize("factory", [cifar10, cifar100, svhn])


class Python2Pickler(pickle.Pickler):
    """Writes numpy's dtypes as Python 2 did when CIFAR was published: with integers for flags."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.dtype):
            return np.dtype, (obj.str[1:], 0, 1), obj.__reduce__()[2]
        return NotImplemented


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def write_pickle(path: Path, content: dict[str, Any]) -> str:
    """Write ``content`` and return its checksum."""
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(stream.getvalue())
    return hashlib.md5(stream.getvalue()).hexdigest()


def pixels(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(n, 3, 32, 32), dtype=np.uint8)


def write_cifar10(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Five training files of two images and a test file of three; labels count upwards."""
    folder = root / "cifar-10-batches-py"
    parts = {f"data_batch_{i}": pixels(2, i) for i in range(1, 6)} | {"test_batch": pixels(3, 6)}
    labels = iter(range(100))
    listed = [
        [
            name,
            write_pickle(
                folder / name,
                {"data": data.reshape(len(data), -1), "labels": [next(labels) for _ in data]},
            ),
        ]
        for name, data in parts.items()
    ]
    md5 = write_pickle(folder / "batches.meta", {"label_names": ["airplane", "..."]})
    monkeypatch.setattr("torchvision.datasets.CIFAR10.train_list", listed[:5])
    monkeypatch.setattr("torchvision.datasets.CIFAR10.test_list", listed[5:])
    monkeypatch.setattr(
        "torchvision.datasets.CIFAR10.meta",
        {"filename": "batches.meta", "key": "label_names", "md5": md5},
    )
    train = np.concatenate([parts[f"data_batch_{i}"] for i in range(1, 6)])
    return {"train": train, "test": parts["test_batch"]}


def write_cifar100(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    folder = root / "cifar-100-python"
    parts = {"train": pixels(4, 1), "test": pixels(3, 2)}
    labels = iter(range(100))
    listed = {}
    for name, data in parts.items():
        fine = [next(labels) for _ in data]
        content = {
            "data": data.reshape(len(data), -1),
            "fine_labels": fine,
            "coarse_labels": [0 for _ in data],
        }
        listed[name] = [[name, write_pickle(folder / name, content)]]
    md5 = write_pickle(folder / "meta", {"fine_label_names": ["apple", "..."]})
    monkeypatch.setattr("torchvision.datasets.CIFAR100.train_list", listed["train"])
    monkeypatch.setattr("torchvision.datasets.CIFAR100.test_list", listed["test"])
    monkeypatch.setattr(
        "torchvision.datasets.CIFAR100.meta",
        {"filename": "meta", "key": "fine_label_names", "md5": md5},
    )
    return parts


def write_svhn(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Labels 1..10, of which 10 stands for the digit 0."""
    parts, listed = {"train": pixels(10, 1), "test": pixels(10, 2)}, {}
    for name, data in parts.items():
        path = root / f"{name}_32x32.mat"
        labels = np.arange(1, 11, dtype=np.uint8)[:, None]
        scipy.io.savemat(path, {"X": data.transpose(2, 3, 1, 0), "y": labels})
        url = f"http://127.0.0.1:9/{path.name}"
        listed[name] = [url, path.name, hashlib.md5(path.read_bytes()).hexdigest()]
    monkeypatch.setattr("torchvision.datasets.SVHN.split_list", listed)
    return parts


def assert_holds(split: Split, expected: np.ndarray, labels: list[int]) -> None:
    assert torch.equal(split.images, torch.from_numpy(expected))
    assert split.images.is_contiguous()
    assert split.labels is not None
    assert split.labels.dtype == torch.int64
    assert split.labels.tolist() == labels


def test_cifar10_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_cifar10(tmp_path, monkeypatch)
    dataset = cifar10(root=str(tmp_path))
    assert_holds(dataset.split("train"), written["train"], list(range(10)))
    assert_holds(dataset.split("test"), written["test"], [10, 11, 12])
    assert (dataset.spec.name, dataset.spec.shape, dataset.spec.num_classes) == (
        "cifar10",
        (3, 32, 32),
        10,
    )
    assert (dataset.spec.class_names[0], dataset.spec.class_names[9]) == ("airplane", "truck")


def test_cifar100_has_its_fine_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_cifar100(tmp_path, monkeypatch)
    dataset = cifar100(root=str(tmp_path))
    assert_holds(dataset.split("train"), written["train"], [0, 1, 2, 3])
    assert_holds(dataset.split("test"), written["test"], [4, 5, 6])
    assert dataset.spec.num_classes == len(set(dataset.spec.class_names)) == 100
    assert list(dataset.spec.class_names) == sorted(dataset.spec.class_names)


def test_svhn_counts_from_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_svhn(tmp_path, monkeypatch)
    dataset = svhn(root=str(tmp_path))
    for name in ("train", "test"):
        assert_holds(dataset.split(name), written[name], [1, 2, 3, 4, 5, 6, 7, 8, 9, 0])
    assert dataset.spec.class_names == tuple("0123456789")


def test_the_data_folder_is_taken_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar10(tmp_path, monkeypatch)
    monkeypatch.setenv("JEMBENCH_DATA", str(tmp_path))
    assert len(cifar10().split("test").images) == 3
    monkeypatch.delenv("JEMBENCH_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(Unavailable, match=f"not available in {tmp_path}/cache/jembench/data"):
        cifar10()


@FACTORIES
def test_missing_files_are_named_with_the_folder_and_the_remedy(
    factory: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(Unavailable) as raised:
        factory(root=str(tmp_path / "data"))
    message = str(raised.value)
    assert f"is not available in {tmp_path / 'data'}" in message
    assert f"write {factory.__name__}:download=true" in message
    assert "fetch http" in message
    assert "\n" not in message
    assert not (tmp_path / "data").exists()


def test_a_pickle_with_a_wrong_checksum_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar10(tmp_path, monkeypatch)
    trap = tmp_path / "sprung"
    hostile = pickle.dumps(Trap(trap))
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(hostile)
    with pytest.raises(
        Unavailable, match=r"CIFAR-10 is not available in .*corrupted.*cifar10:download=true"
    ):
        cifar10(root=str(tmp_path)).split("train")
    assert not trap.exists()
    pickle.loads(hostile)
    assert trap.exists()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers on this machine are reached without the user's proxy."""
    for variable in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.upper(), raising=False)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that accepts every connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves the files of a folder and writes no log."""

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def author(tmp_path: Path) -> Iterator[str]:
    """The address of a server of the files in ``tmp_path``, in place of the dataset's authors'."""
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_server: str
) -> None:
    monkeypatch.setattr("torchvision.datasets.CIFAR10.url", f"{silent_server}/cifar.tar.gz")
    monkeypatch.setattr("jembench.data.torchvision_sets.DOWNLOAD_TIMEOUT", 0.2)
    before = socket.getdefaulttimeout()
    dataset = cifar10(root=str(tmp_path / "new" / "data"), download=True)
    with pytest.raises(Unavailable) as raised:
        dataset.split("train")
    message = str(raised.value)
    assert f"CIFAR-10 is not available in {tmp_path / 'new' / 'data'}" in message
    assert (
        f"fetch {silent_server}/cifar.tar.gz yourself and put cifar-10-batches-py in that folder"
        in message
    )
    assert socket.getdefaulttimeout() == before


def test_download_fetches_checks_and_unpacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], author: str
) -> None:
    written = write_cifar10(tmp_path / "author", monkeypatch)
    archive = tmp_path / "cifar.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "author" / "cifar-10-batches-py", "cifar-10-batches-py")
    monkeypatch.setattr("torchvision.datasets.CIFAR10.url", f"{author}/{archive.name}")
    monkeypatch.setattr(
        "torchvision.datasets.CIFAR10.tgz_md5", hashlib.md5(archive.read_bytes()).hexdigest()
    )
    dataset = cifar10(root=str(tmp_path / "user"), download=True)
    assert not (tmp_path / "user").exists()  # nothing is fetched before an image is asked for
    assert_holds(dataset.split("test"), written["test"], [10, 11, 12])
    assert capsys.readouterr().out == ""

    archive.unlink()  # what is there is not fetched again
    assert len(cifar10(root=str(tmp_path / "user"), download=True).split("train").images) == 10


def test_an_archive_with_a_wrong_checksum_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, author: str
) -> None:
    archive = tmp_path / "cifar.tar.gz"
    archive.write_bytes(b"a login page")
    monkeypatch.setattr("torchvision.datasets.CIFAR10.url", f"{author}/{archive.name}")
    with pytest.raises(Unavailable, match=r"CIFAR-10 is not available in .*orrupted"):
        cifar10(root=str(tmp_path / "user"), download=True).split("train")

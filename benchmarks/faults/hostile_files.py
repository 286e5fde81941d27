"""The hostile files that hostile.py gives to commands, by the commands that read them."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from damage import STUDY

from jembench.store import records

CODE = "from pathlib import Path\nPath('{}').write_text('it ran')\ndef build(*a, **k): ...\n"
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
DEEP = 100_000

Builder = Callable[[Path, random.Random], None]
CASES: dict[str, tuple[str, Builder]] = {}
"""The command and the builder of each hostile file, by its name. ``{}`` in a command is the folder
of the case.
"""


def case(kind: str, command: str) -> Callable[[Builder], Builder]:
    """Register a builder under its name."""

    def register(build: Builder) -> Builder:
        CASES[f"{kind}: {build.__name__.strip('_').replace('_', ' ')}"] = (command, build)
        return build

    return register


class Calls:
    """An object whose pickle runs a command when it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


# --- bundles --------------------------------------------------------------------------------------

FETCH = "fetch {}/bundle.zip"


def pack(place: Path, change: Callable[[zipfile.ZipFile], object], leave: str = "") -> None:
    """Pack the bundle as an archive, with a change and without the file ``leave``."""
    with zipfile.ZipFile(place / "bundle.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((place / "bundle").rglob("*")):
            if path.is_file() and path.name != leave:
                archive.write(path, path.relative_to(place / "bundle"))
        change(archive)


for name in (
    "../out",
    "/tmp/jembench-out",
    "cells/../../out",
    "..\\out",
    "C:\\out",
    "cells/\x1b[2J.json",
    "a/" * 300,
):
    CASES[f"bundle: a file named {name[:20]!r}"] = (
        FETCH,
        lambda place, rng, name=name: pack(place, lambda archive: archive.writestr(name, "out")),
    )
for size, member in ((2**29, "arrays/x.npz"), (2**29, "README.md"), (2**29, "cells/x.json")):
    CASES[f"bundle: a bomb in {member}"] = (
        FETCH,
        lambda place, rng, member=member, size=size: pack(
            place, lambda archive: bomb(archive, member, size)
        ),
    )


def bomb(archive: zipfile.ZipFile, member: str, size: int) -> None:
    """Add zeros."""
    with archive.open(member, "w", force_zip64=True) as stream:
        for _ in range(size // 2**24):
            stream.write(bytes(2**24))


@case("bundle", FETCH)
def _a_link_in_an_archive(place: Path, rng: random.Random) -> None:
    entry = zipfile.ZipInfo("README.md")
    entry.external_attr = 0o120777 << 16
    pack(place, lambda archive: archive.writestr(entry, "/etc/passwd"), leave="README.md")


@case("bundle", FETCH)
def _every_file_twice(place: Path, rng: random.Random) -> None:
    def twice(archive: zipfile.ZipFile) -> None:
        for name in archive.namelist():
            archive.writestr(name, b"other")

    pack(place, twice)


@case("bundle", FETCH)
def _many_files(place: Path, rng: random.Random) -> None:
    pack(place, lambda archive: [archive.writestr(f"cells/{n}.json", "") for n in range(20_000)])


@case("bundle", FETCH)
def _no_manifest(place: Path, rng: random.Random) -> None:
    pack(place, lambda archive: None, leave="manifest.json")


@case("bundle", FETCH)
def _an_archive_cut_short(place: Path, rng: random.Random) -> None:
    pack(place, lambda archive: None)
    content = (place / "bundle.zip").read_bytes()
    (place / "bundle.zip").write_bytes(content[: rng.randrange(len(content))])


MANIFESTS = {
    "a deep manifest": "[" * DEEP,
    "a manifest of numbers": "7",
    "a manifest with NaN": '{"schema": NaN}',
    "a manifest with a key twice": '{"schema": 1, "schema": 2}',
}
for title, text in MANIFESTS.items():
    CASES[f"bundle: {title}"] = (
        FETCH,
        lambda place, rng, text=text: pack(
            place, lambda archive: archive.writestr("manifest.json", text), leave="manifest.json"
        ),
    )


@case("bundle", "fetch {}/bundle")
def _a_sealed_manifest_of_other_files(place: Path, rng: random.Random) -> None:
    def change(data: dict[str, Any]) -> None:
        name, entry = data["files"].popitem()
        data["files"] |= {name: entry, "../precious": entry}

    rewrite(place / "bundle/manifest.json", change)


@case("bundle", "fetch {}/bundle")
def _a_folder_with_links(place: Path, rng: random.Random) -> None:
    (place / "bundle/README.md").unlink(missing_ok=True)
    (place / "bundle/README.md").symlink_to("/etc/passwd")
    (place / "bundle/cells/round").symlink_to(place / "bundle")


@case("bundle", "fetch {}/bundle")
def _a_folder_with_a_pipe(place: Path, rng: random.Random) -> None:
    path = next((place / "bundle/cells").iterdir())
    path.unlink()
    os.mkfifo(path)


# --- stores ---------------------------------------------------------------------------------------

REPORT = "report --format json --store {}/store"
TABLE = "report --store {}/store"
VERIFY = "store verify --store {}/store"
AGAIN = f"{STUDY} --format json --store {{}}/store"


def one(place: Path, pattern: str, rng: random.Random) -> Path:
    """Return one of the files of a store."""
    return rng.choice(sorted((place / "store").glob(pattern)))


TEXTS = {
    "a deep cell": "[" * DEEP,
    "a deep object": '{"a":' * DEEP,
    "a cell with NaN": '{"schema": 2, "value": NaN}',
    "a cell with a key twice": '{"schema": 2, "schema": 2}',
    "a cell with a number of many digits": '{"schema": ' + "9" * 10_000 + "}",
    "a cell of 60 MB": '{"schema": 2, "a": "' + "x" * 60_000_000 + '"}',
    "a cell with a lone surrogate": '{"schema": 2, "id": "\\ud800"}',
    "a cell with null characters": "\0" * 1000,
}
for title, text in TEXTS.items():
    CASES[f"store: {title}"] = (
        REPORT,
        lambda place, rng, text=text: one(place, "cells/*.json", rng).write_text(text) and None,
    )


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a record, and seal it with a valid digest."""
    data = {
        name: value
        for name, value in records.read(path).data.items()
        if name not in ("schema", "digest")
    }
    change(data)
    records.write(path, data)


CHANGES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "a model of the stranger's code": (
        TABLE,
        lambda data: data["fit"].update(model="canary:build"),
    ),
    "a metric of the stranger's code": (TABLE, lambda data: data.update(metric="canary:build")),
    "escapes in a model": (TABLE, lambda data: data["fit"].update(model=f"jem{ESCAPE}")),
    "escapes in a protocol": (
        TABLE,
        lambda data: data["outcome"].update(protocol=f"accuracy:a={ESCAPE}"),
    ),
    "escapes in a reason": (
        TABLE,
        lambda data: data["outcome"].update(status="failed", reason=ESCAPE),
    ),
    "a list for a model": (TABLE, lambda data: data["fit"].update(model=[["x"]])),
    "values of text": (REPORT, lambda data: data["outcome"].update(values={"accuracy": "99"})),
    "a seed of 1e400": (REPORT, lambda data: data["fit"].update(seed=10**400)),
}
for title, (command, change) in CHANGES.items():
    CASES[f"store: {title}"] = (
        command,
        lambda place, rng, change=change: rewrite(one(place, "cells/*.json", rng), change),
    )


@case("store", AGAIN)
def _a_pickle_for_arrays(place: Path, rng: random.Random) -> None:
    one(place, "arrays/*.npz", rng).write_bytes(pickle.dumps(Calls(f"touch {place}/ran")))


@case("store", AGAIN)
def _objects_in_arrays(place: Path, rng: random.Random) -> None:
    import numpy as np

    np.savez(
        one(place, "arrays/*.npz", rng), x=np.array([Calls(f"touch {place}/ran")], dtype=object)
    )


@case("store", VERIFY)
def _arrays_of_a_trillion_numbers(place: Path, rng: random.Random) -> None:
    head = (
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    )
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head
    with zipfile.ZipFile(one(place, "arrays/*.npz", rng), "w") as archive:
        archive.writestr("x.npy", npy)


HEADERS = {
    "a header longer than the file": struct.pack("<Q", 2**40) + b"{}",
    "a header of 2^64 bytes": struct.pack("<Q", 2**64 - 1) + b"{}",
    "a deep header": struct.pack("<Q", DEEP) + b"[" * DEEP,
    "a tensor beyond the end": b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}',
    "a tensor of 2^62 numbers": b'{"a":{"dtype":"F32","shape":[2147483648,2147483648],'
    b'"data_offsets":[0,4]}}',
    "tensors that overlap": b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
    b'"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}\0',
    "an unknown type": b'{"a":{"dtype":"F999","shape":[1],"data_offsets":[0,1]}}\0',
    "a name twice": b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
    b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
}
for title, content in HEADERS.items():
    whole = (
        content if content[:1] != b"{" else struct.pack("<Q", len(content.rstrip(b"\0"))) + content
    )
    pattern = "fits/*/model.safetensors" if "tensor" in title else "readings/*/*.safetensors"
    CASES[f"store: safetensors with {title}"] = (
        f"{STUDY} --format json --metrics accuracy,nll --store {{}}/store",
        lambda place, rng, whole=whole, pattern=pattern: (
            one(place, pattern, rng).write_bytes(whole) and None
        ),
    )


@case("store", "status --store {}/store")
def _a_deep_unit_of_work(place: Path, rng: random.Random) -> None:
    for name in ("a.json", "a.status.json"):
        (place / "store/works").mkdir(exist_ok=True)
        (place / "store/works" / name).write_text("[" * DEEP)


@case("store", AGAIN)
def _a_lease_of_a_gigabyte(place: Path, rng: random.Random) -> None:
    (place / "store/leases").mkdir(exist_ok=True)
    with (place / "store/leases/x.json").open("wb") as stream:
        stream.truncate(2**30)


@case("store", TABLE)
def _formulas_and_escapes_in_a_history(place: Path, rng: random.Random) -> None:
    one(place, "fits/*/history.csv", rng).write_text(f"iteration,loss\n=1+1,{ESCAPE}\n")


@case("store", "store list --store {}/store")
def _a_fit_whose_name_escapes(place: Path, rng: random.Random) -> None:
    (place / f"store/fits/x{ESCAPE[:4]}-0000000000").mkdir()


@case("store", "store gc --yes --store {}/store")
def _links_that_lead_out(place: Path, rng: random.Random) -> None:
    (place / "store/arrays/x-0123456789.npz").symlink_to(place / "precious")
    (place / "store/readings/0123456789abcdef").symlink_to(place)


# --- experiments, recipes -------------------------------------------------------------------------

RUN = "run {}/study.toml --dry-run --store {}/other"
STUDIES = {
    "a deep list": "a = " + "[" * DEEP,
    "code": 'models = ["canary:build"]\nmetrics = ["accuracy"]\n',
    "a shell command": "models=['jem']\n[execution]\nexecutor = 'slurm:setup=\"touch ran\"'\n",
    "another store": "models=['jem']\nstore = '/etc'\n[execution]\nstore = '/etc'\n",
    "a report elsewhere": "models=['jem']\n[[report]]\nforce=true\noutput='../precious'\n",
    "a tracker elsewhere": "models=['jem']\n[execution]\ntrackers=['mlflow:uri=http://example.org']\n",
    "a key twice": "models=['jem']\nmodels=['jem']\n",
    "a wild seed": "models=['jem']\nmetrics=['accuracy']\nseeds=[nan, 1e400, -1]\n",
    "a million models": "models=[" + "'jem'," * 1_000_000 + "]\n",
    "itself": "[[run]]\ninclude=['study']\n",
    "a product of sweeps": "models=['jem']\nmetrics=['ece']\n[[run]]\nsettings=['epochs="
    + "1|" * 5000
    + "']\n",
    "escapes": f"models=['jem{json.dumps(ESCAPE)[1:-1]}']\n",
    "an escape as a key": f'"{json.dumps(ESCAPE)[1:-1]}"=1\n',
}
for title, text in STUDIES.items():
    CASES[f"experiment: {title}"] = (
        RUN,
        lambda place, rng, text=text: (
            (place / "study.toml").write_text(f"title = 'x'\n{text}") and None
        ),
    )


@case("experiment", RUN)
def _other_bytes(place: Path, rng: random.Random) -> None:
    (place / "study.toml").write_bytes(rng.randbytes(5000))


TRAIN = (
    "run hybrid --models jem --dataset digits --recipe {}/recipe.toml --dry-run --store {}/other"
)
RECIPES = {
    "code": "optimizer.name = 'canary:build'\n",
    "a buffer of 10^15 images": "chains.sampler = 'pcd:buffer=1000000000000000'\n",
    "a batch of 10^30": f"batch_size = {10**30}\n",
    "infinite epochs": "epochs = inf\n",
    "a deep table": "[" + "a." * 20_000 + "a]\n",
}
for title, text in RECIPES.items():
    CASES[f"recipe: {title}"] = (
        TRAIN,
        lambda place, rng, text=text: (place / "recipe.toml").write_text(text) and None,
    )


# --- weights, images ------------------------------------------------------------------------------

IMPORT = "import weights {}/weights.pt --model jem:net=small-4 --dataset digits --store {}/other"


@case("weights", IMPORT)
def _a_pickle_that_runs_a_command(place: Path, rng: random.Random) -> None:
    (place / "weights.pt").write_bytes(pickle.dumps({"a": Calls(f"touch {place}/ran")}))


@case("weights", IMPORT)
def _the_same_in_an_archive_of_torch(place: Path, rng: random.Random) -> None:
    with zipfile.ZipFile(place / "weights.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Calls(f"touch {place}/ran"), protocol=2))
        archive.writestr("archive/version", "3")


@case("weights", IMPORT)
def _an_archive_of_zeros(place: Path, rng: random.Random) -> None:
    with zipfile.ZipFile(place / "weights.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        bomb(archive, "archive/data.pkl", 2**29)


def folder_of_images(place: Path, content: bytes) -> None:
    """Write images of two classes, one of which is hostile."""
    from PIL import Image

    for split in ("train", "test"):
        for number, name in enumerate(("cat", "dog")):
            (place / "images" / split / name).mkdir(parents=True)
            for n in range(6):
                level = 40 * n + number
                Image.new("RGB", (8, 8), (level, 9, 9)).save(
                    place / "images" / split / name / f"{n}.png"
                )
    (place / "images/train/cat/0.png").write_bytes(content)


def png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """Return a PNG of these chunks."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    packed = [
        struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


LOOK = (
    "run hybrid --models jem:net=small-4 --dataset imagefolder:root={}/images --dry-run --store "
    "{}/other"
)
IMAGES = {
    "a PNG of 60,000 x 60,000": png(60_000, 60_000),
    "a PNG that ends early": png(4000, 4000),
    "a PNG with a bomb of text": png(8, 8, (b"zTXt", b"a\0\0" + zlib.compress(bytes(2**28)))),
    "no image": b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>",
}
for title, content in IMAGES.items():
    CASES[f"image: {title}"] = (
        LOOK,
        lambda place, rng, content=content: folder_of_images(place, content),
    )


@case("image", LOOK)
def _a_pipe(place: Path, rng: random.Random) -> None:
    folder_of_images(place, b"")
    (place / "images/train/cat/0.png").unlink()
    os.mkfifo(place / "images/train/cat/0.png")

"""Tables of the library datasets as jembench's datasets.

Legend: N images, B images of a part, C channels, H height, W width.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jembench.catalog.contents import content
from jembench.data.arrays import Part, label_array, of_parts
from jembench.data.datasets import LazyDataset
from jembench.data.decoding import EncodedImages, Form, cached, form_of, opened
from jembench.errors import JembenchError, Remark, error_text
from jembench.interfaces import SplitName
from jembench.plugin import SpecError
from jembench_zoo.data import digest_of_rows
from jembench_zoo.libraries import library

if TYPE_CHECKING:
    from jembench.data.arrays import Array

_TESTS = ("test", "validation", "valid", "val")
"""The names of parts for tests, the best first."""

_HIDDEN = -1
"""The label of images whose labels are not published."""


class Columns(NamedTuple):
    """The columns of images and of labels; "": to be found by type."""

    image: str
    label: str


def open_parts(place: Path, config: str) -> dict[str, Any]:
    """Return the parts of a table by their names, mapped from disk.

    Raises:
        Unavailable: if the library is not installed.
        SpecError: if the files are of another kind, or have several configurations.
        JembenchError: if they cannot be read.
    """
    datasets = library("datasets", "hf-data")
    is_saved = any((place / name).is_file() for name in ("dataset_dict.json", "state.json"))
    if is_saved and config:
        raise SpecError(f"{place} was written by save_to_disk, so config has no effect.")
    with _errors(datasets, place):
        loaded = datasets.load_from_disk(str(place)) if is_saved else _prepared(place, config)
    return dict(loaded) if isinstance(loaded, dict) else {"train": loaded}


def _prepared(place: Path, config: str) -> Any:
    """Return the table of parquet or Arrow files, which the library copies into its cache."""
    datasets = library("datasets", "hf-data")
    # a bare name such as parquet would be one of the library's own
    options: dict[str, Any] = {"path": str(place.absolute())}
    if place.is_file():
        kind = "arrow" if place.suffix == ".arrow" else "parquet"
        options = {"path": kind, "data_files": {"train": str(place)}}
    fetches_nothing = datasets.DownloadConfig(local_files_only=True)
    builder = datasets.load_dataset_builder(
        **options, name=config or None, download_config=fetches_nothing
    )
    # other kinds fetch, unpack or decode by rules of their own
    files = [str(file) for part in (builder.config.data_files or {}).values() for file in part]
    if builder.name not in ("parquet", "arrow") or any("://" in file for file in files):
        raise SpecError(
            f"{place} is read by the library datasets as {builder.name} from "
            f"{', '.join(files[:1]) or 'no file'}, and hf reads parquet and Arrow files of this "
            "machine. Load it yourself, and write it by save_to_disk."
        )
    builder.download_and_prepare(download_config=fetches_nothing)
    return builder.as_dataset()


@contextmanager
def _errors(datasets: Any, place: Path) -> Iterator[None]:
    """Raise the library's errors as ours, without its progress bars."""
    is_silent = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    except JembenchError:
        raise
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        cause = error_text(error.__cause__ or error)
        raise JembenchError(f"{place} cannot be read by the library datasets: {cause}") from error
    finally:
        if not is_silent:
            datasets.enable_progress_bars()


class Reader:
    """The parts of a table, and where images and labels are in it.

    Args:
        title: the name of the dataset.
        place: of the files.
        config: the name of a part of the files; "": the only one.
        files: by their names.
        columns: of images and labels, as the user named these.

    Raises:
        SpecError: if columns are not found.
    """

    def __init__(
        self,
        title: str,
        place: Path,
        config: str,
        files: Mapping[str, Path],
        columns: Columns,
    ) -> None:
        self.title, self.place, self.config, self.files = title, place, config, files
        self.datasets = library("datasets", "hf-data")
        self.parts = open_parts(place, config)
        first = next(iter(self.parts.values()))
        self.columns = self._find(first.features, columns)
        self.table = functools.cache(self._table)

    def dataset(self, *, size: int, grey: bool | None, split: float, seed: int) -> LazyDataset:
        """Return the dataset; its images are decoded when they are read.

        Raises:
            SpecError: if parts or labels are not as they must be, or an option has no effect.
            JembenchError: if the first image cannot be read.
        """
        chosen = self._choose()
        first_part = chosen.get("train", chosen.get("test", ""))
        (encoded,) = self._encoded(first_part, [0])
        with opened(self._name(first_part, 0), encoded) as first:
            form = form_of(first, size, grey)
        parts: dict[SplitName, Part] = {}
        for place, part in chosen.items():
            shape = len(self.parts[part]), *form.shape
            what = f"{part} of {self.title}"
            labels = label_array(what, self._labels(part), shape[0])
            parts[place] = Part(shape, labels, functools.partial(self._images, part, form))
        return of_parts(
            self.title,
            parts,
            name=self.title,
            class_names=self._class_names(first_part),
            split=split,
            seed=seed,
        )

    def _find(self, features: Mapping[str, Any], columns: Columns) -> Columns:
        """Return the columns, of which "" are found by type; the label is "" without labels.

        Raises:
            SpecError: if there is none or several.
        """
        kinds = {"image": self.datasets.Image, "label": self.datasets.ClassLabel}
        chosen: dict[str, str] = {}
        for option, named in columns._asdict().items():
            of_type = [key for key, kind in features.items() if isinstance(kind, kinds[option])]
            remedy = f"Write {option}=COLUMN"
            if option == "label":
                remedy += ", or label=none for images without classes"
            listed = ", ".join(f"{key} ({_kind(kind)})" for key, kind in features.items())
            if named == "none" and option == "label":
                chosen[option] = ""
            elif named in features:
                chosen[option] = named
            elif named:
                raise SpecError(f"{self.title} has no column {named}. Its columns are: {listed}.")
            elif len(of_type) == 1:
                chosen[option] = of_type[0]
            elif option == "label" and len(features) == 1:
                chosen[option] = ""
            else:
                number = f"{len(of_type)} columns" if of_type else "no column"
                raise SpecError(
                    f"{self.title} has {number} of the type {kinds[option].__name__}. Its columns "
                    f"are: {listed}. {remedy}."
                )
        return Columns(**chosen)

    def _choose(self) -> dict[SplitName, str]:
        """Return the parts for training and for tests; train alone is to be split.

        Raises:
            SpecError: if neither is there.
        """
        chosen: dict[SplitName, str] = {}
        names = [name for name in _TESTS if name in self.parts]
        tests = [name for name in names if not self._is_hidden(name)]
        if "train" in self.parts:
            chosen["train"] = "train"
        elif len(self.parts) == 1 and not names:
            chosen["train"] = next(iter(self.parts))
        if tests:
            chosen["test"] = tests[0]
        if not chosen:
            raise SpecError(
                f"{self.title} has the parts {', '.join(self.parts)}; they must be train and test, "
                "or train and validation, with labels. Rename them, and write them by save_to_disk."
            )
        if tests and tests[0] != "test":
            reason = "it has no part test"
            if "test" in self.parts:
                reason = f"the labels of test are hidden ({_HIDDEN})"
            text = f"The test images of {self.title} are its part {tests[0]}, since {reason}."
            warnings.warn(text, Remark, stacklevel=2)
        unread = sorted(self.parts.keys() - {*chosen.values(), *names})
        if unread:
            text = f"Not read of {self.title}: {', '.join(unread)}."
            warnings.warn(text, Remark, stacklevel=2)
        return chosen

    def _is_hidden(self, part: str) -> bool:
        labels = self._labels(part)
        return labels is not None and bool((labels == _HIDDEN).all())

    def _class_names(self, part: str) -> Sequence[str]:
        """Return the names of a ClassLabel; () of another column."""
        return getattr(self.parts[part].features.get(self.columns.label), "names", ())

    def _labels(self, part: str) -> Array | None:
        """Return the labels of a part, as they are stored."""
        column = self.columns.label
        if not column:
            return None
        table = self.parts[part].select_columns([column]).with_format("numpy")
        values: Array = table[:][column]
        return values

    def _name(self, part: str, row: int) -> str:
        return f"Image {row} of {part} of {self.title}"

    def _encoded(self, part: str, rows: Sequence[int]) -> list[bytes]:
        """Return the contents of images.

        Raises:
            JembenchError: if an image has none.
        """
        column = self.columns.image
        contents: list[bytes] = []
        for row, value in zip(rows, self.table(part)[list(rows)][column], strict=True):
            encoded = value and value["bytes"]
            if not encoded:
                raise JembenchError(
                    f"{self._name(part, row)} has no bytes in the column {column}. Load the data "
                    "with the library datasets, and write it by save_to_disk, which keeps these."
                )
            contents.append(encoded)
        return contents

    def _table(self, part: str) -> Any:
        """Return the column of images, which are not decoded."""
        column = self.columns.image
        table = self.parts[part].select_columns([column]).with_format(None)
        with _errors(self.datasets, self.place):
            return table.cast_column(column, self.datasets.Image(decode=False))

    def _images(self, part: str, form: Form) -> Any:
        """Return the pixels of a part, uint8 (N, C, H, W)."""
        images = EncodedImages(
            len(self.parts[part]),
            form,
            functools.partial(self._name, part),
            functools.partial(self._encoded, part),
        )
        place = self.place / self.config / part / self.columns.image
        fingerprint = content(self.files, digest_of_rows)
        return cached(images, f"{self.title}-{part}", place, fingerprint)


def _kind(feature: Any) -> str:
    """Return the type of a column as text."""
    return str(getattr(feature, "dtype", None) or type(feature).__name__)

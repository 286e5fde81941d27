"""Bundles as repositories of the Hugging Face Hub, by its own client (the extra ``hub``)."""

from __future__ import annotations

import glob
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from jembench.errors import JembenchError, SpecError, Unavailable, error_text
from jembench.store import manifest
from jembench.store.manifest import MANIFEST

PREFIX = "hf://"


class Repository(NamedTuple):
    """A repository, and the branch, tag or commit of it that is meant."""

    name: str  # user/name
    revision: str = "main"


def parse(text: str) -> Repository:
    """Read ``hf://user/name``, with ``@revision`` behind if it is not the main branch.

    Raises:
        SpecError: if it is of another form.
    """
    found = re.fullmatch(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text, re.ASCII)
    if found is None:
        raise SpecError(f"{text} is no repository; it must be hf://USER/NAME or hf://USER/NAME@REVISION.")
    return Repository(found[1], found[2] or "main")


def upload(folder: Path, to: str, *, private: bool = False) -> str:
    """Make the files of a bundle those of a repository, which is created if it is not there, in one commit.

    Files of a bundle that was there before are removed; all others are left alone.

    Returns:
        the address of the commit.

    Raises:
        Unavailable: if the hub cannot be reached or refuses, or its client is not installed.
    """
    repository = parse(to)
    with _explained(to, "write") as hub:
        api = hub.HfApi(library_name="jembench")
        api.create_repo(repository.name, private=private, exist_ok=True)
        names = [MANIFEST, *manifest.read(folder)]
        there = api.list_repo_files(repository.name, revision=repository.revision)
        changes = [hub.CommitOperationDelete(name) for name in there if manifest.is_part(name) and name not in names]
        changes += [hub.CommitOperationAdd(name, str(folder / name)) for name in names]
        done = api.create_commit(
            repository.name, changes, commit_message="Share a trained model", revision=repository.revision
        )
        return str(done.commit_url)


def download(source: str) -> Path:
    """The folder of a repository's bundle in the cache of the hub's client. What is there is not loaded again.

    Only files that the manifest names are loaded. They are links to files of the cache.

    Raises:
        Unavailable: if the hub cannot be reached or refuses, or its client is not installed.
        DamagedError: if the manifest is damaged.
    """
    name, revision = parse(source)
    with _explained(source, "read") as hub:
        folder = Path(hub.hf_hub_download(name, MANIFEST, revision=revision, library_name="jembench")).parent
        wanted = [glob.escape(part) for part in (MANIFEST, *manifest.read(folder))]
        commit = folder.name
        return Path(hub.snapshot_download(name, revision=commit, allow_patterns=wanted, library_name="jembench"))


@contextmanager
def _explained(where: str, right: str) -> Iterator[Any]:
    """The hub's client; what goes wrong with it becomes an error for users."""
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        raise Unavailable(
            f"{where} needs huggingface_hub, which cannot be imported ({error}). Install it: pip install "
            '"jembench[hub]"; or use a folder or a zip archive.'
        ) from error
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        yield hub
    except JembenchError:
        raise
    except Exception as error:  # its own, and those of whichever HTTP client it uses
        raise _explanation(where, right, error, errors) from error


def _explanation(where: str, right: str, error: BaseException | None, errors: Any) -> JembenchError:
    """What an error of the client means for the user; the causes of an error count too."""
    if isinstance(error, errors.RevisionNotFoundError):
        return SpecError(f"{where}: the repository has no such revision. Name a branch, a tag or a commit.")
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return SpecError(f"{where} holds no trained model: it has no {MANIFEST}, which `jembench push` writes.")
    cause = ""
    while error:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if status in (401, 403, 404):
            return Unavailable(
                f"{where}: the hub answers {status}: there is no such repository, or you may not {right} it. Check the "
                f"name, and log in by `hf auth login` or set HF_TOKEN to a token with the right to {right} it."
            )
        cause = " ".join(error_text(error).split())[:300]
        error = error.__cause__
    return Unavailable(
        f"{where} could not be transferred ({cause}). Neither it nor the store was changed. Check the connection, and "
        "run the same command again: files that have arrived whole are kept."
    )

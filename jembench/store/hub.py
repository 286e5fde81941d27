"""Shared models on the Hugging Face Hub, through its own client.

The client is the extra ``hub``.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jembench.errors import JembenchError, SpecError, Unavailable, error_text
from jembench.store import manifest
from jembench.store.manifest import MANIFEST

PREFIX = "hf://"


def parse(text: str) -> tuple[str, str]:
    """Read ``hf://user/name`` or ``hf://user/name@revision``.

    Returns:
        ``user/name``, and the branch, tag or commit, by default ``main``.

    Raises:
        SpecError: if the text has another form.
    """
    address = re.fullmatch(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text, re.ASCII)
    if address is None:
        raise SpecError(
            f"{text} is no repository; it must be hf://USER/NAME or hf://USER/NAME@REVISION."
        )
    return address[1], address[2] or "main"


def upload(folder: Path, to: str, *, private: bool = False) -> str:
    """Upload a shared model to a repository in one commit.

    A missing repository is created. In an existing one, files of the previous model are removed,
    and all other files are left alone.

    Returns:
        The address of the commit.

    Raises:
        Unavailable: if the hub cannot be reached or refuses, or its client is not installed.
    """
    name, revision = parse(to)
    with _client(to, "write") as hub:
        api = hub.HfApi(library_name="jembench")
        api.create_repo(name, private=private, exist_ok=True)
        parts = [MANIFEST, *manifest.read(folder)]
        former = set(api.list_repo_files(name, revision=revision)).difference(parts)
        changes = [hub.CommitOperationDelete(part) for part in former if manifest.is_part(part)]
        changes += [hub.CommitOperationAdd(part, str(folder / part)) for part in parts]
        # not by ``upload_folder``, which may make several commits
        done = api.create_commit(
            name, changes, commit_message="Share a trained model", revision=revision
        )
        return str(done.commit_url)


def download(source: str) -> Path:
    """Return the cached folder of a repository.

    Only files that the manifest names and the cache lacks are loaded. The folder has links to the
    files of the cache.

    Raises:
        Unavailable: if the hub cannot be reached or refuses, or its client is not installed.
        DamagedError: if the manifest is damaged.
    """
    name, revision = parse(source)
    with _client(source, "read") as hub:
        folder = Path(
            hub.hf_hub_download(name, MANIFEST, revision=revision, library_name="jembench")
        ).parent
        wanted = list(manifest.read(folder))  # names without wildcards
        hub.snapshot_download(
            name, revision=folder.name, allow_patterns=wanted, library_name="jembench"
        )
        return folder


@contextmanager
def _client(where: str, right: str) -> Iterator[Any]:
    """Give the hub's client; its errors become errors for users."""
    try:
        import huggingface_hub as hub
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        raise Unavailable(
            f"{where} needs huggingface_hub, which cannot be imported ({error}). Install it: pip "
            "install "
            '"jembench[hub]"; or use a folder or a zip archive.'
        ) from error
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        yield hub
    except JembenchError:
        raise
    except Exception as error:  # of the client, or of its HTTP library
        raise Unavailable(
            f"{where} could not be transferred ({' '.join(error_text(error).split())[:300]}). "
            "Neither it nor the store was changed. Check the name, the connection and your right "
            f"to {right} it (`hf auth login`, or HF_TOKEN). A repository of a trained model holds "
            f"{MANIFEST}, which `jembench push` writes. Run the same command again: files that "
            "have arrived whole are kept."
        ) from error

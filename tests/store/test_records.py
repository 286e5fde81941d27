import json
import os

import pytest

from jembench.errors import DamagedError, StoreError
from jembench.store import records

VALUE = {"z": [1, 2.5, None, True], "a": "é, \u2028", "inner": {"digest": "mine"}}


@pytest.fixture
def path(tmp_path):
    records.write(tmp_path / "x.json", VALUE)
    return tmp_path / "x.json"


def test_a_record_comes_back(path):
    record = records.read(path)
    assert VALUE.items() <= record.data.items()
    assert json.loads(path.read_text()) == record.data  # plain JSON for everybody else


def test_every_flipped_bit_is_seen(path):
    whole = path.read_bytes()
    for position in range(len(whole)):
        for bit in range(8):
            path.write_bytes(
                whole[:position] + bytes([whole[position] ^ 1 << bit]) + whole[position + 1 :]
            )
            with pytest.raises(
                StoreError, match=r"damaged|valid JSON|must be|lacks|newer jembench"
            ):
                records.read(path)


def test_every_cut_is_seen(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedError):
            records.read(path)


DEEP = '{"schema": 1, "a": ' + "[" * 100_000 + "]" * 100_000 + "}"

STRANGE = {
    "empty": b"",
    "cut": b'{"schema": 1, "values": {"acc',
    "python": b"{'schema': 1}",
    "latin-1": '{"schema": 1, "a": "é"}'.encode("latin-1"),
    "bom": b"\xef\xbb\xbf" + b'{"schema": 1}',
    "utf-16": '{"schema": 1}'.encode("utf-16"),
    "deep": DEEP.encode(),
    "digits": b'{"schema": 1, "a": ' + b"9" * 5000 + b"}",
    "overflow": b'{"schema": 1, "a": 1e999}',
    "nan": b'{"schema": 1, "a": NaN}',
    "infinity": b'{"schema": 1, "a": -Infinity}',
    "twice": b'{"schema": 1, "a": 1, "a": 2}',
    "surrogate": b'{"schema": 1, "a": "\\ud800"}',
    "null byte": b'{"schema": 1}\0',
    "list": b'[{"schema": 1}]',
    "null": b"null",
    "schema 0": b'{"schema": 0}',
    "schema true": b'{"schema": true}',
    "schema text": b'{"schema": "1"}',
    "no digest": b'{"schema": 2, "a": 2}',
}


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE)
def test_what_is_no_record_is_one_paragraph(path, content):
    path.write_bytes(content)
    with pytest.raises(DamagedError) as caught:
        records.read(path)
    assert str(path) in str(caught.value)
    assert "Remove the file and run the same command again" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))


def test_a_newer_record_is_refused(path):
    path.write_text(json.dumps({"schema": records.SCHEMA + 1}))
    with pytest.raises(
        StoreError, match=r"newer jembench \(schema 3, this one reads up to 2\)\. Update"
    ) as caught:
        records.read(path)
    assert not isinstance(caught.value, DamagedError)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "large").write_text('{"schema": 1}')
    monkeypatch.setattr(records, "LARGEST", 5)
    for name, why in {
        "fifo": "Not a regular file",
        "loop": "Too many",
        "": "directory",
        "large": "too large",
    }.items():
        with pytest.raises(DamagedError, match=rf"Cannot read .*{why}"):
            records.read(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        records.read(tmp_path / "none.json")


def test_a_number_that_is_not_finite_is_a_bug_and_writes_nothing(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.write(tmp_path / "x.json", {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []

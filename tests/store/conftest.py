"""The small store that most tests of this folder copy."""

import pytest
from small_store import small_store


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("store") / "whole").root

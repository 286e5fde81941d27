"""What a figure says of the defence that was attacked."""

from types import SimpleNamespace

import pytest

from jembench.report.figures import adversarial


@pytest.mark.parametrize(
    ("protocol", "text"),
    [
        ({"refine": "10", "eot": "5", "grad": "bpda"}, ", 10 steps, 5 chains, bpda"),
        ({"refine": "1", "eot": "1", "grad": "through"}, ", 1 step, 1 chain, through"),
        ({"smooth": "0.25", "eot": "10"}, ", smoothed 0.25, 10 copies"),
        ({"refine": "0"}, ""),
    ],
)
def test_chains_are_of_refinement_and_copies_of_smoothing(protocol, text):
    assert adversarial.refinement(SimpleNamespace(protocol=protocol)) == text

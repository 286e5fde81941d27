from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import DataSpec, Samples, Source
from jembench.interfaces.evaluation import KEPT
from jembench.metrics.base import protocol_id
from jembench.metrics.pretrained import InceptionFeatures
from jembench.metrics.sample_protocol import SampleProtocol, features_spec, generated, passes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"steps": 5},
            "steps=5 sets how new chains run, and source=kept runs none. Add source=fresh",
        ),
        ({"images": 5}, "images=5 sets how new chains run"),
        ({"conditional": False}, "conditional=false sets how new chains run"),
        ({"source": "fresh", "pooling": "five"}, "pooling=five uses the chains that training kept"),
        ({"sampler": "sgld", "pooling": "five"}, "pooling=five uses the chains that training kept"),
        ({"selection": "model", "top": 0.0}, "top is 0.0; it must be a share"),
        ({"selection": "model", "top": -0.1}, "top is -0.1"),
        ({"selection": "model", "top": 2.5}, "top is 2.5"),
        ({"selection": "model", "top": float("nan")}, "top is nan"),
        ({"selection": "model", "top": float("inf")}, "top is inf"),
        ({"per_class": True}, "per_class=true keeps the most confident images: say whose"),
        ({"top": 0.1}, "top=0.1 keeps the most confident images: say whose confidence"),
        (
            {"selection": "features"},
            "selection=features keeps the most confident images: say how many",
        ),
    ],
)
def test_options_without_meaning_or_effect_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        SampleProtocol(**options)


@given(
    top=st.one_of(st.floats(min_value=1e-9, max_value=1, exclude_max=True), st.integers(2, 300)),
    n=st.integers(1, 300),
)
def test_top_is_a_share_or_a_number(top, n):
    asked = SampleProtocol(selection="model", top=top)
    if top > n:
        message = f"{n} images are fewer than the {int(top)} most confident to keep"
        with pytest.raises(NotApplicable, match=message):
            asked.count(n)
        return
    count = asked.count(n)
    assert count == top if top > 1 else (count == 1 or abs(count - top * n) <= 0.5)
    assert count >= 1


def test_an_evaluation_is_asked_for_what_the_options_say():
    assert SampleProtocol().wanted == KEPT
    asked = SampleProtocol(source="fresh", steps=5, images=100, conditional=True)
    assert asked.wanted == Source(chains="fresh", steps=5, images=100, conditional=True)
    assert SampleProtocol(pooling="mean", selection="model", top=0.1).wanted == Source(
        pooling="mean"
    )


@pytest.mark.parametrize(
    ("pixels", "content", "weights", "network"),
    [
        (31, "own", True, "cnn"),
        (32, "own", True, "inception"),
        (32, "own", False, "cnn"),
        (32, "", False, "inception"),
    ],
)
def test_own_images_have_features_without_inceptions_weights(
    tmp_path, monkeypatch, pixels, content, weights, network
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    if weights:
        InceptionFeatures.published.cached.parent.mkdir(parents=True)
        InceptionFeatures.published.cached.touch()
    data = SimpleNamespace(
        spec=DataSpec(name="any", shape=(3, pixels, pixels), num_classes=2), content=content
    )
    assert features_spec("auto", data) == network
    assert features_spec("inception", data) == "inception"


def chosen():
    """Every combination of options that is allowed."""
    sources = [{"pooling": pooling} for pooling in ("one", "five", "mean")]
    sources += [
        {"source": "fresh", "steps": steps, "images": images, "conditional": conditional}
        for steps, images, conditional in itertools.product((5, 50), (40, 60), (False, True))
    ]
    selections = [{}]
    selections += [
        {"selection": selection, "per_class": per_class, "top": top}
        for selection, per_class, top in itertools.product(
            ("model", "features"), (False, True), (0.1, 0.5, 6)
        )
    ]
    return [SampleProtocol(**source, **selection) for source in sources for selection in selections]


def test_an_id_says_which_images_are_scored_and_nothing_else(generation, fake):
    class Model:
        def logits(self, x):
            return x.flatten(1)[:, :3] * 4

    generation.model, generation.network = Model(), fake.Features(dimensions=13)
    for seed, wanted in enumerate(dict.fromkeys(asked.wanted for asked in chosen())):
        kind = (
            "buffer"
            if wanted.chains == "kept"
            else f"chains:conditional={wanted.conditional},steps={wanted.steps}"
        )
        images = fake.images(300 if wanted.pooling == "five" else 60, seed)[: wanted.images]
        generation.by_source[wanted] = Samples(images, None, kind)
    meanings, images_of = {}, {}
    for asked in chosen():
        sample = generated(generation, "auto", asked)
        name = protocol_id("is", generation, splits=10, **sample.identity)
        meaning = asked.wanted, asked.selection, asked.per_class, sample.n
        assert meanings.setdefault(name, meaning) == meaning
        assert torch.equal(images_of.setdefault(name, sample.images), sample.images)
    assert len(meanings) == len(set(meanings.values())) > 100


def test_a_sample_costs_the_steps_of_its_chain_and_of_those_that_were_left_out_for_it(
    generation, fake
):
    images = fake.images(60, 0)
    kept = Samples(images, None, "buffer", torch.arange(60) % 3)
    sources = [
        kept,
        kept._replace(ages=None),
        *(Samples(images, None, kind) for kind in ("direct", "sgld:steps=7")),
    ]
    assert list(map(passes, sources)) == [1.0, None, 1.0, 7.0]
    asked = SampleProtocol(source="fresh", steps=7, selection="features", top=0.5)
    generation.network, generation.by_source[asked.wanted] = (
        fake.Features(dimensions=13),
        sources[3],
    )
    assert generated(generation, "auto", asked).passes == 14.0

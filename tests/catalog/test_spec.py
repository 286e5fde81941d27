import copy
import json
import math
import pickle
from typing import Annotated, Literal
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jembench.catalog import discovery, registry
from jembench.catalog.options import OnlyWith, options_of
from jembench.catalog.spec import Spec, format_value, slug, split_list, stable_hash
from jembench.catalog.validation import Range, read_text
from jembench.errors import PluginError, SpecError, printable

names = st.from_regex(
    r"[A-Za-z_][A-Za-z0-9_.-]{0,8}(/[A-Za-z_][A-Za-z0-9_.-]{0,8})?(:[A-Za-z_][A-Za-z0-9_.]{0,8})?",
    fullmatch=True,
)
keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
texts = st.text() | st.text(alphabet='",=:/\\ \té.a0')
values = texts.filter(lambda text: printable(text) == text and "\n" not in text)
specs = st.builds(
    Spec.of,
    names,
    st.dictionaries(keys, values, max_size=4),
)
whole = st.integers(-(2**63), 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    "escape", [r"\u001b]0;title\u0007", r"a\nb", r"\u009b2J", r"\u202e", r"\ud800"]
)
def test_a_value_holds_no_escape_of_a_control_character(escape):
    with pytest.raises(SpecError, match="the value of net holds a control character"):
        Spec(f'jem:net="{escape}"')
    inner = f'jem:net="{escape}"'.replace("\\", "\\\\").replace('"', '\\"')
    options = Spec(f'ood:set="{inner}"').options
    with pytest.raises(SpecError, match="the value of net holds a control character"):
        Spec(options["set"])


@given(specs)
@example(Spec.of("a", {"x": "1,y=2"}))
@example(Spec.of("a", {"x": "", "y": " "}))
@example(Spec.of("a", {"root": r"C:\data\new, old"}))
@example(Spec.of("mypkg.zoo:build", {"url": "http://a/b?c=d"}))
def test_parsing_inverts_writing(spec):
    parsed = Spec(str(spec))
    assert (parsed, parsed.name, parsed.options) == (spec, spec.name, spec.options)


@given(specs)
def test_a_spec_is_its_text(spec):
    assert (spec, hash(spec), json.dumps(spec)) == (
        str(spec),
        hash(str(spec)),
        json.dumps(str(spec)),
    )
    for copied in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)):
        assert (copied, copied.name, copied.options) == (spec, spec.name, spec.options)


def test_options_are_set_and_left_out():
    spec = Spec("jembench/ece:resamples=0, bins=10")
    assert spec.bare == "ece"
    assert spec.with_(bins=15, eps=None) == "jembench/ece:bins=15,eps=none,resamples=0"
    assert spec.without("bins", "eps") == "jembench/ece:resamples=0"
    assert spec == "jembench/ece:bins=10,resamples=0"  # as before


@given(st.lists(specs, max_size=5))
def test_split_list_inverts_join(many):
    assert [Spec(text) for text in split_list(",".join(map(str, many)))] == many


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("jem", "jem", {}),
        ("  jem\n", "jem", {}),
        ("jem-factored:net=wrn-28-10", "jem-factored", {"net": "wrn-28-10"}),
        ("jem:b=2,a=1", "jem", {"a": "1", "b": "2"}),
        ("jem:a=1, b=2", "jem", {"a": "1", "b": "2"}),
        ("jembench-jem/jem:a=1", "jembench-jem/jem", {"a": "1"}),
        ("mypkg.zoo:build", "mypkg.zoo:build", {}),
        ("my_zoo.py:Net:a=1", "my_zoo:Net", {"a": "1"}),
        ("mypkg.zoo:Nets.build:width=3", "mypkg.zoo:Nets.build", {"width": "3"}),
        ("jem:net=mypkg.nets:build", "jem", {"net": "mypkg.nets:build"}),
        ('jem:net="wrn:depth=10,width=2"', "jem", {"net": "wrn:depth=10,width=2"}),
        ("imagefolder:root=/data/été=1", "imagefolder", {"root": "/data/été=1"}),
        (r"imagefolder:root=C:\data", "imagefolder", {"root": r"C:\data"}),
    ],
)
def test_a_spec_is_parsed(text, name, arguments):
    assert Spec(text) == Spec.of(name, arguments)
    assert (Spec(text).name, Spec(text).options) == (name, arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a spec. Write name:key=value,key=value, for example jem:net=wrn-28-10."),
        ("3d net", "'3d net' is not a spec."),
        (
            "./my_zoo.py:Net",
            "'./my_zoo.py:Net' is a file. Write my_zoo:Net, in the folder that holds my_zoo.py.",
        ),
        (
            "zoo/my_zoo.py:Net:a=1",
            "'zoo/my_zoo.py:Net:a=1' is a file. Write my_zoo:Net:a=1, in the folder that holds "
            "my_zoo.py.",
        ),
        ("jem:lr 1", "In 'jem:lr 1', 'lr 1' is not key=value. Write name:key=value,key=value;"),
        ("jem:a=1,b", "In 'jem:a=1,b', 'b' is not key=value."),
        (split_list('jem:a="1,baseline')[0], "is not key=value."),
        ('jem:a=it"s', "is not key=value."),
        ("jem:", "In 'jem:', '' is not key=value. Write name:key=value,key=value;"),
        ("jem:a=1,", "In 'jem:a=1,', '' is not key=value."),
        ("toy:", "'' is not key=value."),
        ("jem:a=1,a=2", "In 'jem:a=1,a=2', 'a' is given twice. Keep one of the two."),
        (r'jem:a="C:\data"', "Write a backslash inside quotes twice."),
    ],
)
def test_what_cannot_be_parsed_says_how_to_write_it(text, message):
    with pytest.raises(SpecError) as caught:
        Spec(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("jem,baseline", ["jem", "baseline"]),
        (" jem , baseline ", ["jem", "baseline"]),
        ("jem:a=1,b=2,baseline", ["jem:a=1,b=2", "baseline"]),
        ("jem:a=1, b=2, baseline", ["jem:a=1, b=2", "baseline"]),
        ('jem:net="wrn:a=1,b=2",baseline', ['jem:net="wrn:a=1,b=2"', "baseline"]),
        ("mypkg.zoo:build,mypkg.zoo:other:a=1,b=2", ["mypkg.zoo:build", "mypkg.zoo:other:a=1,b=2"]),
        ("", []),
    ],
)
def test_split_list(text, pieces):
    assert split_list(text) == pieces


@pytest.mark.parametrize(
    "text", ["jem,,baseline", "jem, ,baseline", ",jem", "jem,", 'jem:a="1,,2",', ",", " , "]
)
def test_no_part_of_a_list_is_empty(text):
    with pytest.raises(SpecError, match="a part between commas is empty"):
        split_list(text)


def factory(
    data_spec,
    *,
    net: str = "small",
    width: int = 2,
    lr: float = 1,
    norm: Literal["none", "batch"] = "none",
    eps: float | None = None,
    cold: bool = False,
) -> None:
    """A factory."""


def needy(*, root: str) -> None: ...


def resolve(text, factory):
    """Resolve the spec of a model whose factory is given, installed or not."""
    component = discovery.Component("models", Spec(text).name, "", "", __name__, factory.__name__)
    with mock.patch.multiple(discovery, find=lambda *_: component, load=lambda _: factory):
        return registry.resolve("models", text)


def test_a_default_that_is_given_changes_nothing():
    left_out = resolve("jem", factory)
    given_ = resolve("jem:net=small,width=2,lr=1,norm=none,eps=none,cold=false", factory)
    assert str(given_) == str(left_out) == "jem"
    assert left_out.arguments == {
        "net": "small",
        "width": 2,
        "lr": 1.0,
        "norm": "none",
        "eps": None,
        "cold": False,
    }
    assert stable_hash(given_.identity) == stable_hash(left_out.identity)


def normed(
    data_spec, *, norm: str = "none", momentum: Annotated[float, OnlyWith("norm", "batch")] = 0.9
) -> None:
    """A factory whose momentum is that of one norm."""


def test_an_option_counts_only_where_it_changes_something():
    identities = {
        text: resolve(text, normed).identity["arguments"]
        for text in ("jem", "jem:momentum=0.5", "jem:norm=batch")
    }
    assert identities["jem"] == identities["jem:momentum=0.5"] == {"norm": "none"}
    assert identities["jem:norm=batch"] == {"norm": "batch", "momentum": 0.9}
    assert str(resolve("jem:momentum=0.5", normed)) == "jem"
    assert str(resolve("jem:norm=batch,momentum=0.5", normed)) == "jem:momentum=0.5,norm=batch"


Positive = Annotated[float, Range(above=0)]


def ranged(*, width: Annotated[int, Range(least=1, most=9)] = 2, clip: Positive | None = None): ...


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("width=0", "width of jem is 0; it must be at least 1 and at most 9."),
        ("width=10", "width of jem is 10; it must be at least 1 and at most 9."),
        ("clip=0", "clip of jem is 0.0; it must be greater than 0."),
    ],
)
def test_values_out_of_range(text, message):
    with pytest.raises(SpecError) as caught:
        resolve(f"jem:{text}", ranged)
    assert str(caught.value) == message


@given(
    st.fixed_dictionaries({}, optional={
        "net": values, "width": whole, "lr": finite, "norm": st.sampled_from(["none", "batch"]),
        "eps": st.none() | finite, "cold": st.booleans()})
)  # fmt: skip
def test_the_canonical_spec_rebuilds_the_component(arguments):
    bound = resolve(Spec.of("jem", arguments), factory)
    assert {key: bound.arguments[key] for key in arguments} == arguments
    assert math.copysign(1, bound.arguments["lr"]) == math.copysign(1, arguments.get("lr", 1))
    assert resolve(str(bound), factory) == bound
    assert str(resolve(str(bound), factory)) == str(bound)


def test_unknown_option():
    with pytest.raises(SpecError) as caught:
        resolve("jem:widht=3", factory)
    assert str(caught.value) == (
        "There is no option of jem named 'widht'. Nearest: width. Known: cold, eps, lr, net, "
        "norm, width. `jembench list models` says what each one is."
    )


def test_missing_option():
    with pytest.raises(SpecError, match=r"imagefolder needs root: write imagefolder:root=\.\.\."):
        resolve("imagefolder", needy)
    with pytest.raises(
        SpecError,
        match=r"write ood:set=\.\.\., one of .*uniform.*`jembench list ood_sets`, `jembench list "
        r"datasets`",
    ):
        registry.resolve("metrics", "ood")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("width=2.5", "width of jem is '2.5'; it must be a whole number."),
        ("width=", "width of jem is ''; it must be a whole number."),
        (f"width={2**63}", "it must be a whole number of at most 63 bits."),
        ("lr=fast", "lr of jem is 'fast'; it must be a finite number."),
        ("lr=nan", "lr of jem is 'nan'; it must be a finite number"),
        ("lr=1e999", "lr of jem is '1e999'; it must be a finite number"),
        ("lr=1/0", "lr of jem is '1/0'; it must be a finite number"),
        (f"lr={10**400}/1", "it must be a finite number"),
        ("norm=group", "norm of jem is 'group'; it must be one of none, batch."),
        ("cold=maybe", "cold of jem is 'maybe'; it must be true or false."),
    ],
)
def test_values_of_the_wrong_type(text, message):
    with pytest.raises(SpecError) as caught:
        resolve(f"jem:{text}", factory)
    assert message in str(caught.value)


@given(st.integers(), st.integers(min_value=1))
def test_fractions_are_read_exactly(numerator, denominator):
    try:
        expected = numerator / denominator  # correctly rounded by Python
    except OverflowError:
        return
    assert read_text(f"{numerator}/{denominator}", float, "it") == expected


def test_a_literal_keeps_the_type_of_its_choice():
    for value in (None, True, 3, "a"):
        back = read_text(format_value(value), Literal[None, True, 3, "a"], "it")
        assert (type(back), back) == (type(value), value)


@pytest.mark.parametrize("annotation", [list, int | str, int | float | None, dict[str, int]])
def test_other_types_are_the_plugins_fault(annotation):
    with pytest.raises(
        PluginError, match=r"it has the type .*; options are int, float, bool, str, Literal"
    ):
        read_text("1", annotation, "it")


def test_an_option_without_a_type_is_the_plugins_fault():
    def untyped(*, width=3): ...

    with pytest.raises(PluginError, match="width of jem has no type; options are int"):
        resolve("jem:width=3", untyped)


def test_annotations_may_be_text():
    def late(data_spec, positional: int = 1, *, eps: "float | None" = None): ...

    assert options_of(late)["eps"].annotation == float | None
    assert list(options_of(late)) == ["eps"]


def test_annotations_that_cannot_be_read_are_the_plugins_fault():
    def bad(*, net: "Nowhere"): ...  # noqa: F821

    with pytest.raises(
        PluginError, match=r"cannot read the type 'Nowhere' of option 'net' \(name 'Nowhere'"
    ):
        options_of(bad)


def test_stable_hash_is_pinned():
    """Stores made by earlier versions are found by this hash: it must never change."""
    assert (
        stable_hash({"name": "jem", "arguments": {"net": "wrn-28-10", "lr": 1e-4, "eps": None}})
        == "a6c06707ce"
    )


def test_stable_hash_tells_values_apart():
    assert len({stable_hash(value) for value in (1, 1.0, "1", [1], None, True, {"1": 1})}) == 7


@given(st.text())
def test_slug_is_a_safe_file_name(text):
    assert len(slug(text)) <= 60
    assert "/" not in slug(text)
    assert slug(text).isascii()
    assert not slug(text).startswith((".", "-"))


@pytest.mark.parametrize(("name", "option"), [("torchvision", "name"), ("hf", "source")])
def test_a_dataset_has_a_short_form_as_the_model_of_its_name(name, option):
    short = Spec(f"{name}:FashionMNIST,size=8")
    assert Spec(f"{name}:size=8,{option}=FashionMNIST") == short == f"{name}:FashionMNIST,size=8"
    assert Spec(f"{name}:size=8,{option}=FashionMNIST").options == short.options
    assert Spec.of(name, {"size": 8, option: "FashionMNIST"}) == short
    assert Spec.of(name, short.options) == short
    # the first option comes first, also where another one precedes it in the alphabet
    assert Spec(f"{name}:config=a,{option}=b") == f"{name}:b,config=a"


def test_a_short_form_and_the_option_beside_it_are_two_options():
    with pytest.raises(SpecError, match="model"):
        registry.resolve("datasets", "torchvision:MNIST,name=KMNIST")
    assert registry.resolve("datasets", "torchvision:MNIST").arguments["name"] == "MNIST"
    assert registry.resolve("datasets", "torchvision:MNIST").spec == "torchvision:MNIST"

"""The id of a metric's protocol."""

from __future__ import annotations

from jembench.catalog.spec import Scalar, Spec, format_value
from jembench.interfaces import Evaluation


def protocol_id(metric: str, evaluation: Evaluation, **parts: Scalar) -> str:
    """The identity of a measurement: the metric, the data and everything else that decides what the number means.

    Written like a spec string, keys sorted: ``accuracy:data=digits,data_noise=0,images=397,split=test``. The name of a
    data set of the user's own files says little, so a hash of their content stands beside it.
    """
    named = {"data": evaluation.data.spec.name, **parts}
    if evaluation.data.content:
        named["data_content"] = evaluation.data.content
    return str(Spec(metric, tuple((key, format_value(value)) for key, value in named.items())))

"""Formulas as MathML, which browsers draw themselves: no script and no font has to be fetched."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    label = f' id="equation-{node["label"]}"' if node.get("label") else ""
    translator.body.append(
        f'<div class="math"{label}>{convert(node.astext(), display="block")}{number}</div>'
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the renderer, which `html_math_renderer` selects."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True}

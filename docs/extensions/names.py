"""Short names in docstrings and signatures lead to the one object of this name in the reference."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

KINDS = {"class", "exc", "obj", "func", "data"}


def _resolve(app: Sphinx, env: Any, node: Any, content: nodes.Element) -> nodes.Element | None:
    if node.get("refdomain") != "py" or node["reftype"] not in KINDS:
        return None
    last = node["reftarget"].rpartition(".")[2]
    objects = env.get_domain("py").objects
    found = {
        entry.node_id: entry for name, entry in objects.items() if name.rpartition(".")[2] == last
    }
    classes = [
        entry for entry in found.values() if entry.objtype in ("class", "exception", "function")
    ]
    if len(classes) != 1:
        return None
    return make_refnode(
        app.builder, node["refdoc"], classes[0].docname, classes[0].node_id, content, last
    )


def _no_type(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Napoleon would take what stands before a colon in the text of an attribute for its type."""
    if what in ("attribute", "data", "property") and lines:
        lines[0] = f": {lines[0]}"


def setup(app: Sphinx) -> dict[str, Any]:
    """Look names up that Sphinx does not find."""
    app.connect("autodoc-process-docstring", _no_type, priority=100)  # before napoleon
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True}

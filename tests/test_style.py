"""How a line of ``jembench/`` looks, where ruff has no rule for it (CONTRIBUTING.md)."""

import ast
from pathlib import Path

import pytest

import jembench

PACKAGE = Path(jembench.__file__).parent
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def is_text_or_list(node):
    constant_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return constant_text or isinstance(node, ast.JoinedStr | ast.List | ast.ListComp)


def is_flag(node):
    called = node.func if isinstance(node, ast.Call) else None
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    is_bool = isinstance(called, ast.Name) and called.id == "bool"
    return negated or is_bool or isinstance(node, ast.Compare | ast.BoolOp)


def inside(node, kind):
    """Return whether a node holds another one of a kind."""
    return any(isinstance(child, kind) for child in ast.walk(node) if child is not node)


def faults(tree):
    """Yield the line and the rule of each statement that breaks one."""
    for node in ast.walk(tree):
        if isinstance(node, COMPREHENSIONS):
            if inside(node, COMPREHENSIONS):
                yield node.lineno, "nested comprehension"
            if inside(node, ast.NamedExpr):
                yield node.lineno, "walrus in a comprehension"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            factors = (node.left, node.right)
            if any(map(is_text_or_list, factors)) and any(map(is_flag, factors)):
                yield node.lineno, "product with a flag"
        if isinstance(node, ast.FormattedValue) and inside(node, ast.IfExp):
            yield node.lineno, "conditional expression in an f-string"


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("[[a for a in b] for b in c]", "nested comprehension"),
        ("{a for a in (b for b in c)}", "nested comprehension"),
        ("[b for a in c if (b := a.b)]", "walrus in a comprehension"),
        ("'s' * (n > 1)", "product with a flag"),
        ("(not quiet) * ['note']", "product with a flag"),
        ("f'{n}' * bool(n)", "product with a flag"),
        ("f'{a if b else c}'", "conditional expression in an f-string"),
    ],
)
def test_a_fault_is_seen(code, rule):
    assert {rule for _, rule in faults(ast.parse(code))} == {rule}


@pytest.mark.parametrize(
    "code", ["[a for a in b for b in c]", "'-' * width", "a if b else f'{c}'", "2 * (n > 1)"]
)
def test_plain_code_has_no_fault(code):
    assert list(faults(ast.parse(code))) == []


def test_the_package_breathes():
    places = []
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        places += [f"{path.name}:{line}: {rule}" for line, rule in faults(tree)]
    assert places == []

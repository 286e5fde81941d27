"""Results in a notebook are shown as HTML. Executed by nbconvert, in a process of its own."""

import pytest

CELL = """
import numpy, torch
import jembench as jb

images = numpy.arange(20 * 16, dtype=numpy.uint8).reshape(20, 4, 4)
data = {"train": (images, numpy.arange(20) % 2), "test": (images, numpy.arange(20) % 2)}
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
jb.run("hybrid", models=model, datasets=data, metrics="accuracy", store="runs", progress=False)
"""


def test_results_are_html(tmp_path, monkeypatch):
    pytest.importorskip("ipykernel", reason="tox -e plugins has it")
    nbconvert = pytest.importorskip("nbconvert", reason="tox -e plugins has it")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    executed = nbconvert.preprocessors.ExecutePreprocessor(timeout=60)
    exporter = nbconvert.HTMLExporter(preprocessors=[executed])
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"path": str(tmp_path)}})
    shown = page[page.index("<table") : page.index("</table>")]
    assert "Sequential" in shown
    assert "accuracy" in shown

"""A site: the pages of stores, and an index of their models whose links lead there."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
from small_store import flip, small_store

from jembench.api.site import write_site
from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.interfaces import Value
from jembench.store.outcome import Cell, Outcome
from jembench.store.store import Store


@pytest.fixture
def stores(tmp_path, monkeypatch, no_pictures):
    """A store of two models and two seeds; one of a model that is better, and of one on fewer
    images.
    """
    monkeypatch.chdir(tmp_path)
    first, second = small_store(tmp_path / "lab" / "runs"), Store(tmp_path / "other")
    (cell,) = (cell for cell in first.cells() if cell.id == "accjem000")
    for model, protocol in (
        ("best", cell.outcome.protocol),
        ("few", f"{cell.outcome.protocol},images=10"),
    ):
        values = {"accuracy": Value(99.9, 90.0, 100.0, 10, "%", "higher")}
        outcome = dataclasses.replace(cell.outcome, protocol=protocol, values=values)
        fit = dataclasses.replace(cell.fit, model=Spec(model), id=f"{model}000")
        second.write_cell(
            dataclasses.replace(cell, id=f"acc{model}000", fit=fit, outcome=outcome, arrays=""), {}
        )
    return [Path("lab/runs"), Path("other")]


def lines(page):
    """The lines of the first table: the texts of their cells, without what numbers open to."""
    text = re.sub(r"<dl>.*?</dl>", "", page.read_text().split("<thead>")[1].split("</table>")[0])
    rows = [re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in text.split("<tr>")[1:]]
    return [
        [re.sub(r"<[^>]*>|\s+", " ", cell).strip().replace("  ", " ") for cell in row]
        for row in rows
    ]


def test_the_index_has_the_best_model_first_and_a_column_for_each_protocol(stores):
    files, left_out = write_site(stores, Path("site"))
    assert [path.name for path in files] == ["index.html", "lab-runs.html", "other.html"]
    assert left_out == []
    head, *rows = lines(files[0])
    assert [text.split("&")[0] for text in head[:3]] == ["model", "store", "recipe"]
    assert ["images=none" in head[3], "images=10" in head[4]] == [True, True]
    assert [row[:2] for row in rows] == [
        *(["best", "other"], ["baseline", "lab/ runs"], ["jem", "lab/ runs"], ["few", "other"])
    ]
    assert rows[0][3].startswith("99.")
    assert rows[0][4] == rows[3][3] == "—"
    assert rows[3][4].startswith("99.")


def test_every_link_of_the_index_leads_to_a_place_in_a_page(stores):
    (index, *pages), _ = write_site(stores, Path("site"))
    ids = {path.name: set(re.findall(r' id="([^"]*)"', path.read_text())) for path in pages}
    links = [link.split("#") for link in re.findall(r'href="([^"#]+#[^"]*)"', index.read_text())]
    assert {page for page, _ in links} == {"lab-runs.html", "other.html"}
    assert all(place in ids[page] for page, place in links)
    assert ["lab-runs.html", "fit-jem000"] in links
    assert ["other.html", "best.digits.accuracy"] in links


def test_the_set_of_outliers_of_most_models_has_a_column_and_names_hold_in_all_stores(
    stores,
):
    for folder, of in ((stores[0], "uniform"), (stores[1], "interp"), (stores[1], "uniform")):
        protocol = f"ood:content={of}d1,data=digits,score=log-px,set={of}"
        outcome = Outcome(
            status="ok", protocol=protocol, values={"auroc": Value(0.5, 0.4, 0.6, 10, "", "higher")}
        )
        fit = min(Store(folder).cells(), key=lambda cell: cell.fit.model).fit
        Store(folder).write_cell(
            Cell(id=f"{of}{fit.id}", fit=fit, metric=Spec(f"ood:set={of}"), outcome=outcome), {}
        )
    (index, page, _), _ = write_site(stores, Path("site"), {"best": "My net", "auroc": "Area"})
    head, *rows = lines(index)
    assert head[-2:] == ["ECE % ↓", "Area log-px, uniform ↑"]
    assert [(row[0], row[-1][:3]) for row in rows if row[-1] != "—"] == [
        ("My net", "0.5"),
        ("baseline", "0.5"),
    ]
    assert "<title>Results · lab/runs</title>" in page.read_text()
    assert '<a href="index.html">' in page.read_text()
    with pytest.raises(SpecError, match="no model or column in these stores named 'none'"):
        write_site(stores, Path("site"), {"none": "My net"})


def test_a_result_of_several_stores_stands_once(stores):
    shutil.copytree(stores[0], "copy")
    (index, *_), _ = write_site([*stores, Path("copy")], Path("site"))
    assert len(lines(index)) == 1 + 4


def test_a_damaged_store_is_left_out_by_name_with_the_reason(stores):
    flip(next((stores[0] / "fits").glob("jem*s0*/model.safetensors")))
    files, left_out = write_site(stores, Path("site"))
    (note,) = left_out
    assert re.match(
        r"lab/runs: fits/jem-digits-digits-s0-jem000/model\.safetensors is damaged: ", note
    )
    assert [path.name for path in files] == ["index.html", "other.html"]
    assert "jem-digits-digits-s0-jem000/model.safetensors is damaged" in files[0].read_text()
    assert [row[0] for row in lines(files[0])[1:]] == ["best", "few"]


def test_pages_are_replaced_and_nothing_else(stores):
    folder = Path("site")
    first = write_site(stores[:1], folder)[0][0].read_text()
    assert write_site(stores, folder)[0][0].read_text() != first
    assert sorted(path.name for path in folder.iterdir()) == [
        "index.html",
        "lab-runs.html",
        "other.html",
    ]
    (folder / "index.html").write_text("<h1>my home page</h1>")
    with pytest.raises(SpecError, match=r"index\.html exists and is no page of jembench"):
        write_site(stores, folder)
    with pytest.raises(SpecError, match="would have the same name"):
        write_site([stores[0], stores[0]], folder)
    with pytest.raises(SpecError, match="There is no store gone"):
        write_site([Path("gone")], Path("empty"))

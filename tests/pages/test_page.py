"""The page in a browser: tabs, sorting, filter, protocols, by the keyboard too; widths, colour
schemes and print.
"""

import io
import re
import shutil
import subprocess

import pytest
from PIL import Image

from jembench.interfaces import Value
from jembench.store.outcome import Outcome

PHONE = {"viewport": {"width": 360, "height": 740}}


def column(page, heading, of="#tables"):
    """The texts of a column, as far as they are seen."""
    return page.evaluate(
        """([of, heading]) => {
            const table = document.querySelector(`${of} table`);
            const header = [...table.tHead.rows].at(-1);
            const at = [...header.cells].findIndex((one) => one.textContent.includes(heading));
            const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
            return rows.map((row) => row.cells[at].innerText.split("\\n")[0]);
        }""",
        [of, heading],
    )


def seen(page):
    return page.locator(".part:visible").evaluate_all("parts => parts.map((one) => one.id)")


def test_each_tab_shows_its_part_alone(open_page, report):
    page = open_page(report)
    tabs = page.get_by_role("tab")
    assert seen(page) == ["overview"]
    assert tabs.count() >= 3
    for tab in tabs.all():
        tab.click()
        assert seen(page) == [tab.get_attribute("href")[1:]]
        assert tab.get_attribute("aria-selected") == "true"
    assert page.get_by_role("tab", selected=True).count() == 1
    page.go_back()
    assert seen(page) == [tabs.nth(tabs.count() - 2).get_attribute("href")[1:]]


def test_the_address_leads_to_a_part_and_to_a_footnote(open_page, report):
    page = open_page(f"{report}#tables")
    assert seen(page) == ["tables"]
    page.locator("#tables td sup a").first.click()
    assert page.locator("li:target").inner_text() == "1 needs logits: flow gives density only"
    assert seen(page) == ["tables"]


def test_columns_sort_up_down_and_back_with_na_last(open_page, report):
    page = open_page(f"{report}#tables")
    sort = page.locator("#tables thead button", has_text="ece")
    header = page.locator("#tables th", has=page.locator("button", has_text="ece"))
    orders = [(header.get_attribute("aria-sort"), column(page, "ECE"))]
    for _ in range(3):
        sort.click()
        orders.append((header.get_attribute("aria-sort"), column(page, "ECE")))
    as_they_come = ["9.0", "10.0", "N/A⁠1", "12.0"]
    assert orders == [
        ("none", as_they_come),
        ("ascending", ["9.0", "10.0", "12.0", "N/A⁠1"]),
        ("descending", ["12.0", "10.0", "9.0", "N/A⁠1"]),
        ("none", as_they_come),
    ]
    page.locator("#tables thead button", has_text="model").click()
    assert column(page, "model") == ["baseline", "flow", "jem", "jem-factored"]
    assert page.locator("#tables [aria-sort=ascending]").count() == 1


def test_a_title_of_the_dot_plot_sorts_the_models_of_all_its_panels(open_page, report):
    page = open_page(report)
    names = page.locator(".dots tbody th")
    as_they_come = names.all_inner_texts()
    page.locator(".dots thead button", has_text="ece").click()
    assert names.all_inner_texts() == ["jem", "baseline", "jem-factored", "flow"]  # N/A last
    row = page.locator(".dots tbody tr").first
    assert row.locator("svg").first.get_attribute("aria-label") == "97.0 [90.0, 99.0]"
    assert page.locator(".dots circle").count() == 7
    for _ in range(2):
        page.locator(".dots thead button", has_text="ece").click()
    assert names.all_inner_texts() == as_they_come


def test_two_axes_are_chosen_by_the_keyboard(open_page, report):
    page = open_page(report)
    plot = page.locator(".scatter svg")
    assert plot.get_attribute("aria-label").startswith(
        "ECE % against accuracy %; jem: accuracy % 97.0 [90.0, 99.0]"
    )
    assert plot.locator(".label").all_text_contents() == ["jem", "baseline", "jem-factored"]
    assert (
        page.locator(".scatter .notes").inner_text()
        == "Not shown, without one of the two values: flow."
    )
    page.get_by_label("Vertical axis").focus()
    page.keyboard.press("ArrowUp")
    assert plot.get_attribute("aria-label").startswith("accuracy % against accuracy %")
    assert plot.locator("circle").count() == 4
    page.get_by_role("searchbox").fill("jem")
    assert plot.locator(".label").all_text_contents() == ["jem", "jem-factored"]


def test_at_first_the_scatter_plot_has_a_metric_that_two_models_have(open_page, written, cell):
    of = {"accuracy": 2, "fid": 1, "ece": 2}
    models = ["jem", "baseline"]
    cells = [
        cell(model, name, **{name: Value(5.0, 4.0, 6.0, 9)})
        for name in of
        for model in models[: of[name]]
    ]
    page = open_page(written(cells))
    assert page.get_by_label("Vertical axis").locator("option:checked").inner_text() == "ECE"


def test_the_scatter_plot_keeps_its_labels_apart(open_page, written, cell):
    values = {f"model-{n}": 90 + n / 99 for n in range(4)} | {"far": 1e9}
    cells = [
        cell(name, accuracy=Value(value, None, None, 9, "%", "higher"))
        for name, value in values.items()
    ]
    page = open_page(
        written([*cells, *(cell(name, "ece", ece=Value(5.0, 1.0, 9.0, 9)) for name in values)])
    )
    boxes = [one.bounding_box() for one in page.locator(".scatter .label").all()]
    assert len(boxes) == 5
    frame = page.locator(".scatter svg").bounding_box()
    assert all(
        frame["x"] <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
        for box in boxes
    )
    # an arrow stands for what is beyond the scale
    assert page.locator(".scatter circle").count() == 4
    assert "▸" in page.locator(".scatter svg").text_content()


def test_the_filter_keeps_rows_with_all_words(open_page, report):
    page = open_page(f"{report}#tables")
    page.get_by_role("searchbox").fill("JEM")
    assert column(page, "model") == ["jem", "jem-factored"]
    assert re.fullmatch(r"\d+ of \d+ rows", page.locator(".count").inner_text())
    page.get_by_role("searchbox").fill("jem fact")
    assert column(page, "model") == ["jem-factored"]
    page.get_by_role("searchbox").fill("")
    assert len(column(page, "model")) == 4


def test_the_address_of_a_number_opens_it_in_its_part(open_page, report):
    page = open_page(f"{report}#flow.digits.ece")
    assert seen(page) == ["tables"]
    assert page.locator("details[open]").get_attribute("id") == "flow.digits.ece"
    assert page.locator("details[open] dl").evaluate(IN_VIEW)
    page.goto(f"{report}#overview")
    page.locator("#overview .number").first.click()
    link = page.locator("#overview details[open] a", has_text="#")
    link.click()
    assert page.url.endswith(link.get_attribute("href"))
    assert seen(page) == ["overview"]


IN_VIEW = """(one) => {
    const box = one.getBoundingClientRect();
    return box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
}"""


@pytest.mark.parametrize("scripts", [True, False])
def test_a_table_is_downloaded_without_a_network(open_page, report, scripts):
    page = open_page(f"{report}#tables", java_script_enabled=scripts)
    for name, begin in (("CSV", "model,"), ("LaTeX", "% Needs")):
        with page.expect_download() as download:
            page.locator("#tables .downloads").first.get_by_role("link", name=name).click()
        assert download.value.path().read_text().startswith(begin)
        assert download.value.suggested_filename.startswith(
            "Results-dataset-digits-recipe-digits-seed-0."
        )


def test_the_keyboard_does_all_of_it(open_page, report):
    page = open_page(report)
    focused = "document.activeElement.textContent.trim()"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "To the results"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert seen(page) == ["tables"]
    page.keyboard.press("Tab")
    page.keyboard.type("jem")
    assert column(page, "model") == ["jem", "jem-factored"]
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.press("Delete")
    page.keyboard.press("Tab")  # the table, to be scrolled
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate(focused) == "accuracy % ↑"
    page.keyboard.press("Enter")
    assert column(page, "accuracy")[0] == "83.0"
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches(':focus-visible')")
    page.keyboard.press("Enter")
    assert page.locator("#tables details[open]").count() == 1


def lightness(page):
    with Image.open(io.BytesIO(page.screenshot())) as image:
        return image.convert("L").resize((1, 1)).getpixel((0, 0))


@pytest.mark.parametrize(("scheme", "is_light"), [("light", True), ("dark", False)])
def test_light_and_dark(open_page, report, scheme, is_light):
    assert (lightness(open_page(report, color_scheme=scheme)) > 127) == is_light


def overflow(page):
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


EVIL = "x:net=</script><script>alert(1)</script><img src=http://x.example/ onerror=alert(1)>"


def test_names_are_text(open_page, written, cell):
    page = open_page(
        written(
            [
                cell(EVIL, accuracy=Value(90.0, 80.0, 95.0, 9)),
                cell("x" * 5000, accuracy=Value(1.0, 0.0, 2.0, 9)),
            ]
        )
    )
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert overflow(page) == 0
    page.get_by_role("tab", name="Tables").click()
    assert column(page, "model") == [EVIL, "x" * 5000]
    page.locator("#tables tbody summary").first.click()
    assert EVIL in page.locator("#tables details[open]").inner_text()
    assert page.locator("img").count() == 0


@pytest.fixture(scope="module")
def stress(written, cell):
    """50 models x 40 columns, a third of them N/A, one column in all rows."""
    no = Outcome(status="na", reason="needs samples: it has none")
    return written(
        cell(f"model-{model}:width={model},depth=28", f"m{metric}", outcome=no)
        if metric == 0 or (model + metric) % 3 == 0
        else cell(
            f"model-{model}:width={model},depth=28",
            f"m{metric}",
            **{f"value-{metric}": Value(model / 7, 0.0, 9.0, 9)},
        )
        for model in range(50)
        for metric in range(40)
    )


@pytest.mark.parametrize("options", [{}, PHONE])
def test_fifty_models_with_forty_values(open_page, stress, options):
    page = open_page(f"{stress}#tables", **options)
    assert overflow(page) == 0
    assert page.locator("#tables .scroll tbody tr").count() == 50
    headers = page.locator("#tables thead .sort")
    assert headers.count() == 41
    headers.nth(5).click()
    values = [float(text) for text in column(page, "value 4") if not text.startswith("N/A")]
    assert values == sorted(values)
    scroll = page.locator("#tables .scroll")
    on_a_phone = options is PHONE
    assert scroll.evaluate(
        "one => [one.scrollWidth > one.clientWidth, one.scrollHeight > one.clientHeight]"
    ) == [
        not on_a_phone,
        True,
    ]
    if on_a_phone:
        return
    scroll.evaluate("one => one.scrollTo(800, 600)")
    corner = page.locator("#tables thead th").first.bounding_box()
    box = scroll.bounding_box()
    assert abs(corner["x"] - box["x"]) < 2  # names and headings stay in sight
    assert abs(corner["y"] - box["y"]) < 3


RESPECTS = {
    "accuracy": {"accuracy": 73.8},
    "ece": {"ece": 3.0},
    "fid": {"fid": 95.7},
    "ood:set=interp": {"auroc": 0.644},
    "pgd": {"pgd-linf": 5.5},
    "iteration-time": {"training-hours": 0.00054},
    "cost": {"training-passes": 880_128.0, "sample-passes": 180_000.0},
}


@pytest.fixture(scope="module")
def wide(written, cell):
    """All respects, of sizes far apart, of three models with long names."""
    cells = []
    for scale in (1.0, 1.2, 1.7):
        name = f"a-long-model-name:net=half-48,scale={scale},levels=2,steps=8"
        for metric, sizes in RESPECTS.items():
            values = {
                label: Value(scale * size, 0.9 * scale * size, 1.1 * scale * size, 9, "", "higher")
                for label, size in sizes.items()
            }
            cells.append(cell(name, metric, **values))
    return written(cells)


def test_every_value_is_seen_on_a_phone_without_scrolling_sideways(open_page, wide):
    page = open_page(f"{wide}#tables", viewport={"width": 390, "height": 844})
    assert overflow(page) == 0
    values = page.locator("#tables tbody summary")
    assert values.count() == 24
    boxes = [value.bounding_box() for value in values.all()]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
    headings = page.locator("#tables tbody td").evaluate_all(
        "cells => cells.map((cell) => getComputedStyle(cell, '::before').content)"
    )
    assert any("training" in heading for heading in headings)


@pytest.mark.parametrize("width", [1400, 1024])
def test_ticks_of_the_overview_cover_one_another_nowhere(open_page, wide, width):
    page = open_page(wide, viewport={"width": width, "height": 900})
    columns = page.locator(".dots tfoot td").all()[1:]
    assert len(columns) == 8
    for column_of_ticks in columns:
        frame = column_of_ticks.bounding_box()
        ends = []
        for tick in column_of_ticks.locator("text").all():
            box = tick.bounding_box()
            ends += [box["x"], box["x"] + box["width"]]
        assert ends == sorted(ends)
        assert frame["x"] <= ends[0]
        assert ends[-1] <= frame["x"] + frame["width"]


def test_the_overview_of_nine_columns_fits_a_laptop(open_page, wide):
    page = open_page(wide, viewport={"width": 1400, "height": 900})
    boxes = page.locator(".scroll:visible")
    assert boxes.count() == 2
    assert page.locator(".dots thead th").count() == 9
    assert (
        boxes.evaluate_all("all => all.filter((one) => one.scrollWidth > one.clientWidth).length")
        == 0
    )


def test_a_phone(open_page, report):
    page = open_page(f"{report}#origin", **PHONE, has_touch=True, is_mobile=True)
    box = page.get_by_role("tab", selected=True).bounding_box()
    assert 0 < box["x"] < box["x"] + box["width"] < 360  # of the last tab
    for tab in page.get_by_role("tab").all():
        tab.tap()
        assert overflow(page) == 0
    page.get_by_role("tab", name="Tables").tap()
    page.locator("#tables tbody summary").first.tap()
    assert page.locator("#tables details[open]").count() == 1
    assert overflow(page) == 0


def test_a_table_that_fits_has_no_scrollbar(open_page, report):
    page = open_page(report, viewport={"width": 1300, "height": 900})
    for tab in page.get_by_role("tab").all():
        tab.click()
        boxes = page.locator(".scroll:visible")
        assert (
            boxes.evaluate_all(
                "boxes => boxes.filter((one) => one.scrollWidth > one.clientWidth).length"
            )
            == 0
        )


def test_print_shows_every_part(open_page, report):
    page = open_page(f"{report}#tables")
    parts = page.locator(".part").count()
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1016, "height": 700})  # A4 within its margins
    assert len(seen(page)) == parts > 2
    assert overflow(page) == 0
    assert not page.locator("nav").is_visible()
    assert page.locator(".scatter circle").first.is_visible()  # though its part was not


@pytest.mark.skipif(
    not shutil.which("pdftoppm"), reason="pdftoppm is not installed: tests/pages/packages.sh"
)
@pytest.mark.parametrize("which", ["report", "stress"])
def test_no_printed_page_is_empty(open_page, which, request, tmp_path):
    page = open_page(request.getfixturevalue(which))
    page.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
    subprocess.run(
        ["pdftoppm", "-r", "20", "-png", "page.pdf", "page"], cwd=tmp_path, check=True, timeout=60
    )
    pictures = sorted(tmp_path.glob("*.png"))
    assert pictures
    for path in pictures:
        with Image.open(path) as picture:
            assert picture.convert("L").getextrema()[0] < 200


def test_without_scripts_everything_is_shown(open_page, report):
    page = open_page(report, java_script_enabled=False)
    assert page.locator(".part:visible").count() == page.locator(".part").count() > 2
    assert page.locator(".dots circle:visible").count() == 7
    assert not page.locator(".filter").is_visible()
    assert not page.locator(".scatter").is_visible()

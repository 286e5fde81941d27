"""A real browser, and pages of results that were made by hand."""

import shutil

import pytest

from jembench.api.results import Results
from jembench.catalog.spec import Spec, stable_hash
from jembench.interfaces import Value
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store

CHROMIUM = shutil.which("chromium")


def make_cell(model="jem", metric="accuracy", *, seed=0, outcome=None, **values):
    fit = FitKey(
        model=Spec(model),
        dataset=Spec("digits"),
        recipe="digits",
        seed=seed,
        id=stable_hash([model, seed]),
    )
    outcome = outcome or Outcome(
        status="ok", protocol=f"{metric}:data=digits,images=397", values=values
    )
    provenance = {
        "time": "2026-11-23T08:00:00+00:00",
        "command": "jembench run hybrid",
        "metric_id": metric,
    }
    return Cell(
        id=f"{fit.id}{metric}", fit=fit, metric=Spec(metric), outcome=outcome, provenance=provenance
    )


@pytest.fixture(scope="session")
def cell():
    return make_cell


def make_table():
    """Four models, one without an ECE and one whose name is a word of another's."""
    no = Outcome(status="na", reason="needs logits: flow gives density only")
    for number, model in enumerate(["jem", "baseline", "flow", "jem-factored"]):
        accuracy = Value(97.0 - 7 * (number % 3), 90.0, 99.0, 397, "%", "higher")
        yield make_cell(model, accuracy=accuracy)
        ece = {"ece": Value(float(9 + number), 1.0, 20.0, 397, "%", "lower")}
        yield (
            make_cell(model, "ece", outcome=no)
            if model == "flow"
            else make_cell(model, "ece", **ece)
        )


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Writes the page of some cells, and gives its address."""

    def write(cells):
        path = tmp_path_factory.mktemp("page") / "report.html"
        path.write_text(Results(list(cells), store=Store(path.parent / "runs")).table("html"))
        return path.as_uri()

    return write


@pytest.fixture(scope="session")
def report(written):
    return written(make_table())


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    home = str(tmp_path_factory.mktemp("home"))
    with playwright.sync_playwright() as library:
        browser = library.chromium.launch(
            executable_path=CHROMIUM, env={"HOME": home, "PATH": "/usr/bin:/bin"}
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """Opens an address; at the end nothing may have been complained of, and nothing have been asked
    for elsewhere.
    """
    contexts, problems, requests = [], [], []

    def open_(address, **options):
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    # of a server that ended
    assert [problem for problem in problems if "ERR_CONNECTION_REFUSED" not in problem] == []
    assert [
        url for url in requests if not url.startswith(("file:", "data:", "http://127.0.0.1:"))
    ] == []

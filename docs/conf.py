"""The site. `tox -e docs` builds it, as does `sphinx-build -c docs . build/site` from the root of
the repository.

The sources are the whole repository, so that design, reports of measurements and guides of plugins
are pages where they lie, and a link between two files works in both. Nothing is fetched: no
inventories, and no fonts or scripts of others.
"""

import sys
from pathlib import Path

from jembench import __version__

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "jembench"
author = "The jembench developers"
copyright = "the jembench developers"
version = release = __version__

root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "benchmarks/README.md",
    "benchmarks/bundles/README.md",
    "benchmarks/gpu/README.md",
    "benchmarks/results/*.md",
    "design/*.md",
    "plugins/README.md",
    "plugins/*/README.md",
    "DESIGN.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]
# environments and builds have tens of thousands of folders to look into
exclude_patterns = [".*", "build"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "commands",
    "components",
    "mathml",
    "names",
    "settings",
]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
nb_execution_mode = "off"  # but for the tutorial, which says so itself
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
highlight_language = "text"
maximum_signature_line_length = 80

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
nitpick_ignore_regex = [
    # types of other projects, whose inventories would have to be fetched
    ("py:.*", r"(torch|np|numpy|pandas|nn|os|collections|typing|jaxtyping)\..*"),
    (
        "py:.*",
        r"(Any|Array|Callable|DataFrame|Location|Path|Settings|Tensor|pathlib\.Path|optional)",
    ),
    # objects that a user is given and does not make
    (
        "py:.*",
        r".*\b(Claim|ComparedPair|DisplayNames|Document|FitPlan|Part|Pictures|Published|Recipe|Selection|Shown|Status|Store|Suite)",
    ),
    ("py:.*", r"jembench\.plugin\..*"),
]

html_theme = "pydata_sphinx_theme"
html_title = "jembench"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("static") / "search.js")
html_extra_path = ["root"]  # the address of the site leads to docs/index.html
html_sidebars = {
    page: [] for page in ("docs/index", "docs/tutorial", "docs/concepts", "docs/science")
}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "jembench"},
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def setup(app):
    """Leave dated reports and the changelog out of the index of the search."""
    app.connect("env-updated", _not_searched)


def _not_searched(app, env):
    for name in env.found_docs:
        if name == "CHANGELOG" or name.startswith("benchmarks/results/"):
            env.metadata[name]["nosearch"] = True

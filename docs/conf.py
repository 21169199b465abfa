"""The site: built by ``make site`` from these pages and the package's docstrings, without a network."""

import re
from typing import Any

from sphinx.application import Sphinx

from airflow_provider_cloudstore import __version__

project = "airflow-provider-cloudstore"
copyright = "The airflow-provider-cloudstore developers, Apache-2.0"  # noqa: A001
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
]
exclude_patterns = ["_data"]
nitpicky = True
# Other packages are not on this site; the pages of results and errors are generated tables.
nitpick_ignore_regex = [("py:.*", r"(?!airflow_provider_cloudstore\.(hooks|doctor|receipts)).*")]
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = f"airflow-provider-cloudstore {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5fae", "color-brand-content": "#0b5fae", "color-brand-visited": "#6b3fa0"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff", "color-brand-visited": "#c3a6ff"},
}
copybutton_prompt_text = "$ "


ROOT_PAGES = {
    "ARCHITECTURE": "project/architecture",
    "CHANGELOG": "project/versions",
    "CONTRIBUTING": "project/architecture",
    "SECURITY": "operate/secrets",
}
"""The pages of the site that include a page of the repository's root."""
TO_ROOT = re.compile(rf"\]\((?:\.\./)*({'|'.join(ROOT_PAGES)})\.md")


def setup(app: Sphinx) -> None:
    """Let pages link to those in the root of the repository, and hide how errors are created.

    :param app: the build.
    """
    app.connect("source-read", link_root_pages)
    app.connect("include-read", link_root_pages)


def link_root_pages(*event: Any) -> None:
    """Point links to pages of the repository's root to the pages of the site that include them."""
    content: list[str] = event[-1]
    content[0] = TO_ROOT.sub(lambda match: f"](/{ROOT_PAGES[match[1]]}.md", content[0])

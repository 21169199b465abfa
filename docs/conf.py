"""The site: built by ``make site`` from these pages and the package's docstrings, without a network."""

from airflow_provider_cloudstore import __version__

project = "airflow-provider-cloudstore"
copyright = "The airflow-provider-cloudstore developers, Apache-2.0"  # noqa: A001
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "scripts.site_links",
    "scripts.site_reference",
    "scripts.site_summary",
]
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!airflow_provider_cloudstore).*")]  # other packages are not on this site
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
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

"""What the docs show is there, and works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hatch_build
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.settings import EXTRA_KEYS
from scripts import reference

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readmes_dag_is_a_dag_of_the_operators_it_names() -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    dag = names["upload"].dag  # type: ignore[attr-defined]
    assert {type(task).__name__ for task in dag.tasks} == {
        "RemoteUrlUploadOperator",
        "DownloadLinkOperator",
        "DeleteFolderOperator",
    }
    assert len(code.splitlines()) <= 14


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "see docs/a.md and a page, [web](https://h/x), [below](#below)"),
        (
            "https://h/p",
            "see [docs/a.md](https://h/p/docs/a.md) and [a page](https://h/p/b.md#c), [web](https://h/x), [below](#below)",
        ),
    ],
)
def test_the_long_description_has_no_relative_links(url: str, expected: str) -> None:
    readme = "see [docs/a.md](docs/a.md) and [a page](b.md#c), [web](https://h/x), [below](#below)"
    assert hatch_build.long_description(readme, url) == expected
    whole = hatch_build.long_description((ROOT / "README.md").read_text(), url)
    assert {target for target in re.findall(r"\]\(([^)]+)\)", whole) if not target.startswith(("#", "https://"))} == set()


def test_every_error_and_every_extra_is_explained() -> None:
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.CloudStoreError)}
    told = (ROOT / "docs" / "failures.md").read_text()
    assert not {name for name in kinds if f"`{name}`" not in told}
    assert not {key for key in EXTRA_KEYS if f"`{key}`" not in (ROOT / "README.md").read_text()}


def test_every_make_target_that_the_docs_name_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`make ([a-z-]+)`", page.read_text()):
            assert f"\n{target}:" in makefile, f"{page.name}: make {target}"


def test_the_reference_is_what_the_docstrings_say() -> None:
    assert reference.PAGE.read_text() == reference.reference(), "out of date: run make docs"

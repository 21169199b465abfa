"""Writes the reference's pages of operators, hooks, results and errors from the code that they describe.

``python -m scripts.reference`` writes them; with ``--check``, it names those that are stale and exits with status 1.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from airflow_provider_cloudstore import exceptions, results
from airflow_provider_cloudstore.doctor import diagnose
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators import cloudstore as operators
from airflow_provider_cloudstore.operators.base import XCOM_FILE_PAGE, CloudStoreOperator, FileLink
from airflow_provider_cloudstore.operators.waiting import WaitingOperator
from airflow_provider_cloudstore.protocol.operations import OPERATIONS
from airflow_provider_cloudstore.receipts import read_receipts, write_failed
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
GENERATED = "<!-- Generated from docstrings: `python -m scripts.reference` -->"

XCOMS: Mapping[type, tuple[str, type]] = {
    operators.DeleteFolderOperator: ("return_value", results.FolderDeletionXCom),
    operators.RemoteUrlUploadOperator: ("upload", results.RemoteUploadXCom),
    operators.DownloadLinkOperator: ("download_link", results.DownloadLinkXCom),
    operators.DownloadFileOperator: ("return_value", results.DownloadedFileXCom),
    operators.RemoteUrlBatchUploadOperator: ("return_value", results.BatchXCom),
}
"""For each operator the key of the XCom that has a type, and the type."""
RESULTS: Mapping[type, type] = {
    kind: getattr(results, f"{name}XCom") for name, kind in vars(results).items() if hasattr(results, f"{name}XCom")
}
"""What each method of a hook returns, and its type as an XCom."""
HOOK_METHODS = (*(operation.hook_method for operation in OPERATIONS), "download", "request", "get_conn", "test_connection")
PUBLIC: Mapping[Any, str] = {
    diagnose: "`doctor`",
    read_receipts: "`receipts`",
    write_failed: "`receipts`",
}
"""Public names beside the hooks, with the module of the package that has them."""
SHARED: tuple[type, ...] = (WaitingOperator, CloudStoreOperator)
"""Bases whose parameters are documented once."""


def text_of(documented: Any) -> str:
    """The first paragraph of a docstring, as Markdown."""
    return as_markdown((inspect.getdoc(documented) or "").partition("\n\n")[0])


def fields_of(documented: Any) -> dict[str, str]:
    """The fields of a docstring, such as ``param url`` and ``returns``, as Markdown."""
    found = re.findall(r"^:([\w ]+): (.*(?:\n +.*)*)", inspect.getdoc(documented) or "", re.MULTILINE)
    return {name: as_markdown(text[0].upper() + text[1:]) for name, text in found}


def as_markdown(text: str) -> str:
    """A paragraph of a docstring as one line of Markdown."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text.replace("``", "`"))
    return " ".join(text.split())


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in lines)


def type_of(annotation: str) -> str:
    """An annotation in words; what Airflow replaces before a task runs is left out."""
    kinds = [kind.strip() for kind in annotation.split("|") if kind.strip() != "XComArg"]
    return " or ".join(f"`{kind}`" for kind in kinds)


def own_bases(kind: type) -> list[type]:
    """A class and those of its bases that this package has."""
    return [one for one in kind.__mro__ if one.__module__.startswith("airflow_provider_cloudstore")]


def parameters(kind: type) -> Iterator[tuple[str, ...]]:
    """The rows of a class's parameters, but for those that several operators share."""
    meanings: dict[str, str] = {}
    for one in reversed(own_bases(kind)):
        meanings |= fields_of(one)
    shared = {name for one in SHARED if one is not kind and issubclass(kind, one) for name in parameters_of(one)}
    seen = {"self", "kwargs", *shared}
    for one in own_bases(kind):
        for name, parameter in parameters_of(one).items():
            if name not in seen:
                seen.add(name)
                yield (
                    f"`{name}`",
                    type_of(str(parameter.annotation)),
                    default_of(parameter),
                    meanings[f"param {name}"].replace(" (templated)", ""),
                )


def parameters_of(kind: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of a class's own constructor, if it has one."""
    return inspect.signature(kind.__init__).parameters if "__init__" in vars(kind) else {}


def signature_of(documented: Any) -> list[inspect.Parameter]:
    """The parameters of a function."""
    return list(inspect.signature(documented).parameters.values())


def default_of(parameter: inspect.Parameter) -> str:
    """The default of a parameter; that of ``deferrable`` is a setting of Airflow."""
    if parameter.default is parameter.empty:
        return "required"
    return "Airflow's" if parameter.name == "deferrable" else f"`{parameter.default!r}`"


def operator_section(kind: Any) -> str:
    """What users need to know of an operator or the sensor."""
    waits = " It also takes [wait parameters](#parameters-of-a-wait)." if issubclass(kind, WaitingOperator) else ""
    own = [name for name in kind.template_fields if name != "cloudstore_conn_id"]  # the page's introduction has this one
    fields = f"Template fields: {', '.join(f'`{name}`' for name in own)}."
    return "\n\n".join([f"## {kind.__name__}", text_of(kind) + waits, parameter_table(kind), fields, "\n".join(outputs(kind))])


def parameter_table(kind: type) -> str:
    """A class's parameters."""
    return table(("parameter", "type", "default", "meaning"), parameters(kind))


def outputs(kind: Any) -> Iterator[str]:
    """What a task returns and pushes, as a list."""
    key, xcom = XCOMS.get(kind, ("", None))
    link = f"[`{xcom.__name__}`](results.md)" if xcom else ""
    returned = fields_of(kind)["returns"]
    yield f"- Return value: {link}. {returned}" if key == "return_value" else f"- Return value: {returned}"
    if key not in ("", "return_value"):
        yield f"- XCom `{key}`: {link}."
    if any(isinstance(one, FileLink) for one in getattr(kind, "operator_extra_links", ())):
        yield f"- XCom `{XCOM_FILE_PAGE}`."


def operators_page() -> str:
    """The page of the operators and the sensor."""
    kinds = [*(getattr(operators, name) for name in operators.__all__), FileAvailableSensor]
    intro = (
        "Import operators from `airflow_provider_cloudstore.operators.cloudstore`, the sensor from "
        "`airflow_provider_cloudstore.sensors.cloudstore`. Each also takes `cloudstore_conn_id` (default `cloudstore_default`, "
        "templated) and the arguments of Airflow's own base class, and can be mapped. The XCom `file_page` is the file's page, "
        "from extra `file_page_url`."
    )
    wait = ["## Parameters of a wait", parameter_table(WaitingOperator)]
    return "\n\n".join(["# Operators and sensor", GENERATED, intro, *map(operator_section, kinds), *wait])


def results_page() -> str:
    """The page of the hooks' results and the operators' XComs."""
    intro = (
        "Import them from `airflow_provider_cloudstore.results`. A hook's method returns a dataclass with `DateTime` times. "
        "Operators store its `to_dict()`, in which times are ISO 8601 text in UTC. `Json` is any value that JSON has. "
        "[Upload many files](../guides/many-uploads.md) explains `BatchXCom` and `BatchFailure`."
    )
    return "\n\n".join(["# Results and XComs", GENERATED, intro, *map(result_section, RESULTS), *batch_sections()])


def result_section(kind: Any) -> str:
    """A result and its XCom."""
    xcom, meanings = RESULTS[kind], fields_of(kind)
    rows = ((f"`{one.name}`", type_of(annotation_of(xcom, one.name)), meanings[f"param {one.name}"]) for one in fields(kind))
    heading = f"## {kind.__name__} and {xcom.__name__}"
    return "\n\n".join([heading, text_of(xcom), table(("field", "type", "meaning"), rows)])


def batch_sections() -> Iterator[str]:
    """The XCom of a batch, whose keys ``many-uploads.md`` explains."""
    for kind in (results.BatchXCom, results.BatchFailure):
        rows = ((f"`{name}`", type_of(annotation_of(kind, name))) for name in kind.__annotations__)
        yield "\n\n".join([f"## {kind.__name__}", text_of(kind), table(("key", "type"), rows)])


def annotation_of(kind: type, name: str) -> str:
    """The annotation of a ``TypedDict`` as its source has it."""
    found = kind.__annotations__[name]
    return str(getattr(found, "__forward_arg__", found))


def errors_page() -> str:
    """The page of the errors."""
    kinds: list[Any] = [
        kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, exceptions.CloudStoreError)
    ]
    rows = ((f"`{kind.__name__}`", text_of(kind).partition(". ")[0].rstrip("."), retried_by(kind)) for kind in kinds)
    head = ("error", "meaning", "retried by")
    intro = (
        "Import them from `airflow_provider_cloudstore.exceptions`. After a *permanent* error (`PermanentError`), Airflow does "
        "not retry. [Errors and retries](../operate/retries.md) maps each response to an error."
    )
    return "\n\n".join(["# Errors", GENERATED, intro, table(head, rows)])


HOOKS_INTRO = """\
This task uses a hook to upload a file, and returns its id:

```python
from airflow.sdk import task
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook


@task
def upload_report(url: str) -> str:
    with CloudStoreHook("cloudstore_default") as hook:
        upload = hook.upload_from_url(url)
    return upload.file_id
```

A hook takes the id of a connection, by default `cloudstore_default`. Its methods return [results](results.md) and raise \
[errors](errors.md). A result is a dataclass. From a task, return one of its fields, or `upload.to_dict()`."""
HOOKS_TWIN = """\
This task is a coroutine, which Airflow 3.2 and later can run. It queues many uploads side by side:

```python
import asyncio

from airflow.sdk import task
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook


@task(retries=0)  # a retry would upload every file again
async def upload_reports(urls: list[str]) -> list[str]:
    async with CloudStoreAsyncHook() as hook:
        uploads = await asyncio.gather(*map(hook.upload_from_url, urls))
    return [upload.file_id for upload in uploads]
```

The hook needs `async with`, and sends at most 32 requests at a time. It has the same methods, except `get_conn` and \
`test_connection`; `download` runs in a thread. Before Airflow 3.2, call `asyncio.run` in an ordinary task."""


def hooks_page() -> str:
    """The page of the hooks, and of the functions that are public."""
    methods = [getattr(CloudStoreHook, name) for name in HOOK_METHODS]
    others = [diagnose, read_receipts, write_failed]
    return "\n\n".join(
        [
            "# Hooks and functions",
            GENERATED,
            HOOKS_INTRO,
            "## Which methods does CloudStoreHook have?",
            table(("method", "what it does", "returns"), map(method_row, methods)),
            "`request` takes these; the parameters of the other methods are those of the [operators](operators.md):",
            table(("parameter of `request`", "meaning"), meanings_of(CloudStoreHook.request)),
            "## Which calls are sent?",
            "\n".join(
                f"- `{one.method} {one.path}` with {' and '.join(f'`{name}`' for name in one.own_parameters)}"
                for one in OPERATIONS
            ),
            "A POST sends a form and the header `Authorization: Bearer TOKEN`. A GET sends a query. "
            "Declare what your service does differently with [extras](../operate/connection.md#extras).",
            "## How do you use CloudStoreAsyncHook?",
            HOOKS_TWIN,
            "## Which functions are there beside the hooks?",
            "Import them from the modules `doctor` and `receipts` of `airflow_provider_cloudstore`.",
            table(("name", "what it does"), map(callable_row, others)),
        ]
    )


def method_row(method: Any) -> tuple[str, ...]:
    """The row of a method of the hook."""
    returned = str(inspect.signature(method).return_annotation)
    if returned in [kind.__name__ for kind in RESULTS]:
        return (*callable_row(method), f"`{returned}`")
    return (*callable_row(method), fields_of(method).get("returns", f"`{returned}`"))


def meanings_of(method: Any) -> Iterator[tuple[str, str]]:
    """A row for each parameter of a method."""
    for name, meaning in fields_of(method).items():
        if name.startswith("param "):
            yield f"`{name.removeprefix('param ')}`", meaning


def callable_row(documented: Any) -> tuple[str, ...]:
    """The row of a method or a function: its parameters, and what it does."""
    given = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature_of(documented)]
    module = "" if inspect.isfunction(documented) and "." in documented.__qualname__ else f"{PUBLIC[documented]}: "
    shown = str(inspect.Signature([one for one in given if one.name not in ("self", "kwargs")]))
    return f"{module}`{documented.__name__}{shown}`", text_of(documented)


def retried_by(kind: Any) -> str:
    """What retries after an error: first the call, then Airflow."""
    return ", ".join(["call"] * kind.retried + ["Airflow"] * (not kind.permanent)) or "nobody"


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` print which are stale; return the exit status."""
    made = {"operators.md": operators_page(), "results.md": results_page(), "errors.md": errors_page(), "hooks.md": hooks_page()}
    stale = [name for name, text in made.items() if not (PAGES / name).exists() or (PAGES / name).read_text() != f"{text}\n"]
    if "--check" in arguments:
        for name in stale:
            print(f"docs/reference/{name} is stale: run python -m scripts.reference")
        return 1 if stale else 0
    for name in stale:
        (PAGES / name).write_text(f"{made[name]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

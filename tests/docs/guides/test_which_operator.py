"""docs/guides/which-operator.md names every class that a DAG author can choose, with parameters that exist."""

from __future__ import annotations

import inspect
import re
from typing import Any

from airflow_provider_cloudstore.hooks import cloudstore as hooks
from airflow_provider_cloudstore.operators import cloudstore as operators
from airflow_provider_cloudstore.sensors import cloudstore as sensors
from tests.doc_blocks import ROOT

PAGE = (ROOT / "docs" / "guides" / "which-operator.md").read_text()
MODULES = (hooks, operators, sensors)
CHOICES: dict[str, Any] = {
    name: kind
    for module in MODULES
    for name, kind in vars(module).items()
    if re.fullmatch(r"[A-Z]\w+(Operator|Sensor|Hook)", name)
    and kind.__module__.startswith("airflow_provider_cloudstore")
    and name not in ("CloudStoreOperator", "WaitingOperator")
}


def test_the_page_names_every_class_that_a_dag_author_can_choose() -> None:
    assert {"CloudStoreHook", "FileAvailableSensor", *operators.__all__} <= CHOICES.keys()
    assert not [f"docs/guides/which-operator.md needs {name}" for name in CHOICES if f"`{name}" not in PAGE]


def test_the_parameters_and_methods_on_the_page_exist() -> None:
    assert set(re.findall(r"`CloudStoreHook\(\)\.(\w+)\(", PAGE)) <= set(dir(hooks.CloudStoreHook))
    written = re.findall(r"`(\w+)(?:\.partial\(\)\.expand)?\((\w[^`]*)\)`", PAGE)
    given = [(name, key) for name, arguments in written if name in CHOICES for key in re.findall(r"(\w+)=", arguments)]
    assert len(given) >= 5
    for name, key in given:
        assert key in set().union(*(inspect.signature(kind.__init__).parameters for kind in CHOICES[name].__mro__)), (name, key)

"""What the DAGs of the tests are written with, from where this Airflow has it. Examples and pages import ``airflow.sdk``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.real_airflow import AIRFLOW_2

if TYPE_CHECKING or not AIRFLOW_2:
    from airflow.sdk import DAG, Param, Variable, task
else:
    from airflow import DAG
    from airflow.decorators import task
    from airflow.models import Variable
    from airflow.models.param import Param

__all__ = ["DAG", "Param", "Variable", "task"]

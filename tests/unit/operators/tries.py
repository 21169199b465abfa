"""One upload task over its tries: Airflow's retries, and a user who clears it."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlUploadOperator
from airflow_provider_cloudstore.operators.send_once import STATE_KEY
from tests.support import context

SOURCE = "ftp://user:hunter2@127.0.0.1:9/file?sig=hunter3"  # nothing listens there: the file never comes
SHOWN = "ftp://***@127.0.0.1:9/file?***"


class Store:
    """A task's state store, as Airflow 3.3's, over the tries of one task."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.calls: list[str] = []
        self.away: set[str] = set()

    @property
    def record(self) -> Any:
        return self.values[STATE_KEY]

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.away:
            raise ConnectionError("https://api-server/store?secret")

    def get(self, key: str) -> Any:
        self._call("get")
        return self.values.get(key)

    def set(self, key: str, value: Any) -> None:
        self._call("set queued" if value["result"] else "set sending")
        self.values[key] = json.loads(json.dumps(value))

    def delete(self, key: str) -> None:
        self._call("delete")
        del self.values[key]


class Task:
    """The task, and what it has pushed; without a store, as before Airflow 3.3."""

    def __init__(self, store: Store | None, **arguments: Any) -> None:
        self.store: Any = store
        self.arguments = arguments
        self.number, self.max_tries = 0, 2
        self.pushed: dict[str, Any] = {}

    def operator(self, url: str = SOURCE, **more: Any) -> Any:
        operator = RemoteUrlUploadOperator(task_id="upload", url=url, **self.arguments, **more)
        operator.render_template_fields({})
        return operator

    def attempt(self, url: str = SOURCE, **more: Any) -> Any:
        """Run a try, and return the XCom ``upload``."""
        self.number += 1
        of_try = context(self.pushed, try_number=self.number, max_tries=self.max_tries)
        store = {"task_state_store": self.store} if self.store else {}
        assert self.operator(url, **more).execute(of_try | store) == self.pushed["upload"]["file_id"]
        return self.pushed["upload"]

    def clear(self) -> None:
        self.max_tries = self.number + 2


def uploads(emulator: Emulator) -> int:
    """How many uploads were sent."""
    return int(emulator.state()["requests"].get("upload", 0))

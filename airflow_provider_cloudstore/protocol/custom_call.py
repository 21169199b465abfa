"""Any call that the API document does not describe, for ``hook.request``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.operations import OPERATIONS, Operation
from airflow_provider_cloudstore.protocol.reading import Reading
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.results import Json

_PATH = re.compile(r"/?([A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*)")
_KNOWN = {operation.path.lower(): operation for operation in OPERATIONS}


class CustomCall(Operation[Json]):
    """A call with the caller's own method, path and parameters. Its result is the parsed body, without secrets.

    :param parameters: the parameters by name; each value is a text or an integer.
    :raises InvalidInputError: if an argument cannot be sent, or if the path belongs to an operation that has its own guards.
    """

    key = "other"
    subject_must_exist = True
    hints: ClassVar = {
        exceptions.OutcomeUnknownError: (
            "The call may or may not have been carried out. Check in the service whether it was; if repeating it does no harm, "
            "pass idempotent=True."
        ),
    }

    def __init__(
        self, settings: Settings, method: str, path: str, parameters: Mapping[str, Any] | None = None, *, idempotent: bool = False
    ) -> None:
        self.method = method.upper() if isinstance(method, str) else ""
        if self.method not in ("GET", "POST"):
            raise InvalidInputError("method must be GET or POST")
        below = _PATH.fullmatch(path) if isinstance(path, str) else None
        if not below:
            raise InvalidInputError(
                "path must be segments of letters, digits, '_' and '-', such as /file/rename",
                advice="Leave out the host, the service's 'api_path' and the query; values go into parameters.",
            )
        self.path, self.name = f"/{below[1]}", f"{self.method} /{below[1]}"
        if known := _KNOWN.get(self.path.lower()):
            raise InvalidInputError(f"this path has a method of its own: use {known.hook_method}", operation=self.name)
        self.may_be_repeated = idempotent or self.method == "GET"
        super().__init__(settings, others=parameters)
        self.subject = next(iter(self.arguments.values()), "")

    def result(self, reading: Reading) -> Json:
        """Return the parsed body."""
        return reading.storable_data(max_bytes=math.inf)

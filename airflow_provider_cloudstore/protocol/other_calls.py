"""Any call that the API document does not describe, as an operation: ``hook.request`` sends it like the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import BASE_URL_ADVICE, InvalidInputError
from airflow_provider_cloudstore.protocol.guards import text_of
from airflow_provider_cloudstore.protocol.operations import OPERATIONS, Operation, Parameter, Reading
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, is_credential_parameter, is_word, redact_url, url_secrets
from airflow_provider_cloudstore.protocol.settings import API_PREFIX, Settings
from airflow_provider_cloudstore.protocol.storable import Json

_PATH = re.compile(r"/?([A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*)")
_KNOWN = {operation.path.lower(): operation for operation in OPERATIONS}


class OtherCall(Operation[Json]):
    """A call with a method, a path and parameters of the caller's; its result is the parsed body, without secrets.

    :param path: the path below ``/cloud/api/v2``.
    :param parameters: a text or an integer by name.
    :param idempotent: whether repeating a POST has no further effect; a GET has none.
    :raises InvalidInputError: if one of these cannot be sent, or the path is that of an operation with guards of its own.
    """

    key = "other"
    has_subject = True
    advice: ClassVar = {
        exceptions.OutcomeUnknownError: (
            "The call may or may not have been carried out. Check in the service whether it was; if repeating it does no harm, "
            "pass idempotent=True."
        ),
        exceptions.NotFoundError: f"Check the path and the parameters, and {BASE_URL_ADVICE}",
    }

    def __init__(
        self, settings: Settings, method: str, path: str, parameters: Mapping[str, str | int], *, idempotent: bool = False
    ) -> None:
        self.method = method.upper() if isinstance(method, str) else ""
        if self.method not in ("GET", "POST"):
            raise InvalidInputError("method must be GET or POST")
        below = _PATH.fullmatch(path) if isinstance(path, str) else None
        if not below:
            raise InvalidInputError(
                "path must be segments of letters, digits, '_' and '-', such as /file/rename",
                advice="Leave out the host, /cloud/api/v2 and the query; values go into parameters.",
            )
        self.path, self.name = f"{API_PREFIX}/{below[1]}", f"{self.method} /{below[1]}"
        if known := _KNOWN.get(self.path.lower()):
            raise InvalidInputError(f"this path has a method of its own: use {known.hook_method()}", operation=self.name)
        if not isinstance(parameters, Mapping):
            raise InvalidInputError("parameters must be a dict of names and values", operation=self.name)
        self.idempotent = idempotent or self.method == "GET"
        self.token_in_query = self.method == "GET"
        self.parameters = tuple(map(_parameter, parameters))
        super().__init__(settings, *parameters.values())

    @property
    def metric(self) -> str:
        """Its name in metrics, whatever the path: dashboards need a fixed number of names."""
        return self.key

    def redacted(self, secrets: tuple[Secret, ...]) -> str:
        """The first parameter for messages; empty without parameters."""
        return super().redacted(secrets) if self.parameters else ""

    def result(self, found: None, reading: Reading) -> Json:
        """The parsed body."""
        return reading.stored()


def _parameter(name: Any) -> Parameter:
    if not _is_text(name) or not name or name.lower() == "access_token":
        raise InvalidInputError("a parameter's name must be a text, and not access_token, which the hook adds itself")
    if is_credential_parameter(name):
        return Parameter(name, lambda value, _: _text(value, name), lambda _: MASK, _credential)
    return Parameter(name, lambda value, _: _text(value, name), _shown, _secrets_in)


def _text(value: Any, name: str) -> str:
    text = text_of(value)
    if text is None:
        reason = f"parameter {name!r} must be a text or an integer, not {type(value).__name__}"
        raise InvalidInputError(reason, advice="Pass it as the service expects it, such as 'true' or '1'.")
    if not _is_text(text):
        raise InvalidInputError(f"parameter {name!r} is not valid Unicode")
    return text


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def _shown(value: str) -> str:
    return redact_url(value) if "://" in value else value


def _credential(value: str) -> tuple[Secret, ...]:
    return () if is_word(value) else (Secret(value),)


def _secrets_in(value: str) -> tuple[Secret, ...]:
    return url_secrets(value) if "://" in value else ()

"""The parameters of calls: the name and the guard of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol import guards
from airflow_provider_cloudstore.protocol.settings import Settings


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation. It has the same name in the request and in the hooks' methods.

    :param validate: the guard, which returns the value as it is sent.
    """

    name: str
    validate: Callable[[Any, Settings], str]


FOLDER_ID = Parameter("folder_id", lambda value, settings: guards.validate_folder_id(value, settings.protected_folder_ids))
FILE_ID = Parameter("file_id", lambda value, _: guards.validate_text(value, "file_id"))
SOURCE_URL = Parameter("url", lambda value, _: guards.validate_source_url(value))


def other_parameters(given: Any, operation: str, known: tuple[str, ...] = ()) -> tuple[Parameter, ...]:
    """Return a parameter for each name in ``given``, which a call carries in addition to its own parameters.

    :param known: the names of the call's own parameters.
    :raises InvalidInputError: if ``given`` is not a dict with texts as keys, or contains a name that the call itself uses.
    """
    if not isinstance(given, Mapping):
        raise InvalidInputError("parameters must be a dict of names and values", operation=operation)
    taken = ("access_token", *known)
    if wrong := [name for name in given if not _is_text(name) or not name or name.lower() in taken]:
        reason = f"a parameter's name must be a text, and not {' or '.join(taken)}, which the hook adds itself"
        raise InvalidInputError(f"{reason}: {wrong[0]!r}", operation=operation)
    return tuple(map(_other_parameter, given))


def _other_parameter(name: str) -> Parameter:
    def validate(value: Any, _: Settings) -> str:
        text = guards.text_of(value)
        if text is None or not _is_text(text):
            reason = f"parameter {name!r} must be an integer or a text in valid Unicode, not {type(value).__name__}"
            raise InvalidInputError(reason, advice="Pass it as the service expects it, such as 'true' or '1'.")
        return text

    return Parameter(name, validate)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)

"""The extras of a connection, one field each: the settings, the connection form, the docs' table and the tests read them here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # this module stays cheap: Airflow asks every provider for its form
    from airflow_provider_cloudstore.protocol.secrets import Secret


@dataclass(frozen=True, slots=True)
class Extra:
    """What is known of an extra.

    :param default: its value where it is absent, null or empty.
    :param kind: how it is written; ``protocol/settings.py`` has a parser for each kind.
    :param help: what it is for, in the form; its row in the docs begins with it.
    :param bounds: the lowest and the highest number.
    :param is_secret: whether it may hold a credential, so that the form hides it.
    """

    default: Any
    kind: str
    label: str
    help: str
    bounds: tuple[float, ...] = ()
    is_secret: bool = False


def _extra(default: Any, kind: str, label: str, help: str, *, bounds: tuple[float, ...] = (), is_secret: bool = False) -> Any:
    return field(default=default, metadata={"extra": Extra(default, kind, label, help, bounds, is_secret)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """The values of the extras, as ``protocol/settings.py`` parses them."""

    timeout: float = _extra(30, "number", "Timeout (seconds)", "Seconds for each step of a request.", bounds=(0.001, 86_400))
    max_attempts: int = _extra(4, "integer", "Attempts", "Maximum requests per call.", bounds=(1, 86_400))
    verify: bool | str = _extra(True, "boolean or path", "Verify TLS", "Verify TLS: true, false, or the path of a CA bundle.")
    proxy: Secret | None = _extra(None, "proxy", "Proxy", "URL of a proxy, with credentials percent-encoded.", is_secret=True)
    allow_http: bool = _extra(False, "boolean", "Allow plain http", "Allow http beyond loopback, which exposes the token.")
    protected_folder_ids: frozenset[str] = _extra(
        frozenset({"0", "/"}), "folder ids", "Protected folder ids", "Ids that are never deleted: a list, or separated by commas."
    )
    token_path: tuple[str, ...] = _extra((), "dotted path", "Token path", "Dotted path to the download token in a response.")
    file_id_path: tuple[str, ...] = _extra((), "dotted path", "File id path", "Dotted path to the id in an upload's response.")
    success_when: tuple[tuple[tuple[str, ...], str], ...] = _extra(
        (), "conditions", "Success when", "What a JSON response holds exactly if it is a success, such as ocs.meta.status=ok."
    )
    not_found_pattern: re.Pattern[str] | None = _extra(
        None, "pattern", "Not-found pattern", 'Regular expression, without case: an error that it matches means "not found".'
    )
    token_refused_pattern: re.Pattern[str] | None = _extra(
        None, "pattern", "Token-refused pattern", "Regular expression, without case: an error that it matches means HTTP 401."
    )
    download_url: str = _extra("", "download URL", "Download URL", "URL to download from, with {token} as placeholder.")
    file_page_url: str = _extra(
        "", "page URL", "File page URL", "URL of a file's page, with {file_id} as placeholder, for the link File of a task."
    )


EXTRAS: dict[str, Extra] = {one.name: one.metadata["extra"] for one in fields(Extras)}

"""Declares each extra of a connection once, as a field that the settings, the connection form, the docs and the tests read.

The extras that describe the service are in ``services.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # this module must import fast, because Airflow loads the form of every provider
    from airflow_provider_cloudstore.protocol.secrets import Secret


@dataclass(frozen=True, slots=True)
class Extra:
    """The declaration of an extra.

    :param default: the value if the extra is absent, null or empty.
    :param kind: how the value is written; ``protocol/settings.py`` has a parser for each kind.
    :param help: what the extra is for; the form shows this text, and the extra's row in the docs begins with it.
    :param accepts: the lowest and the highest number, the words of a choice, or the placeholder of a URL.
    :param is_secret: whether the value may contain a credential, so that the form hides it.
    """

    default: Any
    kind: str
    label: str
    help: str
    accepts: tuple[Any, ...] = ()
    is_secret: bool = False


def declare(default: Any, kind: str, label: str, help: str, accepts: tuple[Any, ...] = (), *, is_secret: bool = False) -> Any:
    """Return a dataclass field that declares an extra."""
    extra = Extra(default, kind, label, help, accepts, is_secret)
    return field(default_factory=lambda: default, metadata={"extra": extra}, repr=not is_secret)


def extras_of(declaration: type[Any]) -> dict[str, Extra]:
    """Return the extras that a dataclass declares, by name."""
    return {declared.name: declared.metadata["extra"] for declared in fields(declaration) if declared.metadata}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """The values of the extras that say how to use a service, as ``protocol/settings.py`` parses them."""

    timeout: float = declare(30, "number", "Timeout (seconds)", "Seconds for each step of a request.", (0.001, 86_400))
    max_attempts: int = declare(4, "integer", "Attempts", "Maximum requests per call.", (1, 86_400))
    verify: bool | str = declare(True, "boolean or path", "Verify TLS", "Verify TLS: true, false, or the path of a CA bundle.")
    proxy: Secret | None = declare(None, "proxy", "Proxy", "URL of a proxy, with credentials percent-encoded.", is_secret=True)
    allow_http: bool = declare(False, "boolean", "Allow plain http", "Allow http to other machines, which exposes the token.")
    protected_folder_ids: frozenset[str] = declare(
        frozenset({"0", "/"}), "folder ids", "Protected folder ids", 'Ids that are never deleted, as a JSON list: ["archive"].'
    )
    file_page_url: str = declare(
        "",
        "URL template",
        "File page URL",
        "URL of a file's page, with {file_id} in the id's place. Airflow's UI links to it as File.",
        ("{file_id}",),
    )

"""The settings of a connection: where the service is, its token, and how to use it.

``parse_connection.py`` reads them. This module must import fast, because Airflow loads the form of every provider.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from airflow_provider_cloudstore.protocol import extras
from airflow_provider_cloudstore.protocol.extras import Extra, declare
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url, secrets_in
from airflow_provider_cloudstore.protocol.services import API_V2, SERVICES, Service

CONN_TYPE = "cloudstore"
NO_TOKEN = Secret("")
"""In place of the access token of a connection with keys, until ``POST /authorize`` has returned one."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The service's address and token, how to speak to it, and the extras that say how to use it.

    :param base_url: scheme, host, port and path prefix, without a trailing slash; the service's ``api_path`` follows it.
    :param conn_id: the connection's id, for errors that appear only when the connection is used.
    :param warnings: likely mistakes in the connection, such as ``has the unknown extra ...``.
    """

    base_url: str
    access_token: Secret
    service: Service = Service()  # noqa: RUF009  (it is frozen)
    keys: tuple[Secret, ...] = ()
    """The pair for which ``POST /authorize`` returns a token; empty if the connection has the token itself."""
    needs_file_id: bool = False
    """Whether an upload is in doubt if its response has no id, because the connection says where the id must be."""
    conn_id: str = ""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    timeout: float = declare(30, extras.Number(0.001, 86_400), "Seconds to connect, and to receive the response.", "number")
    max_attempts: int = declare(4, extras.Number(1, 86_400, int), "Maximum requests per call.", "integer")
    verify: bool | str = declare(True, extras.flag_or_path, "Verify TLS: true, false, or the path of a CA bundle.")
    proxy: Secret | None = declare(None, extras.parse_proxy, "URL of a proxy, with credentials percent-encoded.", "password")
    allow_http: bool = declare(False, extras.flag, "Allow http to other machines, which exposes the token.", "boolean")
    protected_folder_ids: frozenset[str] = declare(
        extras.ROOT, extras.folder_ids, 'Ids that are never deleted, as a JSON list: ["archive"].'
    )
    file_page_url: str = declare(
        "",
        extras.url_with("{file_id}"),
        "URL of a file's page, with {file_id} in the id's place. Airflow's UI links to it as File.",
    )

    def with_token(self, access_token: Secret, account_id: str) -> Self:
        """Return a copy with a token from ``POST /authorize``, and with the account, which is sent with every call."""
        parameters = {**self.service.parameters, "account_id": account_id} if account_id else self.service.parameters
        return replace(self, access_token=access_token, service=replace(self.service, parameters=parameters))

    @property
    def address(self) -> str:
        """The connection, the base URL and the proxy for a message, without credentials."""
        connection = f"connection '{self.conn_id}' at" if self.conn_id else "at"
        proxy = f" through the proxy {redact_url(self.proxy.reveal())}" if self.proxy else ""
        return f"{connection} {self.base_url}{proxy}"

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The credentials, also those in the parameters of every call and in the proxy's URL."""
        proxy = {"proxy": self.proxy.reveal()} if self.proxy else {}
        return (self.access_token, *self.keys, *secrets_in(self.service.parameters), *secrets_in(proxy))


EXTRAS: dict[str, Extra] = {
    "service": Extra(API_V2, extras.choice(*SERVICES), f"The set of defaults: {' or '.join(SERVICES)}."),
    **extras.extras_of(Service),
    **extras.extras_of(Settings),
}
"""All extras of a connection, by name."""

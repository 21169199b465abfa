"""Sends the calls and downloads of tasks, and keeps what came back."""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import urlsplit

from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.tls import tls_context
from airflow_provider_cloudstore.doctor.places import constant_part
from airflow_provider_cloudstore.exceptions import CloudStoreError, InvalidResponseError, RequestRejectedError
from airflow_provider_cloudstore.hooks.cloudstore import MISSING_FILE_ID
from airflow_provider_cloudstore.hooks.connection import mask
from airflow_provider_cloudstore.protocol.calls import Call, CreateDownloadLink, DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.content import Content, read_content
from airflow_provider_cloudstore.protocol.downloads import Download
from airflow_provider_cloudstore.protocol.messages import Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK
from airflow_provider_cloudstore.protocol.proxies import Proxy
from airflow_provider_cloudstore.protocol.results import DownloadLink, FolderDeletion, RemoteUpload
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.settings import API_PREFIX, Settings

T = TypeVar("T")


class ObservingClient(BlockingClient):
    """A client whose calls know the secrets that were sent before: a response may repeat them.

    :param secrets: what the report must not contain; the secrets of calls and links are added.
    :ivar sent: the secrets of the calls so far. Those of links are not among them: a service may give the same link twice.
    """

    def __init__(self, settings: Settings, reload: Callable[[], Settings], secrets: list[Secret]) -> None:
        super().__init__(settings, reload)
        self.sent: tuple[Secret, ...] = ()
        self._secrets = secrets

    def attempt(self, call: Call[T], time_left: float) -> T:
        """As every client, and remember the secrets."""
        self.hide(call.secrets)
        call.secrets = self.sent = tuple({*self.sent, *call.secrets})
        result = super().attempt(call, time_left)
        if isinstance(result, DownloadLink):
            self.hide(result.secrets)
        return result

    def hide(self, secrets: Iterable[Secret]) -> None:
        """Keep secrets out of the report and of Airflow's logs."""
        new = [secret for secret in secrets if secret not in self._secrets]
        self._secrets += new
        mask(new)


class _Observed(Call[T]):
    response: Response | None = None

    @property
    def subject(self) -> str:
        """What it is about, as it is sent."""
        return self._subject

    def handle_outcome(self, outcome: Response | TransportFailure) -> T:
        """As every call, and keep the response."""
        self.response = outcome if isinstance(outcome, Response) else None
        return super().handle_outcome(outcome)


class Poll(_Observed[DownloadLink], CreateDownloadLink):
    """A request for a link, once."""

    def __init__(self, subject: str, settings: Settings) -> None:
        super().__init__(subject, settings, max_attempts=1)


class WrongPath(_Observed[DownloadLink], CreateDownloadLink):
    """The same at a path that does not exist, again after a failure: what a wrong base URL looks like must be certain."""

    operation = replace(CREATE_DOWNLOAD_LINK, path=f"{API_PREFIX}/{MISSING_FILE_ID}")


class Upload(_Observed[RemoteUpload], UploadFromUrl):
    """An upload."""


class Deletion(_Observed[FolderDeletion], DeleteFolder):
    """A deletion."""


class ObservedDownload(Download):
    """A download, or a range of one.

    :ivar headers: those of the last response that was not a redirect.
    :ivar refused: why the download host refused the first link; empty if it did not.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.headers: Mapping[str, str] = {}
        self.refused = ""

    def accept_head(self, head: Response) -> int:
        """As every download, and keep what the response says."""
        self.headers = head.headers
        try:
            return super().accept_head(head)
        except RequestRejectedError as error:
            self.refused = self.refused or error.reason
            raise


@dataclass(frozen=True, slots=True)
class Observation:
    """What one call came to.

    :param result: its result, or None.
    :param error: how it failed, or None.
    :param seconds: how long it took.
    :param words: what an error says, without what differs from one request to the next.
    """

    result: Any
    error: CloudStoreError | None
    response: Response | None
    content: Content
    seconds: float
    words: str

    @property
    def is_error_envelope(self) -> bool:
        """Whether the service itself reported an error in the form that it has for that."""
        return self.content.is_error or self.content.mentions_error

    @property
    def hides_failure(self) -> bool:
        """Whether the service answered what must fail with a success of its own that has no sign of an error."""
        is_success = self.error is None or isinstance(self.error, InvalidResponseError)
        return is_success and not self.content.problem

    @property
    def seen(self) -> str:
        """What came back, in short, redacted, and without values of a success."""
        if self.error is None:
            status = f"HTTP {self.response.status}" if self.response else "success"
            return f"{status}; {self.content.keys}"
        said = self.error.message or (f"{self.content.keys}" if self.response and not self.content.is_web_page else "")
        page = "a web page" if self.content.is_web_page and "web page" not in self.error.reason else ""
        return "; ".join(part for part in (self.error.reason, page, said if said not in self.error.reason else "") if part)

    @property
    def advice(self) -> str:
        """What to do about the error; empty if there is none."""
        return str(self.error).partition("\n")[2] if self.error else ""

    def looks_like(self, other: Observation) -> bool:
        """Whether both came back with the same status and the same words."""
        return self._fingerprint == other._fingerprint

    @property
    def _fingerprint(self) -> tuple[Any, ...]:
        if self.response is None or self.error is None:
            return (type(self.error), self.result is not None)
        return self.response.status, self.words


def ask(client: ObservingClient, call: _Observed[Any], *, once: bool = False) -> Observation:
    """Perform a call as tasks do.

    :param once: whether to send one request in any case, also if its token is refused.
    """
    began = time.monotonic()
    result, failed = None, None
    try:
        result = client.attempt(call, client.settings.timeout) if once else client.perform(call)
    except CloudStoreError as error:
        failed = error
    content = read_content(call.response) if call.response else Content()
    said = redact((failed.message if failed else "") or content.text, call.secrets)
    words = constant_part(said, (call.operation.path.lstrip("/"), call.subject))
    return Observation(result, failed, call.response, content, time.monotonic() - began, words)


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection that was opened and closed.

    :param seconds: how long it took, TLS included.
    :param certificate: whose certificate it was, and how long it is valid; or why that is not known.
    :param days: for how many days it is valid; None if not known.
    """

    seconds: float
    certificate: str
    days: float | None = None


def connect(settings: Settings) -> Connected | str:
    """Connect to the base URL, through the proxy if there is one.

    :returns: what was seen, or why it was not.
    """
    parts, proxy = urlsplit(settings.base_url), Proxy.of(settings.proxy)
    if proxy and proxy.url.startswith("https"):
        return "not tried through an https proxy"
    certificates: list[dict[str, Any]] = []

    class Socket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            certificates.append(self.getpeercert() or {})

    host, port = parts.hostname or "", parts.port
    via = urlsplit(proxy.url) if proxy else parts
    address, timeout = (via.hostname or "", via.port), min(settings.timeout, 10.0)
    if parts.scheme == "https":
        context = tls_context(settings)
        context.sslsocket_class = Socket
        connection: HTTPConnection = HTTPSConnection(*address, timeout=timeout, context=context)
        if proxy:
            connection.set_tunnel(host, port or 443, dict(proxy.headers))
    else:
        connection = HTTPConnection(*address, timeout=timeout)
    began = time.monotonic()
    try:
        connection.connect()
    except (OSError, HTTPException) as error:
        return f"could not connect a second time ({type(error).__name__})"
    finally:
        connection.close()
    return _described(time.monotonic() - began, certificates, settings)


def _described(seconds: float, certificates: list[dict[str, Any]], settings: Settings) -> Connected:
    if not certificates:
        return Connected(seconds, "the connection is plain http")
    certificate = certificates[0]
    if not certificate:
        return Connected(seconds, "extra 'verify' is false")
    issuer = dict(pair for pairs in certificate["issuer"] for pair in pairs)
    days = (ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()) / 86_400
    name = issuer.get("organizationName") or issuer.get("commonName", "an unnamed authority")
    whole = math.floor(days)
    return Connected(seconds, f"issued by {name}, valid for {whole:,} more day{'' if whole == 1 else 's'}", days)

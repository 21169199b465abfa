"""The operations of the API: each is one class that declares all of it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import quote

from airflow_provider_cloudstore import __version__, exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol import failures, finding, signals
from airflow_provider_cloudstore.protocol.attempts import Attempts
from airflow_provider_cloudstore.protocol.bodies import Body, read_body
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.parameters import FILE_ID, FOLDER_ID, SOURCE_URL, Parameter, other_parameters
from airflow_provider_cloudstore.protocol.secrets import Secret, redact, redact_parameters
from airflow_provider_cloudstore.protocol.services import IN_DOCUMENT, IN_HEADER, Service
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.signals import Signal
from airflow_provider_cloudstore.protocol.storable import storable
from airflow_provider_cloudstore.results import DownloadLink, FolderDeletion, Json, RemoteUpload

T = TypeVar("T")

USER_AGENT = f"airflow-provider-cloudstore/{__version__}"
MAX_MESSAGE_LENGTH = 300
_RIVALS = (
    "Each token ends the earlier ones of its account, so another task has probably asked for one. Run fewer of these tasks side "
    "by side, for example with an Airflow pool."
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What an operation makes its result of.

    :param secrets: what no message and no stored value may contain.
    :param existed: whether the subject existed; None if unknown.
    """

    response: Response
    body: Body
    secrets: tuple[Secret, ...]
    existed: bool | None = True

    def safe(self, text: str) -> str:
        """``text`` without secrets."""
        return redact_parameters(redact(text, self.secrets))

    def stored(self, kept: str = "") -> Json:
        """The content as an XCom may hold it, without secrets that the service repeats, but ``kept`` as it is: the file's id."""
        return storable(self.body.data, lambda text: text if text == kept else self.safe(text))


class Operation(ABC, Generic[T]):
    """One operation; an instance has arguments that its guards have passed, and decides without I/O what each attempt means.

    A client's loop is ``request() -> send -> interpret()``, repeated as ``pause_before_retry`` says.

    :param arguments: a value for each parameter; the first is the subject.
    :param retry_unknown_outcome: whether an operation that must not be repeated is, if its outcome is unknown.
    :param ignore_missing: whether it is a success that the subject does not exist, where that can be one.
    :raises InvalidInputError: if a guard rejects an argument.
    """

    key: str
    """Its short name, in the emulator's faults and counters."""
    name: str
    """Its name in messages."""
    method: str
    """The HTTP method: a GET carries the parameters in the query, a POST in a form."""
    path: str
    """The path below the service's ``api_path``."""
    parameters: tuple[Parameter, ...]
    idempotent: bool
    """Whether repeating it has no further effect."""
    has_subject: bool
    """Whether its subject must exist in the service; an upload's is created."""
    missing_is_success: ClassVar[bool] = False
    """Whether it is done if its subject does not exist, and the caller says so or an earlier attempt may have done it."""
    advice: ClassVar[Mapping[type[CloudStoreError], str]] = {}
    """What to do about an error, where the hint of its class does not fit."""

    @classmethod
    def hook_method(cls) -> str:
        """Its method in both hooks, such as ``delete_folder`` of ``DeleteFolder``."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(
        self, settings: Settings, *arguments: Any, retry_unknown_outcome: bool = False, ignore_missing: bool = False
    ) -> None:
        self._opted_in, self._ignore_missing = retry_unknown_outcome, ignore_missing
        try:
            self.arguments = {
                one.name: one.validate(value, settings) for one, value in zip(self.parameters, arguments, strict=True)
            }
        except exceptions.InvalidInputError as error:
            raise replace(error, operation=self.name) from None
        self.secrets = tuple(secret for one in self.parameters for secret in one.secrets(self.arguments[one.name]))
        """The credentials in its arguments."""

    @property
    def subject(self) -> str:
        """The id or URL that it is about."""
        return self.arguments[self.parameters[0].name]

    def redacted(self, secrets: tuple[Secret, ...]) -> str:
        """The subject for messages."""
        return redact(self.parameters[0].redact(self.subject), secrets)

    def request(self, settings: Settings) -> Request:
        """The HTTP request, with the token and the parameters that the service declares."""
        service, token = settings.service, settings.access_token.reveal()
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity"}
        given = {**service.parameters, **self.arguments}
        if not token:
            pass  # it is asked for
        elif service.token_in == IN_HEADER or (service.token_in == IN_DOCUMENT and self.method == "POST"):
            headers["Authorization"] = f"Bearer {token}"
        else:
            given = {"access_token": token, **given}
        url = settings.base_url + service.api_path + self.path
        encoded = "&".join(f"{_encode(name)}={_encode(value)}" for name, value in given.items())
        if self.method == "GET":
            return Request(self.method, f"{url}?{encoded}" if encoded else url, headers)
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        return Request(self.method, url, headers, encoded.encode("ascii"))

    def interpret(
        self, outcome: Response | TransportFailure, settings: Settings, attempts: Attempts | None = None
    ) -> T | CloudStoreError:
        """What an attempt ended with: the result, or an error.

        :param attempts: those so far; by default it was the only one.
        """
        attempts = attempts or Attempts(settings.max_attempts, count=1)
        refused = (attempts.refused_token,) if attempts.refused_token else ()
        secrets = (*settings.secrets, *refused, *self.secrets)
        if isinstance(outcome, TransportFailure):
            return self._unanswered(outcome, settings, attempts, secrets)
        reading = Reading(outcome, read_body(outcome), secrets)
        found = self.find(reading, settings)
        signal = signals.of_response(self, outcome, reading.body, settings.service, has_result=found is not None)
        if signal is Signal.SUCCESS:
            return self.result(found, reading)
        may_be_missing = self.missing_is_success and (self._ignore_missing or attempts.in_doubt)
        if signal is Signal.MISSING and may_be_missing and isinstance(reading.body.data, dict):
            return self.result(found, replace(reading, existed=None if attempts.in_doubt else False))
        return self._response_error(signal, reading, settings, attempts)

    def find(self, reading: Reading, settings: Settings) -> Any:
        """What the operation asked for, or None; beside it, an ``error`` is a warning."""
        return None

    def needs_result(self, service: Service) -> bool:
        """Whether a success must hold what :meth:`find` looks for."""
        return False

    @abstractmethod
    def result(self, found: Any, reading: Reading) -> T:
        """The result of a successful response; ``found`` is what :meth:`find` returned."""

    def _unanswered(
        self, failure: TransportFailure, settings: Settings, attempts: Attempts, secrets: tuple[Secret, ...]
    ) -> CloudStoreError:
        signal, reason = signals.of_failure(failure), failure.reason
        advice = "" if signal is Signal.IN_DOUBT else failures.advice_on(failure, "the connection's host")
        if signal is Signal.UNREACHABLE:
            reason = f"{reason}, at {settings.route}"
        return self._error(signal, reason, settings, attempts, secrets, advice=advice)

    def _response_error(self, signal: Signal, reading: Reading, settings: Settings, attempts: Attempts) -> CloudStoreError:
        body, status = reading.body, reading.response.status
        link = finding.find_link("", body, settings.service, (), received=0, base_url=settings.base_url)
        if link and isinstance(body.data, dict):  # the message may repeat the download token
            reading = replace(reading, secrets=(*reading.secrets, *finding.secrets_of(link)))
        # Checked before it is cut: the rest of a secret that is cut in two would not be recognized.
        message = reading.safe(signals.words_of(body, settings.service))[:MAX_MESSAGE_LENGTH]
        if signal is Signal.NO_RESULT and " " not in message:  # a word may be a token that nobody has declared
            message = ""
        shows_keys = not body.problem and body.data is not None and (not message or signal is Signal.NO_RESULT)
        reason, is_2xx = f"HTTP {status}", 200 <= status < 300
        if is_2xx and body.problem:
            reason += f" with {body.problem}"
        elif is_2xx and (stated := signals.stated_status(body)):
            reason += f" that states {stated}"
        detail = "; ".join(filter(None, (message, reading.safe(body.keys) if shows_keys else "")))
        pause = signals.retry_after(reading.response)
        return self._error(
            signal, reason, settings, attempts, reading.secrets, status=status, detail=detail, message=message, pause=pause
        )

    def _error(
        self,
        signal: Signal,
        reason: str,
        settings: Settings,
        attempts: Attempts,
        secrets: tuple[Secret, ...],
        *,
        status: int | None = None,
        detail: str = "",
        message: str = "",
        pause: float | None = None,
        advice: str = "",
    ) -> CloudStoreError:
        meaning = failures.MEANINGS[signal]
        kind = failures.error_of(signal, idempotent=self.idempotent, opted_in=self._opted_in, in_doubt=attempts.in_doubt)
        reason, is_meant = meaning.says.format(reason), kind in (meaning.error, meaning.once)
        wait = meaning.wait if is_meant else None
        if signal is Signal.TOKEN_REFUSED and settings.keys:
            advice, wait = _RIVALS, "tolerates"
        if meaning.names_address:
            named = f"connection '{settings.conn_id}' " if settings.conn_id else ""
            reason += f" ({named}at {settings.route})"
        return kind(
            redact(f"{reason}: {detail}" if detail else reason, secrets),
            operation=self.name,
            subject=self.redacted(secrets),
            status=status,
            attempts=attempts.count,
            retry_after=pause,
            message=message,
            advice=((advice or meaning.advice) if is_meant else "") or self.advice.get(kind, ""),
            wait=wait,
        )


def _encode(value: str) -> str:
    # The form encoding of the WHATWG URL standard, section 5.2, but a space as %20, which is valid in queries and forms.
    return quote(value, safe="")


class DeleteFolder(Operation[FolderDeletion]):
    """Permanently delete a folder and everything in it (``POST /folder/delete``)."""

    key, name = "delete", "delete folder"
    method, path = "POST", "/folder/delete"
    parameters = (FOLDER_ID,)
    idempotent = True
    has_subject = missing_is_success = True
    advice: ClassVar = {
        exceptions.ServiceError: (
            f"{exceptions.ServiceError.hint} If it means that the folder does not exist, extra 'not_found_pattern' must match it."
        ),
        exceptions.NotFoundError: f"{exceptions.NotFoundError.hint} If a missing folder is fine, set ignore_missing=True.",
    }

    def result(self, found: None, reading: Reading) -> FolderDeletion:
        """The deletion, with the service's response."""
        return FolderDeletion(self.subject, finding.moment(reading.response.sent), reading.stored(), reading.existed)


class UploadFromUrl(Operation[RemoteUpload]):
    """Queue an upload that the service fetches itself (``POST /file/url_upload_add``)."""

    key, name = "upload", "remote upload"
    method, path = "POST", "/file/url_upload_add"
    parameters: tuple[Parameter, ...] = (SOURCE_URL,)
    idempotent = has_subject = False
    advice: ClassVar = {
        exceptions.TransientServiceError: (
            "The upload may or may not have been queued; retry_unknown_outcome=True allows resending it."
        ),
    }

    def __init__(
        self,
        settings: Settings,
        url: Any,
        parameters: Mapping[str, Any] | None = None,
        *,
        retry_unknown_outcome: bool = False,
        ignore_missing: bool = False,
    ) -> None:
        others = other_parameters(parameters or {}, self.name, known=("url",))
        self.parameters = (SOURCE_URL, *others)
        values = () if parameters is None else parameters.values()
        super().__init__(settings, url, *values, retry_unknown_outcome=retry_unknown_outcome)

    def find(self, reading: Reading, settings: Settings) -> str | None:
        """The file's id, checked against the access token alone: a source URL may well name the file."""
        return finding.find_file_id(reading.body, settings.service, (settings.access_token,))

    def needs_result(self, service: Service) -> bool:
        """Whether the connection says where the id is."""
        return service.needs_file_id

    def result(self, found: str | None, reading: Reading) -> RemoteUpload:
        """The queued upload, with the service's response."""
        file_id, sent = found or "", finding.moment(reading.response.sent)
        return RemoteUpload(file_id, self.redacted(reading.secrets), sent, reading.stored(file_id))


class CreateDownloadLink(Operation[DownloadLink]):
    """Create a download token for a file (``GET /file/download``)."""

    key, name = "link", "download link"
    method, path = "GET", "/file/download"
    parameters = (FILE_ID,)
    idempotent = has_subject = True
    advice: ClassVar = {
        exceptions.InvalidResponseError: (
            f"{exceptions.InvalidResponseError.hint} "
            "If the service returns the token, or the URL that is one, in an unusual place, set extra 'token_path'."
        ),
        exceptions.ServiceError: (
            f"{exceptions.ServiceError.hint} If the file is missing, or not there yet, extra 'not_found_pattern' must match it."
        ),
        exceptions.NotFoundError: (
            f"{exceptions.NotFoundError.hint} "
            "A queued file is not found until the service has fetched it: set wait_for_file=True to wait for it."
        ),
    }

    def find(self, reading: Reading, settings: Settings) -> DownloadLink | None:
        """The link, if the response contains a token; its URL is the response's, or else that of extra ``download_url``."""
        received, base_url = reading.response.received, settings.base_url
        return finding.find_link(
            self.subject, reading.body, settings.service, reading.secrets, received=received, base_url=base_url
        )

    def needs_result(self, service: Service) -> bool:
        """True: without a token there is no link."""
        return True

    def result(self, found: DownloadLink, reading: Reading) -> DownloadLink:
        """The link."""
        return found


OPERATIONS: tuple[type[Operation[Any]], ...] = (DeleteFolder, UploadFromUrl, CreateDownloadLink)
"""All of them. The emulator and the tests iterate this: each fails until it knows every operation."""

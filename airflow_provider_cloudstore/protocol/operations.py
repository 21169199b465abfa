"""The operations of the API: each is one class that declares all of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import quote

from airflow_provider_cloudstore import __version__, exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol import finding, meanings
from airflow_provider_cloudstore.protocol.attempts import Attempts
from airflow_provider_cloudstore.protocol.meanings import Meaning
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.parameters import FILE_ID, FOLDER_ID, SOURCE_URL, Parameter, other_parameters
from airflow_provider_cloudstore.protocol.reading import Reading, meaning_of, read, retry_after
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.services import IN_DOCUMENT, IN_HEADER
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.results import DownloadLink, FolderDeletion, RemoteUpload

T = TypeVar("T")

USER_AGENT = f"airflow-provider-cloudstore/{__version__}"
MAX_MESSAGE_LENGTH = 300
_RIVALS = (
    "Each token ends the earlier ones of its account, so another task has probably asked for one. Run fewer of these tasks side "
    "by side, for example with an Airflow pool."
)


class Operation(Generic[T]):
    """One operation; an instance has arguments that its guards have passed, and decides without I/O what each attempt means.

    A client's loop is ``request() -> send -> interpret()``, repeated as ``pause_before_retry`` says.

    :param arguments: a value for each parameter; the first is the subject.
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
    needs_result = False
    """Whether a success must hold what :meth:`find` looks for."""
    resends_in_doubt = False
    """Whether the caller allows repeating it, although it is not idempotent, when its outcome is unknown."""
    advice: ClassVar[Mapping[type[CloudStoreError], str]] = {}
    """What to do about an error, where the hint of its class does not fit."""

    @classmethod
    def hook_method(cls) -> str:
        """Its method in both hooks, such as ``delete_folder`` of ``DeleteFolder``."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, settings: Settings, *arguments: Any) -> None:
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
        """The subject for messages; empty without parameters."""
        return redact(self.parameters[0].redact(self.subject), secrets) if self.parameters else ""

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
        if isinstance(outcome, TransportFailure):
            return self._error(outcome.meaning, outcome.reason, settings, attempts)
        reading = read(outcome, self._secrets_of_call(settings, attempts))
        found = self.find(reading, settings)
        meaning = meaning_of(reading, self, settings.service, has_result=found is not None)
        if meaning is None:
            return self.result(found, reading)
        done = None
        if meaning is meanings.MISSING and isinstance(reading.data, dict):
            done = self.result_of_missing(reading, in_doubt=attempts.in_doubt)
        return done or self._response_error(meaning, reading, settings, attempts)

    def find(self, reading: Reading, settings: Settings) -> Any:
        """What the operation asked for, or None; beside it, an ``error`` is a warning."""
        return None

    def result(self, found: Any, reading: Reading) -> T:
        """The result of a successful response: what :meth:`find` found."""
        result: T = found
        return result

    def result_of_missing(self, reading: Reading, *, in_doubt: bool) -> T | None:
        """The result where the service says that the subject does not exist; None if that is an error.

        :param in_doubt: whether an earlier attempt may have had an effect.
        """
        return None

    def _response_error(self, meaning: Meaning, reading: Reading, settings: Settings, attempts: Attempts) -> CloudStoreError:
        service = settings.service
        link = finding.find_link("", replace(reading, secrets=()), service, settings.base_url)
        if link and isinstance(reading.data, dict):  # the message may repeat the download token
            reading = replace(reading, secrets=(*reading.secrets, *finding.secrets_of(link)))
        # Redacted before it is cut: the rest of a secret that is cut in two would not be recognized.
        message = reading.safe(reading.words(service))[:MAX_MESSAGE_LENGTH]
        if meaning is meanings.NO_TOKEN and " " not in message:  # a word may be a token that nobody has declared
            message = ""
        shows_keys = not reading.problem and reading.data is not None and (not message or meaning is meanings.NO_TOKEN)
        seen = f"HTTP {reading.response.status}"
        if reading.is_2xx and reading.problem:
            seen += f" with {reading.problem}"
        elif reading.is_2xx and (stated := reading.stated_status):
            seen += f" that states {stated}"
        details = "; ".join(filter(None, (message, reading.safe(reading.keys) if shows_keys else "")))
        error = self._error(meaning, seen, settings, attempts, details)
        return replace(error, status=reading.response.status, message=message, retry_after=retry_after(reading.response))

    def _error(self, meaning: Meaning, seen: str, settings: Settings, attempts: Attempts, details: str = "") -> CloudStoreError:
        """The error of an attempt.

        :param seen: what was seen, such as ``HTTP 404``.
        :param details: what the service said, without secrets.
        """
        kind = meaning.error_for(idempotent=self.idempotent, resend_in_doubt=self.resends_in_doubt, in_doubt=attempts.in_doubt)
        is_meant = kind in (meaning.error, meaning.once)  # else it is what an earlier attempt makes of it
        advice, wait = (meaning.advice, meaning.wait) if is_meant else ("", None)
        if meaning is meanings.TOKEN_REFUSED and settings.keys:
            advice, wait = _RIVALS, "tolerates"
        reason = meaning.says.format(seen)
        if meaning.names_address:
            named = f"connection '{settings.conn_id}' " if settings.conn_id else ""
            reason += f" ({named}at {settings.route})"
        secrets = self._secrets_of_call(settings, attempts)
        return kind(
            redact(f"{reason}: {details}" if details else reason, secrets),
            operation=self.name,
            subject=self.redacted(secrets),
            attempts=attempts.count,
            advice=advice or self.advice.get(kind, ""),
            wait=wait,
        )

    def _secrets_of_call(self, settings: Settings, attempts: Attempts) -> tuple[Secret, ...]:
        """What no message of the call may contain, the token that was replaced included."""
        refused = (attempts.refused_token,) if attempts.refused_token else ()
        return (*settings.secrets, *refused, *self.secrets)


def _encode(value: str) -> str:
    # The form encoding of the WHATWG URL standard, section 5.2, but a space as %20, which is valid in queries and forms.
    return quote(value, safe="")


class DeleteFolder(Operation[FolderDeletion]):
    """Permanently delete a folder and everything in it (``POST /folder/delete``).

    :param ignore_missing: whether it is a success that the folder does not exist.
    """

    key, name = "delete", "delete folder"
    method, path = "POST", "/folder/delete"
    parameters = (FOLDER_ID,)
    idempotent = has_subject = True
    advice: ClassVar = {
        exceptions.ServiceError: (
            f"{exceptions.ServiceError.hint} If it means that the folder does not exist, extra 'not_found_pattern' must match it."
        ),
        exceptions.NotFoundError: f"{exceptions.NotFoundError.hint} If a missing folder is fine, set ignore_missing=True.",
    }

    def __init__(self, settings: Settings, folder_id: Any, *, ignore_missing: bool = False) -> None:
        super().__init__(settings, folder_id)
        self._ignore_missing = ignore_missing

    def result(self, found: None, reading: Reading) -> FolderDeletion:
        """The deletion, with the service's response."""
        return self._deletion(reading, existed=True)

    def result_of_missing(self, reading: Reading, *, in_doubt: bool) -> FolderDeletion | None:
        """A deletion, if the caller takes it as one, or if an earlier attempt may have deleted the folder."""
        if not (self._ignore_missing or in_doubt):
            return None
        return self._deletion(reading, existed=None if in_doubt else False)

    def _deletion(self, reading: Reading, *, existed: bool | None) -> FolderDeletion:
        return FolderDeletion(self.subject, finding.moment(reading.response.sent), reading.stored(), existed)


class UploadFromUrl(Operation[RemoteUpload]):
    """Queue an upload that the service fetches itself (``POST /file/url_upload_add``).

    :param parameters: what else the service takes for an upload.
    :param retry_unknown_outcome: whether it is repeated if its outcome is unknown.
    """

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
    ) -> None:
        self.needs_result = settings.service.needs_file_id
        self.resends_in_doubt = retry_unknown_outcome
        self.parameters = (SOURCE_URL, *other_parameters(parameters or {}, self.name, known=("url",)))
        super().__init__(settings, url, *(parameters or {}).values())

    def find(self, reading: Reading, settings: Settings) -> str | None:
        """The file's id, checked against the access token alone: a source URL may well name the file."""
        return finding.find_file_id(reading, settings.service, (settings.access_token,))

    def result(self, found: str | None, reading: Reading) -> RemoteUpload:
        """The queued upload, with the service's response."""
        file_id, sent = found or "", finding.moment(reading.response.sent)
        return RemoteUpload(file_id, self.redacted(reading.secrets), sent, reading.stored(file_id))


class CreateDownloadLink(Operation[DownloadLink]):
    """Create a download token for a file (``GET /file/download``)."""

    key, name = "link", "download link"
    method, path = "GET", "/file/download"
    parameters = (FILE_ID,)
    idempotent = has_subject = needs_result = True
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
        return finding.find_link(self.subject, reading, settings.service, settings.base_url)


OPERATIONS: tuple[type[Operation[Any]], ...] = (DeleteFolder, UploadFromUrl, CreateDownloadLink)
"""All of them. The emulator and the tests iterate this: each fails until it knows every operation."""

"""The operations of the API. Each operation is declared completely in one class."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar, cast
from urllib.parse import quote

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError, InvalidInputError
from airflow_provider_cloudstore.protocol import extraction, guards
from airflow_provider_cloudstore.protocol.http import COMMON_HEADERS, Request
from airflow_provider_cloudstore.protocol.reading import Reading
from airflow_provider_cloudstore.protocol.secrets import Secret, redact, redact_url, secrets_in
from airflow_provider_cloudstore.protocol.services import IN_DOCUMENT, IN_HEADER
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.results import DownloadLink, FolderDeletion, RemoteUpload

T = TypeVar("T")

Guard = Callable[[Any, Settings], str]
"""Returns an argument as it is sent, or raises :class:`InvalidInputError`."""


class Operation(Generic[T]):
    """One operation, declared completely. An instance has arguments that its guards accepted.

    :param arguments: a value for each of the operation's own parameters.
    :param others: further parameters by name, which the service takes; the values are texts or integers.
    :raises InvalidInputError: if an argument cannot be sent.
    """

    key: str
    """The short name of the operation in extra ``success_when``, and in the emulator's faults and counters."""
    name: str
    """The name of the operation in messages."""
    hook_method: str
    """The name of the operation's method in both hooks."""
    method: str
    """The HTTP method: a GET carries the parameters in the query, a POST in a form."""
    path: str
    """The path below the service's ``api_path``."""
    own_parameters: ClassVar[Mapping[str, Guard]] = {}
    """The operation's own parameters by name, with their guards. The hooks' methods use the same names."""
    may_be_repeated: bool
    """Whether to send the operation again if its outcome is unknown: it is idempotent, or the caller opted in."""
    subject_must_exist: bool
    """Whether the subject must exist, so that a response can say that it does not; an upload creates its subject."""
    may_be_pending: bool = False
    """Whether HTTP 202 or a state such as ``pending`` in place of the result means that the subject is not there yet, so that one
    may ask again."""
    must_find: str = ""
    """What :meth:`find` must find for a response to be a success, such as ``token``; empty if it need not find anything."""
    advice_if_missing: str = ""
    """What to do if it is not found."""
    error_if_refused: type[CloudStoreError] = exceptions.AuthenticationError
    """The error if the service refuses the credentials."""
    hints: ClassVar[Mapping[type[CloudStoreError], str]] = {}
    """What to do about an error of this operation, by the error's class; the advice of the signal or of the class follows."""

    def __init__(self, settings: Settings, *arguments: Any, others: Mapping[str, Any] | None = None) -> None:
        try:
            given = zip(self.own_parameters.items(), arguments, strict=True)
            own = {name: guard(value, settings) for (name, guard), value in given}
            self.arguments = own | _validate_others({} if others is None else others, ("access_token", *self.own_parameters))
        except InvalidInputError as error:
            raise replace(error, operation=self.name) from None
        self.subject = next(iter(own.values()), "")
        """The id or URL that the operation is about: its first own argument; empty if it has none."""
        self.secrets = secrets_in(self.arguments)
        """The credentials in the arguments."""

    def redacted(self, secrets: tuple[Secret, ...]) -> str:
        """Return the subject as messages show it."""
        return redact(redact_url(self.subject) if "://" in self.subject else self.subject, secrets)

    def request(self, settings: Settings) -> Request:
        """Return the HTTP request, with the token and the parameters that the service declares."""
        service, token = settings.service, settings.access_token.reveal()
        headers = {**COMMON_HEADERS, "Accept": "application/json"}
        own = {name.lower() for name in self.arguments}
        given = {name: value for name, value in service.parameters.items() if name.lower() not in own} | self.arguments
        if token and (service.token_in == IN_HEADER or (service.token_in == IN_DOCUMENT and self.method == "POST")):
            headers["Authorization"] = f"Bearer {token}"
        elif token:
            given = {"access_token": token, **given}
        url = settings.base_url + service.api_path + self.path
        encoded = "&".join(f"{_encode(name)}={_encode(value)}" for name, value in given.items())
        if self.method == "GET":
            return Request(self.method, f"{url}?{encoded}" if encoded else url, headers)
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        return Request(self.method, url, headers, encoded.encode("ascii"))

    def find(self, reading: Reading) -> Any:
        """Return what the operation asked for, such as a token, if it is in the response; otherwise None.

        If it is found, a field ``error`` beside it counts as a warning.
        """
        return None

    def result(self, reading: Reading) -> T:
        """Return the result of a success; by default, what :meth:`find` found."""
        return cast("T", reading.found)

    def secrets_of(self, result: T) -> tuple[Secret, ...]:
        """Return the credentials in a result."""
        return ()

    def result_of_missing(self, reading: Reading, *, in_doubt: bool) -> T | None:
        """Return the result for a subject that does not exist according to the service; None if that is an error.

        :param in_doubt: whether an earlier attempt may have had an effect.
        """
        return None


def _validate_others(given: Mapping[str, Any], taken: tuple[str, ...]) -> dict[str, str]:
    """Return further parameters of a call, as they are sent.

    :param taken: the names that the call itself uses.
    """
    if not isinstance(given, Mapping):
        raise InvalidInputError("parameters must be a dict of names and values")
    if wrong := [name for name in given if not _is_text(name) or not name or name.lower() in taken]:
        reason = f"a parameter's name must be a text, and not {' or '.join(taken)}, which the hook adds itself: {wrong[0]!r}"
        raise InvalidInputError(reason)
    texts = {name: guards.text_of(value) for name, value in given.items()}
    if unusable := [name for name, text in texts.items() if not _is_text(text)]:
        kind = type(given[unusable[0]]).__name__
        reason = f"parameter {unusable[0]!r} must be an integer or a text in valid Unicode, not {kind}"
        raise InvalidInputError(reason, advice="Pass it as the service expects it, such as 'true' or '1'.")
    return {name: str(text) for name, text in texts.items()}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def _encode(value: str) -> str:
    # The form encoding of the WHATWG URL standard, section 5.2, except that a space is %20, which queries and forms both accept.
    return quote(value, safe="")


class DeleteFolder(Operation[FolderDeletion]):
    """Permanently delete a folder and everything in it (``POST /folder/delete``).

    :param ignore_missing: whether the deletion of a folder that does not exist counts as a success.
    """

    key, name, hook_method = "delete", "delete folder", "delete_folder"
    method, path = "POST", "/folder/delete"
    own_parameters: ClassVar[Mapping[str, Guard]] = {
        "folder_id": lambda value, settings: guards.validate_folder_id(value, settings.protected_folder_ids)
    }
    may_be_repeated = subject_must_exist = True
    hints: ClassVar = {
        exceptions.ServiceError: "If this means that the folder is missing, extra 'not_found_pattern' must match it.",
        exceptions.NotFoundError: "If a missing folder is fine, set ignore_missing=True, which hides a wrong path, too.",
    }

    def __init__(self, settings: Settings, folder_id: Any, *, ignore_missing: bool = False) -> None:
        super().__init__(settings, folder_id)
        self._ignore_missing = ignore_missing

    def result(self, reading: Reading, existed: bool | None = True) -> FolderDeletion:
        """Return the deletion, with the service's response."""
        return FolderDeletion(self.subject, extraction.moment(reading.response.sent_at), reading.storable_data(), existed)

    def result_of_missing(self, reading: Reading, *, in_doubt: bool) -> FolderDeletion | None:
        """Return a deletion if the caller ignores a missing folder, or if an earlier attempt may have deleted it.

        Only a JSON object counts: other text may be a front end's, and says nothing of a folder.
        """
        if not (self._ignore_missing or in_doubt) or not isinstance(reading.data, dict):
            return None
        return self.result(reading, None if in_doubt else False)


class UploadFromUrl(Operation[RemoteUpload]):
    """Queue an upload of a file that the service fetches itself (``POST /file/url_upload_add``).

    :param parameters: further parameters that the service takes for an upload.
    :param retry_unknown_outcome: whether the upload is sent again if its outcome is unknown.
    """

    key, name, hook_method = "upload", "remote upload", "upload_from_url"
    method, path = "POST", "/file/url_upload_add"
    own_parameters: ClassVar[Mapping[str, Guard]] = {"url": lambda value, _: guards.validate_source_url(value)}
    subject_must_exist = False
    advice_if_missing = (
        "If the response has the id, correct extra 'file_id_path'; if the service returns no id, remove that extra."
    )
    hints: ClassVar = {
        exceptions.OutcomeUnknownError: (
            "The upload may or may not have been queued. Check in the service whether the file arrived; if not, clear the task "
            "to send it again. If a second copy does no harm, set retry_unknown_outcome=True."
        ),
        exceptions.TransientServiceError: "The upload may have been queued.",
        exceptions.NotFoundError: "This is about an id in the upload's parameters, or the path of the call is wrong.",
    }

    def __init__(
        self,
        settings: Settings,
        url: Any,
        parameters: Mapping[str, Any] | None = None,
        *,
        retry_unknown_outcome: bool = False,
    ) -> None:
        super().__init__(settings, url, others=parameters)
        self.may_be_repeated = retry_unknown_outcome
        self.must_find = "file id at the path in extra 'file_id_path'" if settings.needs_file_id else ""

    def find(self, reading: Reading) -> str | None:
        """Return the file's id."""
        return extraction.find_file_id(reading)

    def result(self, reading: Reading) -> RemoteUpload:
        """Return the queued upload, with the file's id, if it was found, and the service's response."""
        file_id, sent = reading.found or "", extraction.moment(reading.response.sent_at)
        return RemoteUpload(file_id, self.redacted(reading.secrets), sent, reading.storable_data(file_id))


class CreateDownloadLink(Operation[DownloadLink]):
    """Create a download token for a file (``GET /file/download``)."""

    key, name, hook_method = "link", "download link", "create_download_link"
    method, path = "GET", "/file/download"
    own_parameters: ClassVar[Mapping[str, Guard]] = {"file_id": lambda value, _: guards.validate_text(value, "file_id")}
    may_be_repeated = subject_must_exist = may_be_pending = True
    must_find = "token"
    advice_if_missing = "If the response has the token, or a URL that serves as the token, set extra 'token_path' to its place."
    hints: ClassVar = {
        exceptions.ServiceError: "If this means that the file is not there (yet), extra 'not_found_pattern' must match it.",
        exceptions.NotFoundError: (
            "A queued file is not found until the service has fetched it: set wait_for_file=True to wait for it."
        ),
    }

    def find(self, reading: Reading) -> DownloadLink | None:
        """Return the link if the response contains a token. Its URL comes from the response or else extra ``download_url``."""
        return extraction.find_link(self.subject, reading)

    def secrets_of(self, result: DownloadLink) -> tuple[Secret, ...]:
        """Return the download token, and the credentials in its URL."""
        return extraction.link_secrets(result)


OPERATIONS: tuple[type[Operation[Any]], ...] = (DeleteFolder, UploadFromUrl, CreateDownloadLink)
"""All operations. The emulator and the tests iterate over them, and each of the two fails until it knows every operation."""

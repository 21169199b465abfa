"""Sends what tasks send, each request once, and says how the connection's declaration reads what comes back."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.hooks.cloudstore import MISSING_FILE_ID, CloudStoreHook
from airflow_provider_cloudstore.hooks.connection import exchange_keys, read_connection
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.file_wait import INCONCLUSIVE_POLLS
from airflow_provider_cloudstore.protocol.http import Response
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, Operation, UploadFromUrl
from airflow_provider_cloudstore.protocol.parse_connection import read_extra
from airflow_provider_cloudstore.protocol.paths import Paths, leaves_of, plain
from airflow_provider_cloudstore.protocol.reading import Reading, read
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, is_credential_name, is_word, redact
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.results import DownloadLink, RemoteUpload

_WANTED = {  # what a task must raise, and the extra that declares it
    "missing file": (exceptions.NotFoundError, "not_found_pattern"),
    "wrong token": (exceptions.AuthenticationError, "token_refused_pattern"),
}
_SOUGHT = {"upload": ["file_id_path"], "link": ["token_path", "download_url_path", "expires_path"]}
_PAUSE = 1.0  # seconds between two requests for a link of the uploaded file
_QUERY = re.compile(r"(/[^\s?]*\?)\S+")


class Answer:
    """What became of a request; ``result`` is what a task would return or raise."""

    def __init__(self, name: str, operation: Operation[Any], settings: Settings, client: BlockingClient) -> None:
        self.name, self.operation, self.settings = name, operation, settings
        self.outcome = outcome = client.send(operation.request(settings))
        self.result: Any = Attempt(operation, settings).interpret(self.outcome)
        self.error = self.result if isinstance(self.result, exceptions.CloudStoreError) else None
        no_response = Reading(Response(0, {}, b"", 0, 0), settings, problem="no response")
        self.reading = read(outcome, settings) if isinstance(outcome, Response) else no_response
        self.leaves = list(leaves_of(self.reading.problem or self.reading.data))

    def secrets(self) -> Iterator[Secret]:
        """What must not be shown: also what is where a link's token and URL are, or has the name of a credential."""
        yield from (*self.settings.secrets, *self.operation.secrets)
        if isinstance(self.result, DownloadLink):
            yield Secret(self.result.token)
        service, is_link = self.settings.service, isinstance(self.operation, CreateDownloadLink)
        for path, value in self.leaves:
            is_place = is_link and (_lead_to(service.token_path, path) or _lead_to(service.download_url_path, path))
            if (is_place or is_credential_name(path)) and not is_word(str(value)):
                yield Secret(str(value))

    def problems(self) -> Iterator[str]:
        """Why tasks cannot rely on it. No text of the service is repeated: it may hold a token that is not known."""
        wanted, extra = _WANTED.get(self.name, (None, ""))
        as_upload = Attempt(UploadFromUrl(self.settings, "https://example.com/file"), self.settings).interpret(self.outcome)
        if wanted and not (self.error and isinstance(as_upload, exceptions.CloudStoreError)):
            yield "the service's error was read as a success; set extra 'success_when'"
        if self.error and not (wanted and isinstance(self.error, wanted)):
            has_words = self.reading.data is not None and not self.reading.problem
            is_declarable = wanted and has_words and not isinstance(self.error, exceptions.AuthenticationError)
            todo = f"Extra '{extra}' must match if it says so; else check the path" if is_declarable else self.error.advice
            yield f"{self.name}: {type(self.error).__name__}. {todo}"
        if self.name == "link" and not (self.error or self.result.url_with_token):
            yield "link: no URL to download from; set extra 'download_url_path' or 'download_url'"

    def _read(self) -> dict[str, Any]:
        """What was read, and what was looked for in vain, by the extra that says where it is."""
        if isinstance(result := self.result, RemoteUpload):
            return {"file_id_path": result.file_id}
        if isinstance(result, DownloadLink):
            return {"token_path": result.token, "download_url_path": result.url_with_token, "expires_path": result.expires_at}
        if self.reading.problem:
            return {}
        service, data, words = self.settings.service, self.reading.data, next(iter(self.reading.texts), "")
        lacks_result = isinstance(self.error, (exceptions.InvalidResponseError, exceptions.OutcomeUnknownError))
        sought = _SOUGHT.get(self.name, []) if lacks_result else []
        missing = {extra: None for extra in sought if not any(getattr(service, extra).values_in(data))}
        return missing if missing and not words else {"message_path": words, **missing}

    def step(self, known: tuple[Secret, ...]) -> dict[str, Any]:
        """What to show of it. Values are cut last: the rest of a secret that is cut in two would not be recognized."""
        service, read, fields = self.settings.service, self._read(), []
        for path, value in self.leaves:
            text = " ".join((value if isinstance(value, str) else json.dumps(value)).split())
            places = [extra for extra in read if read[extra] and (not path or _lead_to(getattr(service, extra), path))]
            # A date has many forms, and a URL may be relative.
            same = [extra for extra in places if text and (extra == "expires_path" or read[extra].endswith(text))]
            read_as = ", ".join(extra.removesuffix("_path") for extra in same)
            shown = _QUERY.sub(rf"\1{MASK}", redact(exceptions.one_line(text), known))
            fields.append((redact(exceptions.one_line(path), known), shown[:199] + "…" * (len(shown) > 199), read_as))
        missed = [f"no {extra.removesuffix('_path')} found by extra '{extra}'" for extra in read if not read[extra]]
        sent = f"{self.name}: {self.operation.method} {service.api_path}{self.operation.path}"
        status = f"HTTP {self.outcome.status}" if isinstance(self.outcome, Response) else self.outcome.reason
        return {"request": sent, "status": status, "fields": fields, "not_found": missed, "outcome": type(self.result).__name__}


def _lead_to(paths: Paths, path: str) -> bool:
    return plain(path) in (plain(".".join(keys)) for keys in paths.alternatives)


def settings_of(conn_id: str, extras: dict[str, str]) -> Settings:
    """As :func:`read_connection`, with ``extras`` in place of the connection's."""

    def connection(name: str) -> Any:
        found: Any = CloudStoreHook.get_connection(name)
        found.extra = json.dumps(read_extra(found.extra) | extras)
        return found

    return read_connection(conn_id, connection)


def ask(settings: Settings, upload: str | None, file_id: str | None, wait: float, *, wrong_token: bool) -> Iterator[Answer]:
    """Send what was asked for; nothing more once the address or the token is wrong."""
    queueing = None if upload is None else UploadFromUrl(settings, upload)
    link = None if file_id is None else CreateDownloadLink(settings, file_id)
    ends_at, inconclusive = 0.0, 0
    settings = exchange_keys(settings)
    with BlockingClient(settings) as client:
        missing = Answer("missing file", CreateDownloadLink(settings, MISSING_FILE_ID), settings, client)
        yield missing
        if missing.reading.problem or isinstance(missing.error, exceptions.AuthenticationError):
            return
        if wrong_token:
            wrong = replace(settings, access_token=Secret("not-a-token-" + "0" * 20))
            yield Answer("wrong token", missing.operation, wrong, client)
        if queueing:
            queued = Answer("upload", queueing, settings, client)
            yield queued
            if not queued.error and queued.result.file_id:
                link, ends_at = CreateDownloadLink(settings, queued.result.file_id), time.monotonic() + wait
        while link and inconclusive < INCONCLUSIVE_POLLS:
            answer = Answer("link", link, settings, client)
            yield answer
            inconclusive = inconclusive + 1 if answer.error and answer.error.wait == "tolerates" else 0
            if not answer.error or answer.error.wait == "ends" or time.monotonic() >= ends_at:
                return
            time.sleep(_PAUSE)

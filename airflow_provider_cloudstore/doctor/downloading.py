"""Downloads the uploaded file as tasks do, and compares it with its source."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pendulum

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients.streaming import DownloadClient
from airflow_provider_cloudstore.doctor.observing import ObservedDownload, ObservingClient
from airflow_provider_cloudstore.doctor.report import Report, Verdict
from airflow_provider_cloudstore.doctor.uploading import UploadedFile
from airflow_provider_cloudstore.protocol.calls import CreateDownloadLink
from airflow_provider_cloudstore.protocol.download_requests import Download
from airflow_provider_cloudstore.protocol.results import DownloadedFile, DownloadLink

_PAUSE = 1.0
"""Seconds between two downloads of a file that the download host does not have yet."""
_LET_IT_RETRY = "Let the task that uses the file retry, with a delay."


class _Digest:
    """A sink for a file of which only size and digest count; :class:`Download` computes both."""

    def restart(self) -> None:
        """Do nothing: nothing was kept."""

    def write(self, data: bytes, /) -> None:
        """Do nothing."""


class DownloadTrial:
    """Downloads of one file.

    :param file: the file, and the first link to it.
    :param wait: seconds for which the download host may refuse it.
    """

    def __init__(
        self, client: ObservingClient, file: UploadedFile, report: Report, say: Callable[[str], None], wait: float
    ) -> None:
        self._client, self._file, self._report, self._say, self._wait = client, file, report, say, wait
        self._settings = file.settings

    def run(self, source: str) -> None:
        """Download the file, and look at everything that downloads depend on.

        :param source: the URL that it was uploaded from.
        """
        self._judge_expiry(self._file.link)
        self._say("Downloading the file")
        download, refused, error = self._download()
        self._judge_availability(refused, error)
        if isinstance(error, exceptions.ConfigurationError):
            self._report.add("download URL", error.reason, Verdict.NEEDS_SETTING, error.advice)
            return
        where = "in the response" if self._file.link.url_with_token else "by the extra 'download_url'"
        self._report.add("download URL", where, Verdict.AS_ASSUMED)
        if error:
            self._report.add("content", error.reason, Verdict.CONTRADICTS, str(error).partition("\n")[2])
            return
        file = download.result("")
        self._compare(file, source)
        self._judge_ranges(file)

    def _judge_expiry(self, link: DownloadLink) -> None:
        if link.expires_at is None:
            self._report.add("expiry", "none in the response", Verdict.AS_ASSUMED)
            return
        seconds = (link.expires_at - link.created_at).total_seconds()
        is_past = seconds <= 0
        meaning = "The date is in the past: it is not UTC, or a clock is wrong. Do not rely on 'expires_at'." if is_past else ""
        verdict = Verdict.CONTRADICTS if is_past else Verdict.AS_ASSUMED
        self._report.add("expiry", f"{seconds:,.0f} s after the response", verdict, meaning, stops_tasks=False)

    def _download(self) -> tuple[ObservedDownload, str, exceptions.CloudStoreError | None]:
        """Download the file.

        :returns: the download, why the download host refused it before, and how it failed at last.
        """
        began, refused = time.monotonic(), ""
        while True:
            download = ObservedDownload(self._file.link.file_id, self._settings)
            failed = self._run(download, self._file.link)
            refused = refused or download.refused
            may_come = not self._file.refused and isinstance(failed, exceptions.RequestRejectedError)
            if not may_come or time.monotonic() - began > self._wait:
                return download, refused, failed
            time.sleep(_PAUSE)

    def _run(self, download: Download, link: DownloadLink) -> exceptions.CloudStoreError | None:
        try:
            DownloadClient(self._client, self._new_link).run(download, _Digest(), link, on_retry=self._say)
        except exceptions.CloudStoreError as error:
            return error
        return None

    def _new_link(self, file_id: str) -> DownloadLink:
        return self._client.perform(CreateDownloadLink(file_id, self._settings))

    def _judge_availability(self, refused: str, error: exceptions.CloudStoreError | None) -> None:
        seconds = self._file.seconds
        if refused:
            seen = f"a link after {seconds:.1f} s, but the download host refused it at first ({refused})"
            meaning = f"A wait ends before the file is there. {_LET_IT_RETRY}"
            self._report.add("availability", seen, Verdict.CONTRADICTS, meaning)
        elif self._file.refused:
            ends_waits = self._file.ends_waits
            verdict = Verdict.CONTRADICTS if ends_waits else Verdict.AS_ASSUMED
            meaning = f"Waits tolerate that only for a short time, or not at all. {_LET_IT_RETRY}" if ends_waits else ""
            self._report.add("availability", f"a link after {seconds:.1f} s; before: {self._file.refused.seen}", verdict, meaning)
        else:
            what = "a link" if error else "the file"
            meaning = f"{what} was there after {seconds:.1f} s: upload a larger file to see whether a link is refused before"
            self._report.add("availability", "-", Verdict.NOT_TRIED, meaning)

    def _compare(self, file: DownloadedFile, url: str) -> None:
        """Compare the file with its source, if that can be fetched from here."""
        self._say("Fetching the source, to compare it")
        source = Download("source", replace(self._settings, allow_http=True, max_attempts=1))  # often out of reach from here
        link = DownloadLink("source", "", url, pendulum.now("UTC"), None)
        error = self._run(source, link)
        if error:
            meaning = f"the source cannot be fetched from here ({error.reason}); the file has {file.bytes:,} bytes"
            return self._report.add("content", "-", Verdict.NOT_TRIED, meaning)
        original = source.result("")
        if (original.bytes, original.sha256) == (file.bytes, file.sha256):
            seen = f"{file.bytes:,} bytes with the source's SHA-256"
            return self._report.add("content", seen, Verdict.AS_ASSUMED)
        seen = f"{file.bytes:,} bytes; the source has {original.bytes:,} and another SHA-256"
        meaning = "The file is not the one that was uploaded: the source changes, or its id in the response is another one."
        return self._report.add("content", seen, Verdict.CONTRADICTS, meaning)

    def _judge_ranges(self, file: DownloadedFile) -> None:
        """Read the last byte, as a broken download resumes and as ``cloudstore://`` reads."""
        if file.bytes == 0:
            return self._report.add("ranges", "-", Verdict.NOT_TRIED, "the file is empty: upload another one")
        block = Download(file.file_id, self._settings, block=range(file.bytes - 1, file.bytes))
        error = self._run(block, self._file.link)
        if not error and block.version and block.version.is_certain:
            return self._report.add("ranges", "ranges, and a strong ETag", Verdict.AS_ASSUMED)
        seen, meaning = "no strong ETag", "A broken download starts over."
        if error:
            seen, meaning = error.reason, "A broken download starts over, and cloudstore:// cannot open the file."
        return self._report.add("ranges", seen, Verdict.CONTRADICTS, meaning, stops_tasks=False)

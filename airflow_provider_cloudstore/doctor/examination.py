"""Carries out the doctor's checks, in an order in which each may stop the rest: nothing that changes anything comes first."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.doctor import places
from airflow_provider_cloudstore.doctor.downloading import DownloadTrial
from airflow_provider_cloudstore.doctor.observing import (
    Deletion,
    Observation,
    ObservingClient,
    Poll,
    Upload,
    WrongPath,
    ask,
    connect,
)
from airflow_provider_cloudstore.doctor.report import DELETE, REQUESTS, UPLOAD, WRONG_TOKEN, Report, Verdict
from airflow_provider_cloudstore.doctor.uploading import UploadTrial
from airflow_provider_cloudstore.hooks.cloudstore import MISSING_FILE_ID, CloudStoreHook
from airflow_provider_cloudstore.protocol.failures import is_elsewhere
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import EXTRA_KEYS, Settings, read_extra, warnings_about

MAX_REQUESTS = 50
_TOO_FEW_DAYS = 14
_NOT_A_TOKEN = Secret("not-a-token-" + "0" * 20)
_ENDS_CHECKS = (
    exceptions.ServiceUnreachableError,
    exceptions.TransientServiceError,
    exceptions.RateLimitError,
    exceptions.ConfigurationError,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to check beyond what only reads; see :func:`airflow_provider_cloudstore.doctor.diagnose`."""

    wrong_token: bool = False
    upload: str | None = None
    delete_folder: str | None = None
    requests: int = 0
    wait: float = 300.0

    def __post_init__(self) -> None:
        if not 0 <= self.requests <= MAX_REQUESTS:
            raise exceptions.InvalidInputError(f"requests must be from 0 to {MAX_REQUESTS}; nothing was sent")
        if not 0 < self.wait <= 86_400:
            raise exceptions.InvalidInputError("wait must be from 1 to 86400 seconds; nothing was sent")

    @property
    def flags(self) -> frozenset[str]:
        """The program's flags for what goes beyond reading."""
        given = {
            WRONG_TOKEN: self.wrong_token,
            UPLOAD: self.upload is not None,
            DELETE: self.delete_folder is not None,
            REQUESTS: self.requests > 0,
        }
        return frozenset(flag for flag, is_given in given.items() if is_given)


class Examination:
    """One run of the doctor.

    :param conn_id: the Airflow connection.
    :param plan: what to check.
    :param say: called with a line before each step.
    :ivar report: what was found so far.
    """

    def __init__(self, conn_id: str, plan: Plan, say: Callable[[str], None]) -> None:
        self.report = Report(conn_id, plan.flags)
        self._plan, self._print = plan, say
        self._hook = CloudStoreHook(conn_id)
        self._client: ObservingClient
        self._settings: Settings
        self._missing: Observation
        self._upload: Upload | None = None
        self._deletion: Deletion | None = None

    def _say(self, line: str) -> None:
        self._print(self.report.redacted(line))

    def prepare(self) -> bool:
        """Read the connection and ask the guards; nothing is sent.

        :returns: whether the connection can be used.
        :raises InvalidInputError: if the guards reject the URL or the folder's id.
        """
        settings = self._read_connection()
        if settings is None:
            return False
        self._settings, plan = settings, self._plan
        self._deletion = Deletion(plan.delete_folder, settings) if plan.delete_folder is not None else None
        self._upload = Upload(plan.upload, settings) if plan.upload is not None else None
        return True

    def run(self) -> None:
        """Carry out the checks."""
        self._client = ObservingClient(self._settings, self._hook.read_settings, self.report.secrets)
        with self._client:
            if self._look_at_address() and self._compare():
                proven = bool(self._upload and self._try_upload(self._upload))
                proven = bool(self._deletion and self._try_deletion(self._deletion)) or proven
                self._judge_address(proven=proven)
                self._try_rate_limit()
                if self.report.extras.get("not_found_pattern") and not self._deletion:
                    meaning = f"use {DELETE}: if 'not_found_pattern' does not match its message, ignore_missing=True fails"
                    self.report.add("missing folder", "-", Verdict.NOT_TRIED, meaning)

    def _read_connection(self) -> Settings | None:
        self._say("Reading the connection")
        report, conn_id = self.report, self.report.conn_id
        try:
            settings = self._hook.read_settings()
            connection = self._hook.get_connection(conn_id)
        except exceptions.ConfigurationError as error:
            report.add("connection", error.reason, Verdict.CONTRADICTS, error.advice)
            return None
        except AirflowException as error:
            seen = f"Airflow cannot read it ({type(error).__name__})"
            report.add("connection", seen, Verdict.CONTRADICTS, "Check Airflow's database and its secrets backend.")
            return None
        report.secrets += settings.secrets
        extra = read_extra(connection.extra)
        shown = {key: value for key, value in extra.items() if key in EXTRA_KEYS - {"proxy"} and not report.may_be_secret(value)}
        report.extras, report.kept = shown, sorted(extra.keys() - shown.keys())
        warnings = warnings_about(connection.conn_type, extra)
        if settings.verify is False:
            warnings.append("does not verify certificates: anyone between can read the token (extra 'verify')")
        if settings.base_url.startswith("http:") and settings.allow_http:
            warnings.append("uses plain http: anyone between can read the token (extra 'allow_http')")
        verdict = Verdict.CONTRADICTS if warnings else Verdict.AS_ASSUMED
        seen = "; ".join(warnings) or f"valid, with {'the extras ' + ', '.join(sorted(extra)) if extra else 'no extras'}"
        report.add("connection", seen, verdict, stops_tasks=False)
        return settings

    def _look_at_address(self) -> bool:
        """Ask for a link of a file that does not exist. Whether to go on: whether the service itself may have responded."""
        self._say("Asking for a link of a file that does not exist")
        found = self._missing = ask(self._client, Poll(MISSING_FILE_ID, self._settings))
        error, route = found.error, self._settings.route
        if isinstance(error, _ENDS_CHECKS) or found.content.problem or (error and is_elsewhere(type(error), error.status)):
            self.report.add("address", f"{route}: {found.seen}", Verdict.CONTRADICTS, self._missing.advice)
            return False
        self._say("Looking at the certificate")
        connected = connect(self._settings)
        if isinstance(connected, str):
            self.report.add("certificate", "-", Verdict.NOT_TRIED, connected)
        elif connected.days is None:
            self.report.add("certificate", "-", Verdict.NOT_TRIED, connected.certificate)
        elif connected.days < _TOO_FEW_DAYS:
            meaning = "Renew the certificate: no request succeeds once it has expired."
            self.report.add("certificate", connected.certificate, Verdict.CONTRADICTS, meaning, stops_tasks=False)
        else:
            self.report.add("certificate", connected.certificate, Verdict.AS_ASSUMED)
        again = ask(self._client, Poll(MISSING_FILE_ID, self._settings))
        connecting = "" if isinstance(connected, str) else f"connected in {connected.seconds * 1000:,.0f} ms, "
        seen = f"{connecting}responded in {again.seconds * 1000:,.0f} ms; the timeout is {self._settings.timeout:g} s"
        self.report.add("time", seen, Verdict.AS_ASSUMED)
        return True

    def _compare(self) -> bool:
        """Compare how a missing file, a wrong path and a wrong token look. Whether to go on: unless the token was refused."""
        missing, report = self._missing, self.report
        self._say("Asking at a path that does not exist")
        elsewhere = ask(self._client, WrongPath(MISSING_FILE_ID, self._settings))
        report.errors_are_recognized = not (missing.hides_failure and elsewhere.hides_failure)
        same_path = elsewhere.looks_like(missing)
        meaning = "A wrong base URL looks like a missing file." if same_path else ""
        verdict = Verdict.CONTRADICTS if same_path else Verdict.AS_ASSUMED
        report.add("wrong path", elsewhere.seen, verdict, meaning, stops_tasks=False)
        told = None
        if self._plan.wrong_token:
            self._say("Sending a wrong token")
            told = self._try_wrong_token()
        self._judge_token(same_path=same_path, told=told)
        self._judge_not_found(same_path=same_path, told=told)
        return not isinstance(missing.error, exceptions.AuthenticationError)

    def _try_wrong_token(self) -> bool | None:
        """Whether the response to a wrong token differs from that to a missing file; None if it is about something else."""
        refused = ask(self._client, Poll(MISSING_FILE_ID, replace(self._settings, access_token=_NOT_A_TOKEN)), once=True)
        if isinstance(refused.error, _ENDS_CHECKS):
            self.report.add("wrong token", "-", Verdict.NOT_TRIED, f"the response is about something else: {refused.seen}")
            return None
        told, verdict, meaning, stops = not refused.looks_like(self._missing), Verdict.CONTRADICTS, "", False
        if not told or isinstance(refused.error, exceptions.NotFoundError):
            meaning = "A refused token looks like a missing file: a sensor waits to its timeout, and ignore_missing may hide it."
            stops = True
        elif isinstance(refused.error, exceptions.AuthenticationError):
            verdict = Verdict.AS_ASSUMED
        else:
            meaning = "This is not HTTP 401, so a task whose token was rotated fails instead of reading the new one."
        self.report.add("wrong token", refused.seen, verdict, meaning, stops_tasks=stops)
        return told

    def _judge_token(self, *, same_path: bool, told: bool | None) -> None:
        error, seen = self._missing.error, self._missing.seen
        is_known = told is None and not same_path and (error is None or isinstance(error, exceptions.NotFoundError))
        if isinstance(error, (exceptions.AuthenticationError, exceptions.PermissionDeniedError)):
            self.report.add("token", seen, Verdict.CONTRADICTS, self._missing.advice)
        elif told or is_known:
            seen = "accepted" if told else "not refused; --wrong-token shows whether it would be"
            self.report.add("token", seen, Verdict.AS_ASSUMED)
        elif self._seems_refused:
            meaning = "The message seems to be about the token: check the connection's password."
            self.report.add("token", seen, Verdict.CONTRADICTS, meaning)
        else:
            flags = "--upload URL" if told is False else "--wrong-token or --upload URL"
            meaning = f"unknown: run again with {flags}"
            self.report.add("token", seen, Verdict.NOT_TRIED, meaning, stops_tasks=told is False)

    @property
    def _seems_refused(self) -> bool:
        error = self._missing.error
        return error is not None and places.is_about_token(error.message, MISSING_FILE_ID)

    def _judge_not_found(self, *, same_path: bool, told: bool | None) -> None:
        error, report = self._missing.error, self.report
        if isinstance(error, (exceptions.AuthenticationError, exceptions.PermissionDeniedError)):
            return
        if isinstance(error, exceptions.NotFoundError):
            report.add("not found", self._missing.seen, Verdict.AS_ASSUMED)
        elif error is None:
            meaning = "The service creates links to files that do not exist: waits end at once, and downloads may fail."
            report.add("not found", "a link", Verdict.CONTRADICTS, meaning)
        elif same_path or self._seems_refused:
            cause = "base URL (the part before /cloud/api/v2)" if same_path else "password"
            meaning = f"This may not be about the file: check the connection's {cause} before you set 'not_found_pattern'."
            report.add("not found", self._missing.seen, Verdict.NEEDS_SETTING, meaning)
        elif self._missing.is_error_envelope:
            self._propose_pattern(self._missing, MISSING_FILE_ID, "not found", told=told)
        else:
            meaning = 'No setting makes this mean "not found": a wait for a queued file may fail instead of going on.'
            report.add("not found", self._missing.seen, Verdict.CONTRADICTS, meaning)

    def _propose_pattern(self, found: Observation, subject: str, check: str, *, told: bool | None) -> None:
        message = found.error.message if found.error else ""
        pattern = places.not_found_pattern(message, subject) if told is not False else ""
        if not pattern:
            meaning = "Whether this message means \"not found\" is not clear: if it does, set 'not_found_pattern' to match it."
            if told is False:
                meaning = "A wrong token gets the same response: no pattern can tell them apart."
            self.report.add(check, found.seen, Verdict.NEEDS_SETTING, meaning)
            return
        current = self.report.extras.get("not_found_pattern")
        if current and re.search(current, message, re.IGNORECASE):
            pattern = current  # just proposed for the other message
        elif current:
            pattern = f"{current}|{pattern}"
        self.report.propose("not_found_pattern", pattern)
        meaning = "Set extra 'not_found_pattern' as proposed, if that message means that the file or folder does not exist."
        self.report.add(check, found.seen, Verdict.NEEDS_SETTING, meaning)

    def _try_upload(self, call: Upload) -> bool:
        """Whether the service certainly queued the upload: it said which file."""
        wait = self._plan.wait
        trial = UploadTrial(self._client, self._settings, self.report, self._say, wait)
        ids = trial.queue(call)
        if ids and (file := trial.wait_for_link(ids)):
            DownloadTrial(self._client, file, self.report, self._say, wait).run(call.subject)
        return bool(ids)

    def _try_deletion(self, call: Deletion) -> bool:
        """Delete the folder, and again; whether the first one succeeded."""
        self._say(f"Deleting folder '{call.subject}'")
        found = ask(self._client, call)
        if isinstance(found.error, exceptions.NotFoundError) or found.is_error_envelope:
            self.report.add(
                "deletion", found.seen, Verdict.NOT_TRIED, "nothing was deleted: does the folder exist?", stops_tasks=True
            )
            self._judge_missing_folder(found, call.subject)
            return False
        if found.error:
            self.report.add("deletion", found.seen, Verdict.CONTRADICTS, found.advice)
            return False
        self.report.add("deletion", found.seen, Verdict.AS_ASSUMED)
        self._say("Deleting it again, to see how a missing folder is reported")
        self._judge_missing_folder(ask(self._client, Deletion(call.subject, self._settings)), call.subject)
        return True

    def _judge_missing_folder(self, found: Observation, folder_id: str) -> None:
        if isinstance(found.error, exceptions.NotFoundError):
            self.report.add("missing folder", found.seen, Verdict.AS_ASSUMED)
        elif found.error is None:
            meaning = "Deleting a missing folder succeeds: 'existed' in the result is always true."
            self.report.add("missing folder", found.seen, Verdict.CONTRADICTS, meaning, stops_tasks=False)
        elif found.is_error_envelope:
            self._propose_pattern(found, folder_id, "missing folder", told=True)
        else:
            meaning = "ignore_missing=True does not accept this: deleting a missing folder fails the task."
            self.report.add("missing folder", found.seen, Verdict.CONTRADICTS, meaning)

    def _judge_address(self, *, proven: bool) -> None:
        """The API is there if an operation succeeded, or if a wrong path looks different: only now is that known."""
        report, like_wrong_path = self.report, self.report["wrong path"].verdict is Verdict.CONTRADICTS
        if proven and report["token"].verdict is not Verdict.AS_ASSUMED:
            report.add("token", "accepted: the service carried out an operation with it", Verdict.AS_ASSUMED)
        told_apart = not like_wrong_path or proven
        meaning = (
            ""
            if told_apart
            else "The response is the same for every path: check the base URL (before /cloud/api/v2), or use --upload URL."
        )
        report.add("address", self._settings.route, Verdict.AS_ASSUMED if told_apart else Verdict.CONTRADICTS, meaning)

    def _try_rate_limit(self) -> None:
        """Send requests in a row until one of them is answered in another way."""
        wanted = self._plan.requests
        if not wanted:
            return
        self._say(f"Sending {wanted} requests in a row")
        began = time.monotonic()
        for number in range(1, wanted + 1):
            found = ask(self._client, Poll(MISSING_FILE_ID, self._settings))
            if not found.looks_like(self._missing):
                self._judge_rate_limit(found, number)
                return
        per_second = wanted / (time.monotonic() - began)
        self.report.add("rate limit", f"none in {wanted} requests, {per_second:,.0f} a second", Verdict.AS_ASSUMED)

    def _judge_rate_limit(self, found: Observation, number: int) -> None:
        seen = f"request {number}: {found.seen}"
        if isinstance(found.error, exceptions.RateLimitError):
            pause = found.error.retry_after
            seen += f", Retry-After {pause:g} s" if pause is not None else ", no Retry-After"
            self.report.add("rate limit", seen, Verdict.AS_ASSUMED)
            return
        meaning = (
            "The package does not read this as a rate limit: an upload that meets it has an unknown outcome or fails. Stay below "
            "the limit: use an Airflow pool, and requests_per_second in batches."
        )
        self.report.add("rate limit", seen, Verdict.CONTRADICTS, meaning)

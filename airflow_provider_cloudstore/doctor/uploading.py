"""Uploads one file and waits for it, as a pipeline does, and notes what each response has to offer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.doctor.observing import Observation, ObservingClient, Poll, Upload, ask
from airflow_provider_cloudstore.doctor.places import IdPlace, id_places, token_places
from airflow_provider_cloudstore.doctor.report import Report, Verdict
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.settings import Settings

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 10.0
"""Seconds between two polls: a small file may be there at once, and a long queue needs no hurry."""
_NOT_YET = (exceptions.NotFoundError, exceptions.ServiceError)
"""How a file that is not there may be reported, for a wait to go on."""
_ABOUT_THE_SERVICE = (exceptions.ServiceUnreachableError, exceptions.TransientServiceError, exceptions.RateLimitError)


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file for which a link was created.

    :param settings: the connection, with the places that were found.
    :param seconds: how long it took from the upload to the first link.
    :param refused: how the service refused a link before; None if it did not.
    """

    link: DownloadLink
    settings: Settings
    seconds: float
    refused: Observation | None

    @property
    def ends_waits(self) -> bool:
        """Whether a wait fails on that refusal."""
        return self.refused is not None and not isinstance(self.refused.error, _NOT_YET)


class UploadTrial:
    """One upload, up to the first link to its file.

    :param wait: seconds to wait for the file.
    """

    def __init__(
        self, client: ObservingClient, settings: Settings, report: Report, say: Callable[[str], None], wait: float
    ) -> None:
        self._client, self._settings, self._report, self._say, self._wait = client, settings, report, say, wait
        self._last: dict[str, str] = {}
        self._refused: dict[str, Observation] = {}

    def queue(self, call: Upload) -> list[IdPlace] | None:
        """Queue the upload.

        :returns: the ids that its file may have; None if it was not queued.
        """
        self._say("Queuing the upload")
        queued = ask(self._client, call)
        if queued.error:
            self._report.add("upload", queued.seen, Verdict.CONTRADICTS, queued.advice)
            return None
        self._report.add("upload", queued.seen, Verdict.AS_ASSUMED)
        file_id = queued.result.file_id
        found = [IdPlace("", file_id)] if file_id else id_places(queued.content.data, call.secrets)
        if found:  # now, because a killed process prints no report
            self._say(f"The upload is queued; the id of its file: {' or '.join(one.file_id for one in found)}")
        else:
            meaning = "The response to an upload has no id: a task that waits for the file must get its id from elsewhere."
            self._report.add("file id", queued.seen, Verdict.CONTRADICTS, meaning)
        return found

    def wait_for_link(self, candidates: list[IdPlace]) -> UploadedFile | None:
        """Ask for a link until there is one.

        :param candidates: the ids that the file may have.
        """
        self._say(f"Waiting up to {self._wait:g} s for a link to the file")
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            for place in candidates:
                poll = ask(self._client, Poll(place.file_id, self._settings))
                if link := self._link_in(poll, place):
                    self._judge_id(place, candidates)
                    seconds = time.monotonic() - began
                    return UploadedFile(link, self._settings, seconds, self._refused.get(place.file_id))
                self._note_refusal(place.file_id, poll)
            if time.monotonic() - began + pause > self._wait:
                break
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        self._give_up(candidates)
        return None

    def _note_refusal(self, file_id: str, poll: Observation) -> None:
        """Keep how the service refuses a link; a maintenance page says nothing about the file."""
        self._last[file_id] = poll.seen
        earlier = self._refused.get(file_id)
        if poll.content.problem or isinstance(poll.error, _ABOUT_THE_SERVICE):
            return
        if earlier is None or isinstance(earlier.error, _NOT_YET):
            self._refused[file_id] = poll

    def _link_in(self, poll: Observation, place: IdPlace) -> DownloadLink | None:
        if isinstance(poll.result, DownloadLink):
            self._report.add("download token", "found", Verdict.AS_ASSUMED)
            return poll.result
        if poll.response is None or poll.content.problem or not isinstance(poll.error, exceptions.InvalidResponseError):
            return None
        found = token_places(poll.response, poll.content.data, place.file_id, self._client.sent)
        if not found:
            return None
        path, link = found[0]
        self._client.hide(link.secrets)
        self._needs("download token", "token_path", [path for path, _ in found], f"at {path}")
        self._settings = replace(self._settings, token_path=tuple(path.split(".")))
        return link

    def _judge_id(self, place: IdPlace, candidates: list[IdPlace]) -> None:
        if not place.path:
            return self._report.add("file id", f"'{place.file_id}'", Verdict.AS_ASSUMED)
        others = [one.path for one in candidates if one is not place]
        return self._needs("file id", "file_id_path", [place.path, *others], f"'{place.file_id}' at {place.path}")

    def _needs(self, check: str, extra: str, paths: list[str], seen: str) -> None:
        also = f" Other candidates: {', '.join(paths[1:])}." if paths[1:] else ""
        self._report.propose(extra, paths[0])
        self._report.add(check, seen, Verdict.NEEDS_SETTING, f"Set extra '{extra}' to '{paths[0]}'.{also}")

    def _give_up(self, candidates: list[IdPlace]) -> None:
        seen = f"no link within {self._wait:g} s; last response: {self._last[candidates[0].file_id]}"
        tried = ", ".join(f"'{one.file_id}'" + (f" at {one.path}" if one.path else "") for one in candidates)
        meaning = f"Check in the service whether the file arrived; if it takes longer, use --wait SECONDS. Ids tried: {tried}."
        self._report.add("availability", seen, Verdict.CONTRADICTS, meaning)

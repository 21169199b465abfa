"""The doctor's report: what the package assumes, what was seen, and what to do about the difference."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import zip_longest
from typing import Any

from airflow_provider_cloudstore.exceptions import one_line
from airflow_provider_cloudstore.protocol.secrets import Secret, redact, redact_parameters, withheld


class Verdict(Enum):
    """How what was seen compares with what is assumed."""

    AS_ASSUMED = "as assumed"
    NEEDS_SETTING = "needs a setting"
    CONTRADICTS = "contradicts"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Check:
    """One assumption.

    :param name: its name, in the report and in docs/project/assumptions.md.
    :param assumed: what the package assumes.
    :param flag: the flag of the program without which it is not tried.
    """

    name: str
    assumed: str
    flag: str = ""


WRONG_TOKEN, UPLOAD, DELETE, REQUESTS = "--wrong-token", "--upload URL", "--delete-folder ID", "--requests N"
_TOPICS = {WRONG_TOKEN: "a wrong token", UPLOAD: "uploads and downloads", DELETE: "deleting folders", REQUESTS: "rate limits"}
CHECKS = (
    Check("connection", "is defined, with valid fields and known extras"),
    Check("address", "the API responds at the base URL"),
    Check("certificate", "trusted, and valid for two weeks or more"),
    Check("time", "a response within the extra 'timeout'"),
    Check("token", "the service accepts it"),
    Check("not found", "404 or 410, or a message that matches the extra 'not_found_pattern'"),
    Check("wrong path", "does not look like a missing file"),
    Check("wrong token", "401; does not look like a missing file", WRONG_TOKEN),
    Check("upload", "2xx means that the file is queued", UPLOAD),
    Check("file id", "'file_id' at the top or under 'data', or extra 'file_id_path'", UPLOAD),
    Check("download token", "in a usual place, or at the extra 'token_path'", UPLOAD),
    Check("availability", "a link is refused until the file is there", UPLOAD),
    Check("expiry", "UTC, if there is one", UPLOAD),
    Check("download URL", "in the response, or extra 'download_url'", UPLOAD),
    Check("content", "the bytes of the source", UPLOAD),
    Check("ranges", "206 with a strong ETag, to resume downloads", UPLOAD),
    Check("deletion", "2xx means that the folder is deleted", DELETE),
    Check("missing folder", "as 'not found'", DELETE),
    Check("rate limit", "429, or 503 with a valid Retry-After", REQUESTS),
)
NOT_RECOGNIZED = (
    "This service's errors are not recognized: a rejected upload or deletion will count as success. "
    "No setting changes that, so let nothing run unattended until the service marks its errors."
)
_BY_NAME = {check.name: check for check in CHECKS}


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the report.

    :param check: the assumption.
    :param seen: what the service did, in short and redacted.
    :param meaning: what follows for tasks, or what to do; empty if nothing.
    :param stops_tasks: whether tasks cannot rely on the connection until this has changed.
    """

    check: Check
    seen: str
    verdict: Verdict
    meaning: str = ""
    stops_tasks: bool = False


@dataclass(slots=True)
class Report:
    """What the doctor found.

    :param conn_id: the Airflow connection.
    :param flags: the flags that were given.
    :param extras: the extras of the connection, with the ones that the findings propose.
    :param kept: names of extras that the connection has and the report does not show, because they may hold credentials.
    :param secrets: what the report must not contain.
    :param is_complete: whether the run came to its end.
    :param errors_are_recognized: whether what must fail (a missing file, a wrong path) was answered with a sign of an error.
    """

    conn_id: str
    flags: frozenset[str] = frozenset()
    extras: dict[str, Any] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    secrets: list[Secret] = field(default_factory=list)
    is_complete: bool = True
    errors_are_recognized: bool = True
    _found: dict[str, Finding] = field(default_factory=dict)
    _proposed: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, seen: str, verdict: Verdict, meaning: str = "", *, stops_tasks: bool | None = None) -> None:
        """Record a finding; a later one on the same assumption replaces it.

        :param stops_tasks: by default, whether the verdict is a contradiction or asks for a setting.
        """
        stops = verdict in (Verdict.NEEDS_SETTING, Verdict.CONTRADICTS) if stops_tasks is None else stops_tasks
        self._found[name] = Finding(_BY_NAME[name], seen, verdict, meaning, stops)

    def propose(self, extra: str, value: Any) -> None:
        """Propose a value for an extra."""
        self.extras[extra] = self._proposed[extra] = value

    def redacted(self, text: str) -> str:
        """``text`` as one line without a secret that is known by now."""
        return one_line(withheld(redact(text, self.secrets), self.secrets))

    def may_be_secret(self, value: Any) -> bool:
        """Whether an extra may hold credentials; a placeholder is none."""
        text = one_line(str(value)).replace("{token}", "")
        return redact_parameters(self.redacted(text)) != text

    def __getitem__(self, name: str) -> Finding:
        """The finding on an assumption, by its name."""
        check = _BY_NAME[name]
        is_asked_for = not check.flag or check.flag in self.flags
        meaning = "not reached: see the rows above" if is_asked_for else f"use {check.flag}"
        found = self._found.get(name) or Finding(check, "-", Verdict.NOT_TRIED, meaning)
        return replace(found, seen=self.redacted(found.seen), meaning=self.redacted(found.meaning))

    @property
    def findings(self) -> list[Finding]:
        """All rows, in the order of the checks."""
        return [self[check.name] for check in CHECKS]

    @property
    def usable(self) -> bool:
        """Whether nothing that was tried keeps tasks from relying on the connection as it is configured."""
        return self.is_complete and self.errors_are_recognized and not any(finding.stops_tasks for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        checks = [
            {
                "check": one.check.name,
                "assumed": one.check.assumed,
                "seen": one.seen,
                "verdict": one.verdict.value,
                "meaning": one.meaning,
                "stops_tasks": one.stops_tasks,
            }
            for one in self.findings
        ]
        extras = {"extras": self._shown(self.extras), "proposed": self._shown(self._proposed), "other_extras": self.kept}
        ends = {"usable": self.usable, "complete": self.is_complete, "errors_are_recognized": self.errors_are_recognized}
        return {"connection": self.conn_id, **ends, "checks": checks, **extras}

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = 120) -> str:
        """The report for people: the table, the extras to paste, and what no setting changes.

        :param width: of a line, in characters.
        """
        first = [] if self.errors_are_recognized else [NOT_RECOGNIZED]
        parts = [*first, _table(self.findings, width), *self._extras(), *self._consequences(width)]
        end = "can" if self.usable else "cannot yet"
        untried = [f"{topic} ({flag})" for flag, topic in _TOPICS.items() if flag not in self.flags]
        missing = f" Not tried: {', '.join(untried)}." if untried else ""
        return "\n\n".join(
            [
                *parts,
                _wrapped(f"Tasks {end} rely on connection '{self.redacted(self.conn_id)}', as far as tried.{missing}", width),
            ]
        )

    def _shown(self, extras: dict[str, Any]) -> dict[str, Any]:
        """Extras without those that turned out to repeat a secret."""
        return {key: value for key, value in extras.items() if not self.may_be_secret(value)}

    def _extras(self) -> list[str]:
        if not self._proposed:
            return []
        kept = f" Keep {', '.join(map(repr, self.kept))}: not shown, because the value may be secret." if self.kept else ""
        more = " Add 'download_url' (see below)." if self["download URL"].verdict is Verdict.NEEDS_SETTING else ""
        return [
            f"Set the connection's extra to this, and run the doctor again.{kept}{more}\n{json.dumps(self._shown(self.extras))}"
        ]

    def _consequences(self, width: int) -> list[str]:
        lines = [
            f"{one.check.name}: {one.meaning}" for one in self.findings if one.meaning and one.verdict is not Verdict.NOT_TRIED
        ]
        return ["What that means:\n" + "\n".join(_wrapped(line, width, "- ") for line in lines)] if lines else []


def _wrapped(text: str, width: int, bullet: str = "") -> str:
    return textwrap.fill(text, width, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_on_hyphens=False)


def _table(findings: list[Finding], width: int) -> str:
    """The rows with wrapped cells, as wide as a line."""
    names, verdicts = max(len(check.name) for check in CHECKS), max(len(verdict.value) for verdict in Verdict)
    rest = max(40, width - names - verdicts - 6)
    widths = (names, rest * 2 // 5, rest - rest * 2 // 5, verdicts)
    rows = [("check", "assumed", "seen", "verdict"), tuple("-" * one for one in widths)]
    rows += [(one.check.name, one.check.assumed, _seen(one), one.verdict.value) for one in findings]
    return "\n".join(line for row in rows for line in _lines(row, widths))


def _seen(finding: Finding) -> str:
    return finding.meaning if finding.verdict is Verdict.NOT_TRIED and finding.meaning else finding.seen


def _lines(row: tuple[str, ...], widths: tuple[int, ...]) -> list[str]:
    cells = [textwrap.wrap(cell, size, break_on_hyphens=False) or [""] for cell, size in zip(row, widths, strict=True)]
    lines = zip_longest(*cells, fillvalue="")
    return ["  ".join(part.ljust(size) for part, size in zip(line, widths, strict=True)).rstrip() for line in lines]

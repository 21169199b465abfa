"""Shows what a service answers and how the connection's declaration reads it; ``python -m`` runs it as a program."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID


@dataclass(frozen=True, slots=True)
class Report:
    """What was seen of one service: why tasks cannot rely on the connection, what does no harm, and a step for each request.

    Each of a step's ``fields`` is the path, the redacted value, and what it was read as.
    """

    conn_id: str
    problems: list[str]
    notes: list[str]
    steps: list[dict[str, Any]]

    @property
    def usable(self) -> bool:
        """Whether tasks can rely on the connection as it is, as far as tried."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """The report as data, for ``--json``."""
        return {"usable": self.usable, **asdict(self)}

    def __str__(self) -> str:
        lines = [f"Tasks {'can' if self.usable else 'cannot'} rely on connection '{self.conn_id}', as far as tried."]
        lines += [f"- {text.rstrip('.')}." for text in [*self.problems, *(f"The connection {one}" for one in self.notes)]]
        for step in self.steps:
            lines += ["", f"{step['request']}: {step['status']}"]
            for path, value, read_as in step["fields"]:
                lines.append(f"  {path or '(body)'}: {value}" + (f"  <- {read_as}" if read_as else ""))
            lines += [f"  {text}" for text in [*step["not_found"], f"=> {step['outcome']}"]]
        return "\n".join("\n".join(textwrap.wrap(line, 80, subsequent_indent="  ")) for line in lines)


def diagnose(
    cloudstore_conn_id: str = DEFAULT_CONN_ID,
    *,
    wrong_token: bool = False,
    upload: str | None = None,
    file_id: str | None = None,
    wait: float = 300.0,
    extras: dict[str, str] | None = None,
) -> Report:
    """Check a connection against the service, for a notebook or a task. By default it only reads; it never deletes.

    :param cloudstore_conn_id: the Airflow connection, which is found as a task finds it.
    :param wrong_token: also send a wrong token; some services lock an account for that.
    :param upload: a URL to upload, and to wait for its link. The file stays in the service.
    :param file_id: a file that exists, to ask for its link.
    :param wait: seconds to wait for the uploaded file.
    :param extras: settings for this run, as text, which win over the connection's.
    :returns: the report; its ``usable`` says whether tasks can rely on the connection as it is, and ``str`` of it is a text.
    :raises CloudStoreError: if an argument is refused, or the connection is not defined or invalid.
    """
    from airflow_provider_cloudstore.doctor.examination import ask, settings_of  # only now, for Airflow's command line

    settings = settings_of(cloudstore_conn_id, extras or {})
    answers = {answer.name: answer for answer in ask(settings, upload, file_id, wait, wrong_token=wrong_token)}
    known = tuple(secret for one in answers.values() for secret in one.secrets())
    problems = list(dict.fromkeys(problem for one in answers.values() for problem in one.problems()))
    return Report(cloudstore_conn_id, problems, list(settings.warnings), [one.step(known) for one in answers.values()])

"""Registers secrets with Airflow's masker, in every form in which they could be printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from airflow.providers.common.compat.sdk import mask_secret

from airflow_provider_cloudstore import compat
from airflow_provider_cloudstore.protocol.secrets import Secret, printed_forms

_MAX_CALLS = 50
"""The calls of one hook whose secrets are registered: Airflow's masker recompiles its pattern for every new secret."""
_ALWAYS_MASKED = 16  # characters; Airflow skips secrets below a configurable length, and some common words


@dataclass(slots=True)
class MaskingLimit:
    """Limits how many calls of a hook register secrets, so that hundreds of calls do not wait for Airflow's masker."""

    calls: int = 0

    def admit(self, secrets: Iterable[Secret], warn: Callable[[str], None]) -> Iterable[Secret]:
        """The secrets of a call, or nothing once the limit is reached; the first call over it logs a warning."""
        self.calls += 1
        if self.calls == _MAX_CALLS + 1:
            warn(
                f"Airflow masks the links and source URLs of only the first {_MAX_CALLS} calls of a hook, because each "
                "additional secret slows down every log line. Do not log or print those of later calls"
            )
        return secrets if self.calls <= _MAX_CALLS else ()


def mask(secrets: Iterable[Secret]) -> None:
    """Mask ``secrets`` in this process, in every printable form; Airflow by itself masks only the raw one."""
    for form in _forms_to_mask(secrets):
        mask_secret(form)


async def amask(secrets: Iterable[Secret]) -> None:
    """As :func:`mask`, on an event loop.

    Airflow 3 before 3.3.2 cannot do this there; it then masks only the connection's password. Nothing that this package logs
    depends on masking.
    """
    for form in _forms_to_mask(secrets):
        await compat.amask_secret(form)


def _forms_to_mask(secrets: Iterable[Secret]) -> list[str]:
    """The fewest strings whose masking hides every form of ``secrets``: a link without its token gives no access."""
    forms: list[str] = []
    for form in sorted({form for secret in secrets for form in printed_forms(secret)}, key=len):
        if not any(len(part) >= _ALWAYS_MASKED and part in form for part in forms):
            forms.append(form)
    return forms

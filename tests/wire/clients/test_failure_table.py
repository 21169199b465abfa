"""The table of ``docs/operate/retries.md``, cell by cell, through both clients and over a real socket; the emulator counts."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.custom_call import CustomCall
from airflow_provider_cloudstore.protocol.http import Response
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import CALLS, KINDS, TOKEN, settings, store_file
from tests.wire.clients.conftest import Serve, Way, asynchronous
from tests.wire.failure_table import ANSWERS, ERRORS, OUTCOMES, row_for

ATTEMPTS = 3


def status(code: int, **more: Any) -> dict[str, Any]:
    return {"kind": "status", "status": code, **more}


@dataclass
class RawBytes:
    """A fault that the emulator does not have: bytes that may be no HTTP, and a closed connection."""

    raw: str
    operation: str
    times: int

    async def apply(self, request: web.Request, _: Any) -> web.StreamResponse:
        await request.read()  # closing with unread data would reset the connection
        assert request.transport
        request.transport.write(self.raw.encode())
        request.transport.close()
        return web.Response()


def inject(emulator: Emulator, fault: dict[str, Any], operation: str, times: int = 1) -> None:
    """Inject a fault of :data:`FAULTS`."""
    if "raw" in fault:
        raw: Any = RawBytes(fault["raw"], operation, times)
        emulator.call(lambda service: service.faults.append(raw))
    else:
        emulator.fault(**fault, operation=operation, times=times)


AT_ONCE, AWAY = {"Retry-After": "0"}, {"Location": "/_emulator/state"}
FAULTS: dict[str, dict[str, Any]] = {
    "429": status(429, headers=AT_ONCE),
    "429 without a time": status(429),
    "503 with a valid `Retry-After`": status(503, headers=AT_ONCE),
    "read timeout": {"kind": "delay", "seconds": 5},
    "lost connection before the effect": {"kind": "drop_before"},
    "lost connection after the effect": {"kind": "drop_after"},
    "incomplete response": {"kind": "drop_body", "after": 5},
    "malformed HTTP": {"raw": "nonsense\r\n\r\n"},
    "other 5xx (500)": status(500),
    "other 5xx (503)": status(503),
    "other 5xx (504) after the effect": status(504, effect=True),
    "101": {"raw": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"},
    "401": status(401),
    **{str(code): status(code) for code in (403, 409, 423, 507, 400, 405, 408, 411, 413, 414, 415, 422, 425)},
    **{str(code): status(code, body='{"message": "no"}') for code in (404, 410)},
    "other 4xx (407)": status(407),
    **{f"3xx ({code})": status(code, headers=AWAY) for code in (301, 307)},
    "2xx whose body reports an error": status(200, body='{"_status": "error", "response": "no"}'),
    "web page": status(200, body="<!doctype html><title>Sign in</title>"),
    "broken JSON": status(200, body="{broken or not"),
    "more than 1 MiB": status(200, body=" " * 1024 * 1025),
}
"""A fault of the service for each cause in the table; what comes before the effect leaves none."""
AFTER_THE_EFFECT = ("lost connection after the effect", "incomplete response", "other 5xx (504) after the effect")


@pytest.fixture(scope="module")
def service() -> Iterator[Emulator]:
    with Emulator(access_token=TOKEN) as emulator:
        yield emulator


@pytest.fixture
def fresh(service: Emulator) -> Emulator:
    def reset(of: Any) -> None:
        of.access_token = TOKEN
        of.faults.clear()
        for kept in (of.store.requests, of.store.effects, of.store.tokens, of.store.files):
            kept.clear()

    service.call(reset)
    store_file(service)
    return service


OTHER_CALLS: dict[str, tuple[Any, ...]] = {
    "upload": (CustomCall, "POST", "/file/rename", {"file_id": "f1", "name": "new"}),
    "link": (CustomCall, "GET", "/folder/list", {"folder_id": "staging"}),
}
"""Any other call that an operation's column of the table is for, too: a POST is an upload, a GET is a link."""


def unused() -> Settings:
    raise AssertionError("the connection was read again without a 401")


def checked(end: Any) -> exceptions.CloudStoreError | None:
    """The error of a call, which is as its row of the page says; None for success."""
    if not isinstance(end, exceptions.CloudStoreError):
        return None
    assert end.permanent == ERRORS[type(end).__name__].permanent
    assert (end.__cause__, end.__context__) == (None, None)
    assert TOKEN not in str(end)
    return end


def perform(
    call_way: Way, own: Settings, call: tuple[Any, ...], reload: Callable[[], Settings] = unused, **more: Any
) -> exceptions.CloudStoreError | None:
    """As :func:`checked`, of a call over a session of its own."""
    with call_way(own, reload) as send:
        return checked(send(*call, **more))


def end_in_the_table(name: str, lasts: bool, operation: str) -> tuple[int, int, str]:
    """How many requests and effects the row of a fault means, and the error; empty for success."""
    row, effect = row_for(name), name in AFTER_THE_EFFECT
    error = row.error(operation)
    if not row.is_retried(operation):
        return 1, effect, error
    if effect and operation == "delete":
        return 2, 1, ""  # the second deletion finds nothing, which is success
    return (ATTEMPTS, ATTEMPTS * effect, error) if lasts else (2, 1 + effect, "")


CELLS = [(name, False, operation, CALLS[operation]) for name in FAULTS for operation in row_for(name).cells]
OF_OTHER_CALLS = [(*cell[:3], OTHER_CALLS[cell[2]]) for cell in CELLS if cell[2] in OTHER_CALLS]
CELLS += [(name, True, operation, call) for name, _, operation, call in CELLS if row_for(name).is_retried(operation)]


@pytest.mark.parametrize(("name", "lasts", "operation", "call"), [*CELLS, *OF_OTHER_CALLS])
def test_a_fault_costs_the_requests_and_effects_of_the_table_and_ends_as_it_says(
    call_way: Way, fresh: Emulator, name: str, lasts: bool, operation: str, call: tuple[Any, ...]
) -> None:
    counted_as = call[0].key
    inject(fresh, FAULTS[name], counted_as, times=0 if lasts else 1)
    # A busy machine must not turn any other fault into a response that came too late.
    own = settings(fresh.url, max_attempts=ATTEMPTS, timeout=30.0 if name != "read timeout" else 0.2 if lasts else 0.6)
    failed = perform(call_way, own, call, (lambda: own) if name == "401" else unused)
    state = fresh.state()
    requests, effects, error = end_in_the_table(name, lasts, operation)
    assert failed is None or failed.attempts == requests
    if call_way is asynchronous and KINDS[operation].method == "GET" and lasts and name.startswith("lost connection"):
        requests, effects = 2 * requests, 2 * effects  # aiohttp itself sends a lost GET once more
    seen = state["requests"][counted_as], state["effects"].get(counted_as, 0), type(failed).__name__ if failed else ""
    assert seen == (requests, effects, error)


@pytest.mark.parametrize(("body", "operation", "expected"), ANSWERS)
def test_a_2xx_response_means_what_the_page_says(body: str, operation: str, expected: str) -> None:
    kind, *arguments = CALLS[operation]
    failed = checked(Attempt(kind(settings(), *arguments), settings()).interpret(Response(200, {}, body.encode(), 0.0, 0.0)))
    assert (type(failed).__name__ if failed else "success") == expected


OPTED_IN = ((CALLS["upload"], {"retry_unknown_outcome": True}), (OTHER_CALLS["upload"], {"idempotent": True}))
RESENT = [(name, *post) for name in FAULTS if row_for(name).what.startswith("sent, outcome unknown") for post in OPTED_IN]


@pytest.mark.parametrize(("name", "call", "option"), RESENT)
def test_a_post_that_may_have_arrived_is_resent_if_the_caller_says_that_it_may(
    call_way: Way, fresh: Emulator, name: str, call: tuple[Any, ...], option: dict[str, Any]
) -> None:
    inject(fresh, FAULTS[name], call[0].key)
    own = settings(fresh.url, timeout=0.6 if name == "read timeout" else 30.0)
    assert perform(call_way, own, call, **option) is None
    assert fresh.state()["requests"] == {call[0].key: 2}


NOWHERE, TLS_HOST = "http://127.0.0.1:9", "https://files.test"
UNREACHABLE: dict[str, Callable[[Emulator, int, int], Settings]] = {
    "DNS": lambda *_: settings("http://no-such-host.invalid", max_attempts=ATTEMPTS),
    "refused": lambda *_: settings(NOWHERE, max_attempts=ATTEMPTS),
    "connect timeout": lambda emulator, dead, _: settings(f"http://127.0.0.1:{dead}", max_attempts=ATTEMPTS, timeout=0.2),
    "TLS": lambda emulator, *_: settings(emulator.url.replace("http:", "https:"), max_attempts=ATTEMPTS),
    "proxy": lambda *_: settings(TLS_HOST, max_attempts=ATTEMPTS, proxy=Secret(NOWHERE)),
    "proxy that refuses": lambda _, __, proxy: settings(
        TLS_HOST, max_attempts=ATTEMPTS, proxy=Secret(f"http://127.0.0.1:{proxy}")
    ),
}
"""Settings with which no request reaches the service, for each cause in the table."""


@pytest.mark.parametrize("operation", row_for("DNS").cells)
@pytest.mark.parametrize("name", UNREACHABLE)
def test_what_does_not_reach_the_service_is_known_as_never_sent(
    call_way: Way, fresh: Emulator, serve: Serve, name: str, operation: str
) -> None:
    proxy = serve(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
    with socket.socket() as dead, socket.socket() as waiting:
        dead.bind(("127.0.0.1", 0))
        dead.listen(0)  # the kernel does not answer a second one
        waiting.connect(dead.getsockname())
        failed = perform(call_way, UNREACHABLE[name](fresh, dead.getsockname()[1], proxy.port), CALLS[operation])
    row = row_for(name)
    assert failed is not None
    assert type(failed).__name__ == row.error(operation)
    assert not failed.may_have_effect
    assert failed.attempts == (ATTEMPTS if row.is_retried(operation) else 1)
    assert fresh.state()["requests"] == {}


def test_every_cause_in_the_table_has_a_fault_here_and_every_fault_a_row() -> None:
    faults = [*FAULTS, *UNREACHABLE]
    assert [cause for row in OUTCOMES for cause in row.causes if not any(name.startswith(cause) for name in faults)] == []
    assert all(row_for(name) for name in faults)


def test_a_call_does_not_pause_for_more_than_five_minutes(call_way: Way, fresh: Emulator) -> None:
    fresh.fault(**status(429, headers={"Retry-After": "301"}))
    assert type(perform(call_way, settings(fresh.url), CALLS["link"])) is exceptions.RateLimitError
    assert fresh.state()["requests"] == {"link": 1}


def test_a_token_and_subjects_of_awkward_characters_arrive_as_they_are(call_way: Way, fresh: Emulator) -> None:
    awkward, source = "a+b/c=d%e&f#%41", "https://h/f?a=b+c&d=%2B%20é#x"
    fresh.call(lambda service: setattr(service, "access_token", awkward))
    store_file(fresh, file_id=f"{awkward} é", folder_id="R&D + (é), x=1")
    with call_way(settings(fresh.url, token=awkward)) as send:
        for operation, subject in {"link": f"{awkward} é", "upload": source, "delete": "R&D + (é), x=1"}.items():
            send(KINDS[operation], subject)
    state = fresh.state()
    assert state["effects"] == {"link": 1, "upload": 1, "delete": 1}
    assert state["files"][-1]["source"] == source

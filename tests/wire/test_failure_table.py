"""The failure table as data: every client, every operation and every fault, over a real socket, counted by the emulator."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pendulum
import pytest
import trustme

from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol import calls, errors
from airflow_provider_cloudstore.protocol.calls import Call, CreateDownloadLink, DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.operations import OPERATIONS, Operation
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import CALLS, CUT_OFF, TOKEN, error_envelope, settings, store_file

Perform = Callable[[Call[Any], Settings, Callable[[], Settings], float], Any]


def blocking(call: Call[Any], own: Settings, reload: Callable[[], Settings], budget: float) -> Any:
    with BlockingClient(own, reload) as client:
        return client.perform(call, budget=budget)


def asynchronous(call: Call[Any], own: Settings, reload: Callable[[], Settings], budget: float) -> Any:
    async def reload_it() -> Settings:
        return reload()

    async def run() -> Any:
        async with shared_session(own) as session:
            return await AsyncClient(own, reload_it, session).perform(call, budget=budget)

    return asyncio.run(run())


CLIENTS: dict[str, Perform] = {"blocking": blocking, "asynchronous": asynchronous}

NEEDS_A_BODY = {"link": errors.InvalidResponseError}
"""How an operation ends whose result must be in the body, if there is none."""


@dataclass(frozen=True)
class Row:
    """One cell of the table: a fault on one operation, the requests and effects that follow, and how it ends."""

    what: str
    fault: dict[str, Any]
    operation: str
    requests: int
    effects: int
    ends: type[errors.CloudStoreError] | None = None
    repeat: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.operation}{'-again' if self.repeat else ''}-{self.what}"


def status(code: int, **more: Any) -> dict[str, Any]:
    return {"kind": "status", "status": code, **more}


def raw(after_the_status: str, **more: Any) -> dict[str, Any]:
    return {"kind": "raw", "effect": True, "raw": f"HTTP/1.1 200 OK\r\n{after_the_status}", **more}


TOO_LARGE = 2 * 1024 * 1024


def rows() -> Iterator[Row]:
    for operation in OPERATIONS:
        yield from of_every_operation(operation.key)
        yield from (of_idempotent if operation.idempotent else of_not_idempotent)(operation)


def of_every_operation(key: str) -> Iterator[Row]:
    pause = {"Retry-After": "0"}
    # Refused for now: retried, as nothing happened.
    for what, fault in {
        "429": status(429, headers=pause),
        "429-without-a-time": status(429),
        "503-with-a-time": status(503, headers=pause),
    }.items():
        yield Row(what, fault, key, 2, 1)
        yield Row(f"{what}-always", {**fault, "times": 0}, key, 3, 0, errors.RateLimitError)
    # Refused permanently: one request.
    for code, kind in {
        **dict.fromkeys((301, 302, 307, 308, 400, 405, 409, 422), errors.RequestRejectedError),
        **dict.fromkeys((404, 410), errors.NotFoundError),
        403: errors.PermissionDeniedError,
    }.items():
        yield Row(str(code), status(code, headers={"Location": "/_emulator/state"}), key, 1, 0, kind)
    yield Row("error-envelope", error_envelope("no"), key, 1, 0, errors.ServiceError)
    # A body that is no JSON object: text is a response, a web page is not.
    page = status(200, effect=True, headers={"Content-Type": "text/html"}, body='{"token": "a-download-token"}')
    yield Row("wrong-type", page, key, 1, 1)
    yield Row("no-body", status(204), key, 1, 0, NEEDS_A_BODY.get(key))


# Sent, outcome unknown: the fault, and the effects that it leaves.
LOST: dict[str, tuple[dict[str, Any], int]] = {
    "500": (status(500), 0),
    "503": (status(503), 0),
    "504-after-the-effect": (status(504, effect=True), 1),
    "drop-before": ({"kind": "drop_before"}, 0),
    "drop-after": ({"kind": "drop_after"}, 1),
    "cut-off": (CUT_OFF, 1),
    "too-slow": ({"kind": "delay", "seconds": 5}, 0),
    "unfinished": (raw("Content-Length: 9\r\n\r\n{", close=False), 1),
}
# Success, but not the service's own response.
NOT_ITS_OWN: dict[str, tuple[dict[str, Any], int]] = {
    "endless": (raw("\r\n" + " " * TOO_LARGE), 1),
    "oversized": (raw(f"Content-Length: {TOO_LARGE}\r\n\r\n{' ' * TOO_LARGE}"), 1),
    "web-page": (status(200, body="<!doctype html><title>Sign in</title>"), 0),
    "no-json": (status(200, body="{broken or not"), 0),
}


def of_idempotent(operation: Operation) -> Iterator[Row]:
    for what, (fault, effects) in LOST.items():
        # A second deletion finds nothing, which has no further effect.
        yield Row(what, fault, operation.key, 2, 1 if operation.missing_is_success else effects + 1)
    yield Row("500-always", status(500, times=0), operation.key, 3, 0, errors.TransientServiceError)
    for what, (fault, effects) in NOT_ITS_OWN.items():
        yield Row(what, fault, operation.key, 1, effects, errors.InvalidResponseError)


def of_not_idempotent(operation: Operation) -> Iterator[Row]:
    for what, (fault, effects) in LOST.items():
        yield Row(what, fault, operation.key, 1, effects, errors.OutcomeUnknownError)
        yield Row(what, fault, operation.key, 2, effects + 1, repeat=True)
    yield Row("500-always", status(500, times=0), operation.key, 3, 0, errors.TransientServiceError, repeat=True)
    for what, (fault, effects) in NOT_ITS_OWN.items():
        yield Row(what, fault, operation.key, 1, effects, errors.OutcomeUnknownError)
    yield Row("text", status(200, body="not JSON, just text"), operation.key, 1, 0)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_INITIAL_BACKOFF", 0.01)


@pytest.fixture(scope="module")
def service() -> Iterator[Emulator]:
    with Emulator(access_token=TOKEN) as emulator:
        yield emulator


@pytest.fixture
def fresh(service: Emulator) -> Emulator:
    def reset(of: Any) -> None:
        of.access_token = TOKEN
        of.faults.script.clear()
        for kept in (of.store.requests, of.store.effects, of.store.tokens, of.store.files):
            kept.clear()

    service.call(reset)
    store_file(service)
    return service


@pytest.fixture(params=list(CLIENTS))
def perform(request: pytest.FixtureRequest) -> Perform:
    return CLIENTS[request.param]


def unused() -> Settings:
    raise AssertionError("the connection was read again without a 401")


@pytest.mark.parametrize("row", list(rows()), ids=str)
def test_a_fault_costs_the_requests_and_effects_of_the_table_and_ends_as_it_says(
    perform: Perform, fresh: Emulator, row: Row
) -> None:
    kind, subject = CALLS[row.operation]
    fresh.fault(operation=row.operation, **row.fault)
    # A busy machine must not turn any other fault into a response that came too late.
    own = settings(fresh.url, max_attempts=3, timeout=0.6 if row.what in ("too-slow", "unfinished") else 30.0)
    failed: errors.CloudStoreError | None = None
    try:
        perform(kind(subject, own, retry_unknown_outcome=row.repeat), own, unused, 60)
    except errors.CloudStoreError as error:
        failed = error
    state = fresh.state()
    assert (type(failed) if failed else None) is row.ends, failed
    assert state["requests"].get(row.operation, 0) == row.requests
    assert state["effects"].get(row.operation, 0) == row.effects
    if failed:
        assert failed.__cause__ is None
        assert failed.__context__ is None
        assert failed.attempts == row.requests
        assert TOKEN not in str(failed)


@pytest.mark.parametrize("date", [False, True], ids=["seconds", "http-date"])
def test_the_time_that_the_service_names_is_waited_out(perform: Perform, fresh: Emulator, date: bool) -> None:
    value = pendulum.now("UTC").add(seconds=2).format("ddd, DD MMM YYYY HH:mm:ss [GMT]") if date else "1"
    own = settings(fresh.url)
    fresh.put_file(b"x", "f1", "another")  # not in the folder that is deleted meanwhile

    def seconds_of(operation: str) -> float:
        kind, subject = CALLS[operation]
        began = time.monotonic()
        perform(kind(subject, own), own, unused, 60)
        return time.monotonic() - began

    for operation in CALLS:
        fresh.fault("status", status=429, headers={"Retry-After": value}, operation=operation)
    with ThreadPoolExecutor(len(CALLS)) as threads:
        waited = list(threads.map(seconds_of, CALLS))
    assert all((0.5 if date else 0.9) <= seconds < 10 for seconds in waited), waited
    assert fresh.state()["requests"] == dict.fromkeys(CALLS, 2)


@pytest.mark.parametrize("operation", CALLS)
def test_a_time_that_the_budget_does_not_hold_is_not_waited_for(perform: Perform, fresh: Emulator, operation: str) -> None:
    fresh.fault("status", status=429, headers={"Retry-After": "3600"}, operation=operation)
    kind, subject = CALLS[operation]
    own = settings(fresh.url)
    began = time.monotonic()
    with pytest.raises(errors.RateLimitError):
        perform(kind(subject, own), own, unused, 300)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("operation", CALLS)
def test_no_request_outlives_the_budget(perform: Perform, fresh: Emulator, operation: str) -> None:
    fresh.fault("delay", seconds=10, times=0, operation=operation)
    kind, subject = CALLS[operation]
    own = settings(fresh.url, timeout=30)
    began = time.monotonic()
    with pytest.raises(errors.CloudStoreError):
        perform(kind(subject, own, retry_unknown_outcome=True), own, unused, 1.0)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("operation", CALLS)
def test_a_rotated_token_is_used_after_one_401(perform: Perform, fresh: Emulator, operation: str) -> None:
    kind, subject = CALLS[operation]
    old, new = settings(fresh.url, token="old-token"), settings(fresh.url)
    perform(kind(subject, old), old, lambda: new, 60)
    state = fresh.state()
    assert state["requests"] == {operation: 2}
    assert state["effects"] == {operation: 1}


@pytest.mark.parametrize("operation", CALLS)
def test_a_token_that_is_not_rotated_is_refused_after_one_401(perform: Perform, fresh: Emulator, operation: str) -> None:
    kind, subject = CALLS[operation]
    old = settings(fresh.url, token="old-token")
    with pytest.raises(errors.AuthenticationError, match="password"):
        perform(kind(subject, old), old, lambda: old, 60)
    assert fresh.state()["requests"] == {operation: 1}


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("host", ["http://127.0.0.1:9", "http://no-such-host.invalid"])
def test_what_cannot_be_reached_is_tried_again_and_known_as_never_sent(perform: Perform, operation: str, host: str) -> None:
    kind, subject = CALLS[operation]
    own = settings(host, max_attempts=3)
    with pytest.raises(errors.ServiceUnreachableError) as failed:
        perform(kind(subject, own), own, unused, 60)
    assert failed.value.attempts == 3
    assert not failed.value.sent
    assert "refused" in str(failed.value) or "host name not found" in str(failed.value)


@pytest.mark.parametrize("operation", CALLS)
def test_a_certificate_that_nobody_vouches_for_stops_the_request_before_it_is_sent(
    perform: Perform, operation: str, tmp_path: Any
) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    kind, subject = CALLS[operation]
    with Emulator(access_token=TOKEN, tls=tls) as emulator:
        store_file(emulator)
        own = settings(emulator.url, max_attempts=2)
        with pytest.raises(errors.ServiceUnreachableError, match="TLS certificate verification failed") as failed:
            perform(kind(subject, own), own, unused, 60)
        assert not failed.value.sent
        assert emulator.state()["requests"] == {}
        for verify in (str(bundle), False):
            trusting = settings(emulator.url, verify=verify)
            perform(kind(subject, trusting), trusting, unused, 60)
            store_file(emulator)
        assert emulator.state()["requests"] == {operation: 2}


def test_a_certificate_for_another_host_is_reported_as_such(perform: Perform, tmp_path: Any) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.2").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with Emulator(access_token=TOKEN, tls=tls) as emulator:
        own = settings(emulator.url, max_attempts=1, verify=str(tmp_path / "ca.pem"))
        with pytest.raises(errors.ServiceUnreachableError, match=r"is not valid for '127\.0\.0\.1', at https://") as failed:
            perform(CreateDownloadLink("f1", own), own, unused, 60)
        assert not failed.value.sent
        assert emulator.state()["requests"] == {}


@pytest.mark.parametrize("operation", CALLS)
def test_a_server_that_speaks_no_tls_is_known_as_never_sent(perform: Perform, fresh: Emulator, operation: str) -> None:
    kind, subject = CALLS[operation]
    own = settings(fresh.url.replace("http:", "https:"), max_attempts=1)
    with pytest.raises(errors.ServiceUnreachableError, match="TLS failed"):
        perform(kind(subject, own), own, unused, 60)


def test_a_token_of_awkward_characters_arrives_as_it_is(perform: Perform, fresh: Emulator) -> None:
    token = "a+b/c=d%e&f#é%41"
    fresh.call(lambda service: setattr(service, "access_token", token))
    own = settings(fresh.url, token=token)
    perform(CreateDownloadLink("f1", own), own, unused, 60)
    perform(UploadFromUrl("ftp://127.0.0.1:9/file", own), own, unused, 60)
    perform(DeleteFolder("staging", own), own, unused, 60)
    assert fresh.state()["effects"] == {"link": 1, "upload": 1, "delete": 1}


def test_a_subject_of_awkward_characters_arrives_as_it_is(perform: Perform, fresh: Emulator) -> None:
    folder_id = "a+b/c=d%e&f g#é%41"
    store_file(fresh, file_id=folder_id, folder_id=folder_id)
    own = settings(fresh.url)
    assert perform(CreateDownloadLink(folder_id, own), own, unused, 60).token
    source = "https://h/f?a=b+c&d=%2B%20é#x"
    perform(UploadFromUrl(source, own), own, unused, 60)
    assert fresh.state()["files"][-1]["source"] == source
    assert perform(DeleteFolder(folder_id, own), own, unused, 60).response["data"] == {"folder_id": folder_id}

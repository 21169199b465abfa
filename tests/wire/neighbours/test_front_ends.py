"""Both clients behind front ends and a forward proxy that people really run, as ``docs/operate/deployments.md`` says.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.protocol import calls
from scripts.processes import free_port
from tests.guarantees import Proof, guarantee
from tests.support import eventually, store_file
from tests.wire.failure_table import ERRORS
from tests.wire.neighbours.servers import HAPROXY, LOCATION, PROXY_LOGIN, PROXY_PASSWORD, Haproxy, Nginx, Squid, limit, server

pytestmark = pytest.mark.slow

WRONG_PASSWORD = "0ther-passw0rd"
Outcomes = dict[str, exceptions.CloudStoreError | None]
Run = Callable[[Callable[[], Any]], Any]


def source(client: str) -> str:
    return f"https://source.example/{client}?sig=hunter2"


def blocking() -> Outcomes:
    """Every operation at once, each with a hook of its own; None is success."""

    def outcome_of(work: Callable[[CloudStoreHook], object]) -> exceptions.CloudStoreError | None:
        with CloudStoreHook() as hook:
            try:
                work(hook)
            except exceptions.CloudStoreError as error:
                return error
        return None

    work: dict[str, Callable[[CloudStoreHook], object]] = {
        "upload": lambda hook: hook.upload_from_url(source("blocking")),
        "link": lambda hook: hook.create_download_link("f1"),
        "delete": lambda hook: hook.delete_folder("old"),
    }
    with ThreadPoolExecutor(len(work)) as threads:
        return dict(zip(work, threads.map(outcome_of, work.values()), strict=True))


def asynchronous() -> Outcomes:
    """The same through the asynchronous hook."""

    async def outcome_of(work: Awaitable[object]) -> exceptions.CloudStoreError | None:
        try:
            await work
        except exceptions.CloudStoreError as error:
            return error
        return None

    async def run() -> Outcomes:
        async with CloudStoreAsyncHook() as hook:
            work = hook.upload_from_url(source("asynchronous")), hook.create_download_link("f1"), hook.delete_folder("old")
            return dict(zip(("upload", "link", "delete"), await asyncio.gather(*map(outcome_of, work)), strict=True))

    return asyncio.run(run())


CLIENTS = (blocking, asynchronous)


def one_request(emulator: Emulator, port: int) -> None:
    """Use up a limit of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/")
    connection.getresponse().read()
    connection.close()


def one_that_stays(emulator: Emulator, port: int) -> http.client.HTTPConnection:
    """Have the service work on a request for as long as its connection is open."""
    emulator.fault("delay", operation="link", seconds=3600)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/cloud/api/v2/file/download?file_id=f1")
    eventually(lambda: emulator.state()["requests"])
    return connection


def tls(name: str) -> str:
    pem = f"{{files}}/{name}.pem"
    return server(f"{LOCATION} ssl_certificate {pem}; ssl_certificate_key {pem};", listen="127.0.0.1:{port} ssl")


PAGE = "<!doctype html><title>We are back soon</title>"


def page(status: int, more: str = "", body: str = PAGE) -> str:
    kind = "text/html" if body == PAGE else "application/json"
    return server(f"{more} default_type {kind}; return {status} '{body}';")


@dataclass(frozen=True)
class Row:
    """A front end or proxy; ``docs/operate/deployments.md`` says how each operation ends behind it.

    :param config: nginx's or haproxy's configuration; empty for neither. ``{service}``, ``{address}``, ``{dead}`` (a port where
        nothing listens) and ``{files}`` (where the certificates are) are replaced, ``{port}`` is its own.
    :param says: what every error says.
    :param host: the connection's, with the same replacements.
    :param proxy: squid's user and password, if requests go through it.
    :param more: of the connection's extra.
    :param fault: what the service itself does, after it has done the work.
    :param before: what happens before the calls.
    :param log: what nginx has logged afterwards.
    """

    config: str
    says: str = ""
    host: str = "http://127.0.0.1:{port}"
    proxy: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    fault: dict[str, Any] = field(default_factory=dict)
    before: Callable[[Emulator, int], object] = lambda *_: None
    log: str = ""


HTTPS, TRUSTED = "https://127.0.0.1:{port}", {"verify": "{files}/ca.pem"}
RIGHT, WRONG = f"{PROXY_LOGIN}:{PROXY_PASSWORD}", f"{PROXY_LOGIN}:{WRONG_PASSWORD}"
SET_PROXY = "Set extra 'proxy' of the connection to http://user:password@"
NO_RESPONSE = {"kind": "no_response", "times": 0}
ROWS = {
    "nginx: TLS with a private CA that extra `verify` names": Row(tls("server"), host=HTTPS, more=TRUSTED),
    "nginx: TLS with a private CA that is not trusted": Row(
        tls("server"), "set extra 'verify' to the path of its bundle", host=HTTPS
    ),
    "nginx: TLS with a certificate for another host": Row(
        tls("another"), "verification failed: IP address mismatch", host=HTTPS, more=TRUSTED
    ),
    "nginx: the API is below a path prefix": Row(
        server("location /files/ { proxy_pass {service}/; }"), host="http://127.0.0.1:{port}/files"
    ),
    "nginx: `limit_req` with `limit_req_status 429`, for a moment": Row(
        limit("2r/s", "limit_req_status 429;"), more={"max_attempts": 12}, before=one_request, log='" 429 '
    ),
    "nginx: `limit_req` with `limit_req_status 429`, for longer than the call retries": Row(
        limit("1r/m", "limit_req_status 429;"), "HTTP 429", before=one_request
    ),
    "nginx: `limit_req` with its default status, 503": Row(limit("1r/m"), "HTTP 503", before=one_request),
    "nginx: 502, because the service is down": Row(server("location / { proxy_pass http://127.0.0.1:{dead}; }"), "HTTP 502"),
    "nginx: 504, because the service did the work but responds too late": Row(
        server(f"proxy_read_timeout 1s; {LOCATION}"), "HTTP 504", fault=NO_RESPONSE
    ),
    "nginx: a maintenance page with status 503": Row(page(503), "HTTP 503"),
    "nginx: a maintenance page with status 503 and `Retry-After`": Row(page(503, "add_header Retry-After 0 always;"), "HTTP 503"),
    "nginx: `{}` with status 503 and `Retry-After`": Row(page(503, "add_header Retry-After 0 always;", "{}"), "HTTP 503"),
    "nginx: a maintenance page with status 200": Row(page(200), "HTTP 200 with"),
    "haproxy: 503, because `timeout queue` is over": Row(
        f"{HAPROXY.rstrip()} maxconn 1\n timeout queue 300ms", "HTTP 503", before=one_that_stays
    ),
    "haproxy: the connection breaks in the middle of the response": Row(
        HAPROXY, "the response ended early", fault={"kind": "drop_body", "after": 5, "times": 0}
    ),
    "haproxy: it closes the connection instead of responding (`http-request reject`)": Row(
        f"{HAPROXY} http-request reject", "connection closed without a response"
    ),
    "squid: a service with http": Row("", host="{service}", proxy=RIGHT),
    "squid: a service with https (CONNECT)": Row(tls("server"), host=HTTPS, proxy=RIGHT, more=TRUSTED),
    "squid: 407, because the proxy's credentials are wrong (http)": Row("", SET_PROXY, host="{service}", proxy=WRONG),
    "squid: 407, because the proxy's credentials are wrong (CONNECT)": Row(
        tls("server"), SET_PROXY, host=HTTPS, proxy=WRONG, more=TRUSTED
    ),
    "squid: 503, because the service is down (http)": Row("", "HTTP 503", host="http://127.0.0.1:{dead}", proxy=RIGHT),
    "squid: 503, because the service is down (CONNECT)": Row(
        "", "the proxy answered HTTP 503 to CONNECT", host="https://127.0.0.1:{dead}", proxy=RIGHT
    ),
}
GUARANTEES = [
    guarantee("front-ends", "nginx: TLS with a private CA that extra `verify` names"),
    guarantee("front-ends", "nginx: `limit_req` with `limit_req_status 429`, for a moment"),
    guarantee("front-ends", "nginx: `limit_req` with its default status, 503"),
    guarantee("front-ends", "nginx: 502, because the service is down"),
    guarantee("front-ends", "nginx: 504, because the service did the work but responds too late"),
    guarantee("front-ends", "haproxy: 503, because `timeout queue` is over"),
    guarantee("front-ends", "haproxy: the connection breaks in the middle of the response"),
    guarantee("front-ends", "squid: 407, because the proxy's credentials are wrong (http)"),
]
MARKS = {mark.args[1]: mark for mark in GUARANTEES}
_ENDS = {
    "nginx: TLS with a private CA that extra `verify` names": ("succeeds", "succeeds", "succeeds"),
    "nginx: TLS with a private CA that is not trusted": (
        "`ServiceUnreachableError`",
        "`ServiceUnreachableError`",
        "`ServiceUnreachableError`",
    ),
    "nginx: TLS with a certificate for another host": (
        "`ServiceUnreachableError`",
        "`ServiceUnreachableError`",
        "`ServiceUnreachableError`",
    ),
    "nginx: the API is below a path prefix": ("succeeds", "succeeds", "succeeds"),
    "nginx: `limit_req` with `limit_req_status 429`, for a moment": ("succeeds", "succeeds", "succeeds"),
    "nginx: `limit_req` with `limit_req_status 429`, for longer than the call retries": (
        "`RateLimitError`",
        "`RateLimitError`",
        "`RateLimitError`",
    ),
    "nginx: `limit_req` with its default status, 503": (
        "`TransientServiceError`",
        "`OutcomeUnknownError`",
        "`TransientServiceError`",
    ),
    "nginx: 502, because the service is down": ("`TransientServiceError`", "`OutcomeUnknownError`", "`TransientServiceError`"),
    "nginx: 504, because the service did the work but responds too late": (
        "succeeds",
        "`OutcomeUnknownError`",
        "`TransientServiceError`",
    ),
    "nginx: a maintenance page with status 503": ("`TransientServiceError`", "`OutcomeUnknownError`", "`TransientServiceError`"),
    "nginx: a maintenance page with status 503 and `Retry-After`": (
        "`RateLimitError`",
        "`OutcomeUnknownError`",
        "`RateLimitError`",
    ),
    "nginx: `{}` with status 503 and `Retry-After`": ("`RateLimitError`", "`RateLimitError`", "`RateLimitError`"),
    "nginx: a maintenance page with status 200": ("`InvalidResponseError`", "`OutcomeUnknownError`", "`InvalidResponseError`"),
    "haproxy: 503, because `timeout queue` is over": (
        "`TransientServiceError`",
        "`OutcomeUnknownError`",
        "`TransientServiceError`",
    ),
    "haproxy: the connection breaks in the middle of the response": (
        "succeeds",
        "`OutcomeUnknownError`",
        "`TransientServiceError`",
    ),
    "haproxy: it closes the connection instead of responding (`http-request reject`)": (
        "`TransientServiceError`",
        "`OutcomeUnknownError`",
        "`TransientServiceError`",
    ),
    "squid: a service with http": ("succeeds", "succeeds", "succeeds"),
    "squid: a service with https (CONNECT)": ("succeeds", "succeeds", "succeeds"),
    "squid: 407, because the proxy's credentials are wrong (http)": (
        "`ConfigurationError`",
        "`ConfigurationError`",
        "`ConfigurationError`",
    ),
    "squid: 407, because the proxy's credentials are wrong (CONNECT)": (
        "`ConfigurationError`",
        "`ConfigurationError`",
        "`ConfigurationError`",
    ),
    "squid: 503, because the service is down (http)": (
        "`TransientServiceError`",
        "`OutcomeUnknownError`",
        "`TransientServiceError`",
    ),
    "squid: 503, because the service is down (CONNECT)": (
        "`ServiceUnreachableError`",
        "`ServiceUnreachableError`",
        "`ServiceUnreachableError`",
    ),
}
DOCUMENTED = {name: dict(zip(("delete", "upload", "link"), ends, strict=True)) for name, ends in _ENDS.items()}
"""How each operation ends: an error in backticks, or ``succeeds``; ``docs/operate/deployments.md`` has it in short."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of a private CA (``ca.pem``), and those of this machine (``server.pem``) and of ``another.pem``."""
    folder, authority = tmp_path_factory.mktemp("certificates"), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name, host in {"server": "127.0.0.1", "another": "127.0.0.2"}.items():
        authority.issue_cert(host).private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    return folder


@pytest.fixture
def programs(
    name: str, emulator: Emulator, certificates: Path, run_neighbour: Run, monkeypatch: pytest.MonkeyPatch
) -> tuple[Nginx | Haproxy | None, Squid | None]:
    """The front end and the proxy of the row; the connection leads through them."""
    row = ROWS[name]
    store_file(emulator, folder_id="kept")
    values = {"service": emulator.url, "address": emulator.url[len("http://") :], "files": certificates, "dead": free_port()}

    def filled(text: str) -> str:
        return re.sub(r"\{(service|address|files|dead)\}", lambda found: str(values[found[1]]), text)

    program: type[Nginx | Haproxy] = Haproxy if name.startswith("haproxy") else Nginx
    front_end = run_neighbour(lambda: program(filled(row.config))) if row.config else None
    host = filled(row.host).replace("{port}", str(front_end.port) if front_end else "")
    extra = {"max_attempts": 2, "timeout": 20} | {key: filled(str(value)) for key, value in row.more.items()}
    squid = run_neighbour(lambda: Squid(PROXY_LOGIN, PROXY_PASSWORD)) if row.proxy else None
    if squid:
        extra["proxy"] = f"http://{row.proxy}@127.0.0.1:{squid.port}"
    connection = json.loads(emulator.connection) | {"host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
    monkeypatch.setattr(calls, "_INITIAL_BACKOFF", 0.05)
    return front_end, squid


def counted(emulator: Emulator) -> Counter[tuple[str, str]]:
    state = emulator.state()
    return Counter({(what, name): n for what in ("requests", "effects") for name, n in state[what].items()})


def assert_it_ends(outcome: exceptions.CloudStoreError | None, name: str, operation: str, done: Counter[tuple[str, str]]) -> None:
    """As ``docs/operate/deployments.md`` says: with which error, after how many requests, and with as many effects."""
    row, ends = ROWS[name], DOCUMENTED[name][operation]
    # By its name: a permanent error is also Airflow's.
    assert (f"`{type(outcome).__name__}`" if outcome else "succeeds") == ends, outcome
    if outcome is None:
        lost = bool(row.fault)  # a deletion's retry finds no folder, which counts as success
        assert (done["requests", operation], done["effects", operation]) == (1 + lost, 1)
        return
    sent = 2 if ERRORS[ends.strip("`")].retried else 1
    assert outcome.attempts == sent
    assert done["requests", operation] == done["effects", operation] == (sent if row.fault else 0)
    assert row.says in str(outcome)


def shown_of(outcomes: Outcomes) -> str:
    """All that is printed of errors."""
    return "".join(f"{outcome!s} {outcome!r} {vars(outcome)}" for outcome in outcomes.values() if outcome)


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in ROWS])
def test_both_clients_do_what_the_docs_say(
    name: str,
    programs: tuple[Nginx | Haproxy | None, Squid | None],
    emulator: Emulator,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    row = ROWS[name]
    caplog.set_level(logging.DEBUG)
    front_end, squid = programs
    held = row.before(emulator, front_end.port if front_end else 0)
    if row.fault:
        emulator.fault(**row.fault)
    succeeded, shown = [], ""
    for client in CLIENTS:
        emulator.make_folder("old")
        before = counted(emulator)
        outcomes = client()
        done = counted(emulator) - before
        for operation, outcome in outcomes.items():
            assert_it_ends(outcome, name, operation, done)
        shown += shown_of(outcomes)
        succeeded += [source(client.__name__)] if outcomes["upload"] is None else []
    del held
    if front_end and row.log:
        eventually(lambda: row.log in front_end.logged())
    if "OutcomeUnknownError" in DOCUMENTED[name]["upload"]:
        assert_each_client_sent_one_upload([program for program in programs if program])
    if squid and row.proxy == RIGHT:
        eventually(lambda: PROXY_LOGIN in {user for _, _, user in squid.requests()})
    in_base64 = base64.b64encode(row.proxy.encode()).decode().split()
    for secret in (emulator.access_token, PROXY_PASSWORD, WRONG_PASSWORD, "hunter2", *in_base64):
        assert secret not in shown + caplog.text
    if name in MARKS:
        hand_in(request.getfixturevalue("proven"), emulator, succeeded)


def assert_each_client_sent_one_upload(programs: list[Nginx | Haproxy | Squid]) -> None:
    """It need not have reached the service, so ask the program before that."""

    def sent() -> int:
        return max(program.logged().count("/cloud/api/v2/file/url_upload_add") for program in programs)

    assert eventually(lambda: sent() >= len(CLIENTS) and sent()) == len(CLIENTS)


def hand_in(proven: Proof, emulator: Emulator, succeeded: list[str]) -> None:
    """Hand in the figures of the uploads of both clients."""
    state = emulator.state()
    arrived = Counter(stored["source"] for stored in state["files"] if stored["folder_id"] != "kept")
    proven(
        requests=state["requests"].get("upload", 0),
        effects=arrived.total(),
        twice=arrived.total() - len(arrived),
        at_most=0,
        lost=len(set(succeeded) - arrived.keys()),
    )

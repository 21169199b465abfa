"""Both clients behind front ends and a forward proxy that people really run, held against the table in ``docs/failures.md``.

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
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.protocol import calls, errors
from scripts.processes import free_port
from tests.guarantees import ROOT, Proof, guarantee
from tests.support import CUT_OFF, NO_RESPONSE, eventually, store_file
from tests.wire.neighbours.servers import PROXY_LOGIN, PROXY_PASSWORD, Haproxy, Nginx, Squid

pytestmark = pytest.mark.slow

WRONG_PASSWORD = "0ther-passw0rd"
Outcomes = dict[str, errors.CloudStoreError | None]
Run = Callable[[Callable[[], Any]], Any]


def source(client: str) -> str:
    return f"https://source.example/{client}?sig=hunter2"


def blocking() -> Outcomes:
    """Every operation at once, each with a hook of its own; None is success."""

    def outcome_of(work: Callable[[CloudStoreHook], object]) -> errors.CloudStoreError | None:
        with CloudStoreHook() as hook:
            try:
                work(hook)
            except errors.CloudStoreError as error:
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

    async def outcome_of(work: Awaitable[object]) -> errors.CloudStoreError | None:
        try:
            await work
        except errors.CloudStoreError as error:
            return error
        return None

    async def run() -> Outcomes:
        async with CloudStoreAsyncHook() as hook:
            work = hook.upload_from_url(source("asynchronous")), hook.create_download_link("f1"), hook.delete_folder("old")
            return dict(zip(("upload", "link", "delete"), await asyncio.gather(*map(outcome_of, work)), strict=True))

    return asyncio.run(run())


CLIENTS = (blocking, asynchronous)


@dataclass(frozen=True)
class Ends:
    """How one call ends.

    :param error: its error; None for success.
    :param arrived: how many requests reached the service.
    :param effects: what they did there.
    :param sent: how many requests a failed call sent.
    """

    error: type[errors.CloudStoreError] | None
    arrived: int = 0
    effects: int = 0
    sent: int = 1


SERVED = Ends(None, arrived=1, effects=1)
UNKNOWN = Ends(errors.OutcomeUnknownError)
RETRIED = Ends(errors.TransientServiceError, sent=2)
UNREACHABLE = Ends(errors.ServiceUnreachableError, sent=2)
LIMITED = Ends(errors.RateLimitError, sent=2)
NOT_THE_SERVICE = Ends(errors.InvalidResponseError)
PROXY_REFUSES = Ends(errors.ConfigurationError)


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


@dataclass(frozen=True)
class Row:
    """A front end or proxy, and how each operation ends behind it.

    :param name: what it does, as in ``docs/failures.md``.
    :param config: nginx's or haproxy's configuration; empty for neither. ``{service}``, ``{address}``, ``{dead}`` (a port where
        nothing listens) and ``{files}`` (where the certificates are) are replaced, ``{port}`` is its own.
    :param upload: how a remote upload ends; likewise a deletion and a link.
    :param host: the connection's, with the same replacements.
    :param proxy: squid's user and password, if requests go through it.
    :param more: of the connection's extra.
    :param fault: what the service itself does.
    :param before: what happens before the calls.
    :param log: what nginx has logged afterwards.
    :param says: what every error says.
    """

    name: str
    config: str
    upload: Ends
    delete: Ends
    link: Ends
    host: str = "http://127.0.0.1:{port}"
    proxy: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    fault: dict[str, Any] = field(default_factory=dict)
    before: Callable[[Emulator, int], object] = lambda *_: None
    log: str = ""
    says: str = ""


def server(body: str, more: str = "", listen: str = "127.0.0.1:{port}") -> str:
    return f"{more}\nserver {{ listen {listen}; {body} }}"


def tls(name: str) -> str:
    pem = f"{{files}}/{name}.pem"
    return server(f"{LOCATION} ssl_certificate {pem}; ssl_certificate_key {pem};", listen="127.0.0.1:{port} ssl")


def limit(rate: str, more: str = "") -> str:
    return server(f"{LOCATION} limit_req zone=all; {more}", f"limit_req_zone $binary_remote_addr zone=all:1m rate={rate};")


def page(status: int) -> str:
    return f"default_type text/html; return {status} '<!doctype html><title>We are back soon</title>';"


LOCATION = "location / { proxy_pass {service}; }"
HTTPS, TRUSTED = "https://127.0.0.1:{port}", {"verify": "{files}/ca.pem"}
RIGHT, WRONG = f"{PROXY_LOGIN}:{PROXY_PASSWORD}", f"{PROXY_LOGIN}:{WRONG_PASSWORD}"
HAPROXY = "frontend f\n bind 127.0.0.1:{port}\n default_backend b\nbackend b\n server s {address}"
SERVED_ALL = (SERVED, SERVED, SERVED)
SAFELY_REPEATED = (UNKNOWN, RETRIED, RETRIED)
NEVER_SENT = (UNREACHABLE, UNREACHABLE, UNREACHABLE)
LIMITED_ALL = (LIMITED, LIMITED, LIMITED)
REFUSED_ALL = (PROXY_REFUSES, PROXY_REFUSES, PROXY_REFUSES)
# The service did the work. A deletion's retry finds no folder, which the table counts as success.
DONE_AND_LOST = (
    Ends(errors.OutcomeUnknownError, arrived=1, effects=1),
    Ends(None, arrived=2, effects=1),
    Ends(errors.TransientServiceError, arrived=2, effects=2, sent=2),
)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose uploads stay queued, with the file f1."""
    with Emulator(fetch_delay=3600) as running:
        store_file(running, folder_id="kept")
        yield running


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
    row: Row, emulator: Emulator, certificates: Path, run_neighbour: Run, monkeypatch: pytest.MonkeyPatch
) -> tuple[Nginx | Haproxy | None, Squid | None]:
    """The front end and the proxy of the row; the connection leads through them."""
    values = {"service": emulator.url, "address": emulator.url[len("http://") :], "files": certificates, "dead": free_port()}

    def filled(text: str) -> str:
        return re.sub(r"\{(service|address|files|dead)\}", lambda found: str(values[found[1]]), text)

    program: type[Nginx | Haproxy] = Haproxy if row.name.startswith("haproxy") else Nginx
    front_end = run_neighbour(lambda: program(filled(row.config))) if row.config else None
    host = filled(row.host).replace("{port}", str(front_end.port) if front_end else "")
    extra = {"max_attempts": 2, "timeout": 20} | {name: filled(str(value)) for name, value in row.more.items()}
    squid = run_neighbour(lambda: Squid(PROXY_LOGIN, PROXY_PASSWORD)) if row.proxy else None
    if squid:
        extra["proxy"] = f"http://{row.proxy}@127.0.0.1:{squid.port}"
    connection = json.loads(emulator.connection) | {"host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
    monkeypatch.setattr(calls, "_INITIAL_BACKOFF", 0.05)
    return front_end, squid


def documented() -> dict[str, list[str]]:
    """How a deletion, an upload and a link end, by the front end's behavior, as ``docs/failures.md`` has it."""
    page = (ROOT / "docs" / "failures.md").read_text().partition("\n### Front ends and proxies\n")[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")]
    return {name: ends for name, *ends in rows[1:]}


def as_documented(ends: Ends) -> str:
    return f"`{ends.error.__name__}`" if ends.error else "succeeds"


def counted(emulator: Emulator) -> Counter[tuple[str, str]]:
    state = emulator.state()
    return Counter({(what, name): n for what in ("requests", "effects") for name, n in state[what].items()})


def assert_it_ends(outcome: errors.CloudStoreError | None, expected: Ends, says: str, token: str) -> None:
    # By its name: a permanent error is also Airflow's.
    assert (outcome and type(outcome).__name__) == (expected.error and expected.error.__name__), outcome
    if outcome is not None:
        assert outcome.attempts == expected.sent
        assert says in str(outcome)
        for secret in (token, PROXY_PASSWORD, WRONG_PASSWORD, "hunter2"):
            assert secret not in f"{outcome!s} {outcome!r} {vars(outcome)}"


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            Row("nginx: TLS with a private CA that extra `verify` names", tls("server"), *SERVED_ALL, HTTPS, more=TRUSTED),
            marks=guarantee("front-ends", "nginx: TLS with a private CA that extra `verify` names"),
        ),
        pytest.param(
            Row(
                "nginx: TLS with a private CA that is not trusted",
                tls("server"),
                *NEVER_SENT,
                HTTPS,
                says="set extra 'verify' to the path of its bundle",
            )
        ),
        pytest.param(
            Row(
                "nginx: TLS with a certificate for another host",
                tls("another"),
                *NEVER_SENT,
                HTTPS,
                more=TRUSTED,
                says="verification failed: IP address mismatch",
            )
        ),
        pytest.param(
            Row(
                "nginx: the API is below a path prefix",
                server("location /files/ { proxy_pass {service}/; }"),
                *SERVED_ALL,
                "http://127.0.0.1:{port}/files",
            )
        ),
        pytest.param(
            Row(
                "nginx: `limit_req` with `limit_req_status 429`, for a moment",
                limit("2r/s", "limit_req_status 429;"),
                *SERVED_ALL,
                more={"max_attempts": 12},
                before=one_request,
                log='" 429 ',
            ),
            marks=guarantee("front-ends", "nginx: `limit_req` with `limit_req_status 429`, for a moment"),
        ),
        pytest.param(
            Row(
                "nginx: `limit_req` with `limit_req_status 429`, for longer than the call retries",
                limit("1r/m", "limit_req_status 429;"),
                *LIMITED_ALL,
                before=one_request,
                says="HTTP 429",
            )
        ),
        pytest.param(
            Row(
                "nginx: `limit_req` with its default status, 503",
                limit("1r/m"),
                *SAFELY_REPEATED,
                before=one_request,
                says="HTTP 503",
            ),
            marks=guarantee("front-ends", "nginx: `limit_req` with its default status, 503"),
        ),
        pytest.param(
            Row(
                "nginx: 502, because the service is down",
                server("location / { proxy_pass http://127.0.0.1:{dead}; }"),
                *SAFELY_REPEATED,
                says="HTTP 502",
            ),
            marks=guarantee("front-ends", "nginx: 502, because the service is down"),
        ),
        pytest.param(
            Row(
                "nginx: 504, because the service did the work but responds too late",
                server(f"proxy_read_timeout 1s; {LOCATION}"),
                *DONE_AND_LOST,
                fault={**NO_RESPONSE, "times": 0},
                says="HTTP 504",
            ),
            marks=guarantee("front-ends", "nginx: 504, because the service did the work but responds too late"),
        ),
        pytest.param(Row("nginx: a maintenance page with status 503", server(page(503)), *SAFELY_REPEATED, says="HTTP 503")),
        pytest.param(
            Row(
                "nginx: a maintenance page with status 503 and `Retry-After`",
                server(f"add_header Retry-After 0 always; {page(503)}"),
                *LIMITED_ALL,
                says="HTTP 503",
            )
        ),
        pytest.param(
            Row(
                "nginx: a maintenance page with status 200",
                server(page(200)),
                UNKNOWN,
                NOT_THE_SERVICE,
                NOT_THE_SERVICE,
                says="HTTP 200 with",
            )
        ),
        pytest.param(
            Row(
                "haproxy: 503, because `timeout queue` is over",
                f"{HAPROXY} maxconn 1\n timeout queue 300ms",
                *SAFELY_REPEATED,
                before=one_that_stays,
                says="HTTP 503",
            ),
            marks=guarantee("front-ends", "haproxy: 503, because `timeout queue` is over"),
        ),
        pytest.param(
            Row(
                "haproxy: the connection breaks in the middle of the response",
                HAPROXY,
                *DONE_AND_LOST,
                fault={**CUT_OFF, "times": 0},
                says="the response ended early",
            ),
            marks=guarantee("front-ends", "haproxy: the connection breaks in the middle of the response"),
        ),
        pytest.param(
            Row(
                "haproxy: it closes the connection instead of responding (`http-request reject`)",
                f"{HAPROXY}\n http-request reject",
                *SAFELY_REPEATED,
                says="connection closed without a response",
            )
        ),
        pytest.param(Row("squid: a service with http", "", *SERVED_ALL, "{service}", RIGHT)),
        pytest.param(Row("squid: a service with https (CONNECT)", tls("server"), *SERVED_ALL, HTTPS, RIGHT, TRUSTED)),
        pytest.param(
            Row(
                "squid: 407, because the proxy's credentials are wrong (http)",
                "",
                *REFUSED_ALL,
                "{service}",
                WRONG,
                says="Set extra 'proxy' of the connection to http://user:password@",
            ),
            marks=guarantee("front-ends", "squid: 407, because the proxy's credentials are wrong (http)"),
        ),
        pytest.param(
            Row(
                "squid: 407, because the proxy's credentials are wrong (CONNECT)",
                tls("server"),
                *REFUSED_ALL,
                HTTPS,
                WRONG,
                TRUSTED,
                says="Set extra 'proxy' of the connection to http://user:password@",
            )
        ),
        pytest.param(
            Row(
                "squid: 503, because the service is down (http)",
                "",
                *SAFELY_REPEATED,
                "http://127.0.0.1:{dead}",
                RIGHT,
                says="HTTP 503",
            )
        ),
        pytest.param(
            Row(
                "squid: 503, because the service is down (CONNECT)",
                "",
                *NEVER_SENT,
                "https://127.0.0.1:{dead}",
                RIGHT,
                says="the proxy answered HTTP 503 to CONNECT",
            )
        ),
    ],
    ids=lambda row: row.name,
)
def test_both_clients_do_what_the_docs_say(
    row: Row,
    programs: tuple[Nginx | Haproxy | None, Squid | None],
    emulator: Emulator,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert documented()[row.name] == [as_documented(row.delete), as_documented(row.upload), as_documented(row.link)]
    caplog.set_level(logging.DEBUG)
    front_end, squid = programs
    held = row.before(emulator, front_end.port if front_end else 0)
    if row.fault:
        emulator.fault(**row.fault)
    succeeded = []
    for client in CLIENTS:
        emulator.make_folder("old")
        before = counted(emulator)
        outcomes = client()
        done = counted(emulator) - before
        for operation, outcome in outcomes.items():
            expected: Ends = getattr(row, operation)
            assert_it_ends(outcome, expected, row.says, emulator.access_token)
            assert (done["requests", operation], done["effects", operation]) == (expected.arrived, expected.effects), operation
        succeeded += [source(client.__name__)] if outcomes["upload"] is None else []
    del held
    if front_end and row.log:
        eventually(lambda: row.log in front_end.logged())
    if row.upload.error is errors.OutcomeUnknownError:
        assert_each_client_sent_one_upload([program for program in programs if program])
    if squid and row.proxy == RIGHT:
        eventually(lambda: PROXY_LOGIN in {user for _, _, user in squid.requests()})
    for secret in (
        emulator.access_token,
        PROXY_PASSWORD,
        WRONG_PASSWORD,
        *(base64.b64encode(row.proxy.encode()).decode().split()),
    ):
        assert secret not in caplog.text
    if mark := request.node.get_closest_marker("guarantee"):
        assert mark.args[1] == row.name
        hand_in(request.getfixturevalue("proven"), emulator, succeeded)


def test_the_docs_list_no_other_behavior() -> None:
    [rows] = [mark.args[1] for mark in test_both_clients_do_what_the_docs_say.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert list(documented()) == [row.values[0].name for row in rows]


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

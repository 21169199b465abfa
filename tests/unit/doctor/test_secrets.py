"""No secret appears in what the program prints, at DEBUG, whatever the service repeats of it."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.raw_server import RawServer
from tests.unit.doctor.conftest import Doctor

TOKEN, LINK, SIGNATURE = "c4n4ry/acc3ss+t0ken=1", "c4n4ry/d0wnl0ad+t0ken", "c4n4ry/s1gnature+2"
USER, PASSWORD, PROXY = "user-of-the-source", "c4n4ry-p4ssw0rd+3", "c4n4ry-pr0xy+4"
SOURCE = f"http://{USER}:{quote(PASSWORD)}@source.example.com/f.csv?X-Amz-Signature={quote(SIGNATURE, safe='')}"
DEBUG = {"AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG"}

pytestmark = pytest.mark.slow  # make test-doctor


def forms(secret: str) -> list[str]:
    """A secret as it is, and as a service may encode it."""
    raw = secret.encode()
    in_base64 = base64.b64encode(raw).decode()
    all_escaped = "".join(f"%{byte:02x}" for byte in raw)
    return [secret, quote(secret), quote(secret, safe=""), in_base64, in_base64.replace("/", "_"), raw.hex(), all_escaped]


class Hostile:
    """A service behind a proxy that is one host with it; each response repeats a form of every secret."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.polls = 0

    def handle(self, server: RawServer, connection: socket.socket) -> None:
        while request := server.read_request(connection):
            self.requests.append(request.decode())
            connection.sendall(self.respond(request.decode()))

    def respond(self, request: str) -> bytes:
        number = len(self.requests) % 7
        repeated = [forms(secret)[number] for secret in (TOKEN, SIGNATURE, USER, PASSWORD, PROXY, SOURCE)]
        if self.polls > 3:  # before, nobody can know what will be a link
            repeated.append(forms(LINK)[number])
        said = f"No such file: {' '.join(repeated)} in {SOURCE if number % 2 else 'your account'}"
        names = {f"{one}_id": "x-1" for one in repeated} | {f"{one} token": "long-enough-1" for one in repeated}
        line = request.partition("\r\n")[0]
        head = [f"X-Repeated: {' '.join(repeated)}", f"ETag: {TOKEN}"]
        if "source.example.com" in line or "/download?download_token" in line:
            return http("200 OK", b"content", *head)
        if line.startswith("POST"):
            body = {**names, "file_id": repeated[0], "data": {**names, "file_id": repeated[0], "id": "f-1"}, "url": SOURCE}
            return http("200 OK", json.dumps(body).encode(), *head)
        self.polls += "f-1" in line
        if "f-1" in line and self.polls == 2:
            return http("503 Service Unavailable", json.dumps({"message": said}).encode(), *head, "Retry-After: 0")
        if "f-1" in line and self.polls > 3:
            url = f"http://files.example.com/download?download_token={quote(LINK, safe='')}"
            body = {**names, "link": {**names, "key": LINK}, "download_url": url, "response": said}
            return http("200 OK", json.dumps(body).encode(), *head)
        return http("200 OK", json.dumps({"status": "error", "response": said, **names}).encode(), *head)


def http(status: str, body: bytes, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]).encode() + body


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hostile]:
    service = Hostile()
    server = RawServer(service.handle)
    extra = {
        "proxy": f"http://{USER}:{quote(PROXY, safe='')}@127.0.0.1:{server.port}",
        "allow_http": True,
        "colour": "c4n4ry-of-an-unknown-extra",
        "download_url": f"http://files.example.com/download?api_key={quote(SIGNATURE)}&t={{token}}",
        "timeout": 10,
    }
    connection = {"conn_type": "cloudstore", "host": "http://files.example.com", "password": TOKEN, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
    yield service
    server.close()


def leaked(printed: str, *secrets: str) -> list[str]:
    """The forms of secrets in a text, without regard to case: percent-encoding has either."""
    every = {form for secret in secrets for form in forms(secret)} | {"c4n4ry"}
    return [form for form in every if form.lower() in printed.lower()]


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "table"])
def test_a_hostile_service_can_make_the_doctor_print_no_secret(hostile: Hostile, program: Doctor, *, as_json: bool) -> None:
    flags = ["--wrong-token", "--upload", "-", "--wait", "20", "--delete-folder", "old", "--yes", "--requests", "7"]
    done = program(*flags, given=SOURCE, as_json=as_json, **DEBUG)
    assert done.status == 1, done.err
    methods = {(request.split()[0], "f-1" in request.partition("\r\n")[0]) for request in hostile.requests}
    assert {("POST", False), ("GET", True)} <= methods, "it went as far as the link"
    assert any("download_token=" in request for request in hostile.requests), "it went as far as the download"
    assert leaked(done.out + done.err, TOKEN, LINK, SIGNATURE, PASSWORD, PROXY) == []
    assert "urllib3" in done.err or "connectionpool" in done.err, "the log is at DEBUG"
    if as_json:
        assert done.report["other_extras"] == ["colour", "download_url", "proxy"]
        assert done.report["extras"].keys() - done.report["proposed"].keys() == {"allow_http", "timeout"}


def test_a_friendly_service_neither(emulator: Emulator, program: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.call(lambda service: setattr(service, "access_token", TOKEN))
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
    emulator.make_folder("old")
    source = emulator.serve(b"content").replace("://", f"://{USER}:{quote(PASSWORD)}@") + f"?sig={quote(SIGNATURE, safe='')}"
    flags = ["--wrong-token", "--upload", "-", "--wait", "20", "--delete-folder", "old", "--yes", "--requests", "3"]
    done = program(*flags, given=source, **DEBUG)
    assert done.status == 0, done.out
    links = [token["token"] for token in emulator.state()["tokens"]]
    assert links
    assert leaked(done.out + done.err, TOKEN, SIGNATURE, PASSWORD, *links) == []

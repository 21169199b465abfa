"""A bucket of an S3 and a container of an Azure Blob Storage, alike: what tests put there and find there."""

from __future__ import annotations

import http.client
import logging
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import quote

from tests.wire.neighbours.servers import S3, Azurite

NAME = "staging"
REGION = "us-east-1"
FIRST, SECOND = "first", "second"
"""Two credentials for the same store."""


def _refusal(status: str, code: str, words: str, *headers: str) -> bytes:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{words}</Message></Error>'.encode()
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/xml", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Bucket(Protocol):
    """A bucket or container with the name ``NAME``, which the constructor creates."""

    scheme: str
    port: int
    refusal: bytes
    """The response to expired credentials."""

    def connection(self, endpoint: str, credential: str) -> dict[str, Any]:
        """The Airflow connection."""

    def marks(self, credential: str) -> bytes:
        """What is in the head of every request with this credential."""

    def fill(self, files: dict[str, bytes]) -> None:
        """Write objects without a client library: thousands of them."""

    def texts(self, prefix: str) -> list[str]:
        """The contents of all objects whose names begin so."""

    def buckets(self) -> list[str]:
        """The names of all buckets of the store."""


class S3Bucket:
    """A bucket of moto's S3, which does not check credentials."""

    scheme = "s3"
    refusal = _refusal("400 Bad Request", "ExpiredToken", "The provided token has expired.")

    def __init__(self, server: S3) -> None:
        import boto3

        self.port = server.port
        login = {"aws_access_key_id": "tests", "aws_secret_access_key": "testing"}
        self.client: Any = boto3.client("s3", endpoint_url=server.url, region_name=REGION, **login)
        self.client.create_bucket(Bucket=NAME)

    def connection(self, endpoint: str, credential: str) -> dict[str, Any]:
        extra = {"endpoint_url": endpoint, "region_name": REGION}
        return {"conn_type": "aws", "login": credential, "password": "testing", "extra": extra}

    def marks(self, credential: str) -> bytes:
        return f"Credential={credential}/".encode()

    def fill(self, files: dict[str, bytes]) -> None:
        _put(self.port, {f"/{NAME}/{name}": content for name, content in files.items()}, {})

    def texts(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=NAME, Prefix=prefix)
        keys = [one["Key"] for page in pages for one in page.get("Contents", ())]
        return [self.client.get_object(Bucket=NAME, Key=key)["Body"].read().decode() for key in keys]

    def buckets(self) -> list[str]:
        return [one["Name"] for one in self.client.list_buckets()["Buckets"]]


class AzureContainer:
    """A container of Azurite; a credential is a shared access signature with an expiry of its own."""

    scheme = "abfs"
    refusal = _refusal("403 Forbidden", "AuthenticationFailed", "Signature not valid.", "x-ms-error-code: AuthenticationFailed")

    def __init__(self, server: Azurite) -> None:
        from azure.storage.blob import AccountSasPermissions, BlobServiceClient, ResourceTypes, generate_account_sas

        logging.getLogger("azure").setLevel(logging.WARNING)  # thirty lines for each request
        self.port = server.port
        self.client: Any = BlobServiceClient.from_connection_string(server.connection_string)
        self.container = self.client.create_container(NAME)
        self._signatures = {
            credential: generate_account_sas(
                "devstoreaccount1",
                server.KEY,
                ResourceTypes(service=True, container=True, object=True),
                AccountSasPermissions(read=True, write=True, delete=True, list=True, add=True, create=True),
                datetime(year, 1, 1, tzinfo=UTC),
            )
            for credential, year in ((FIRST, 2041), (SECOND, 2042))
        }

    def connection(self, endpoint: str, credential: str) -> dict[str, Any]:
        account = f"BlobEndpoint={endpoint}/devstoreaccount1;AccountName=devstoreaccount1"
        return {
            "conn_type": "adls",
            "extra": {"connection_string": f"{account};SharedAccessSignature={self._signatures[credential]}"},
        }

    def marks(self, credential: str) -> bytes:
        return {FIRST: b"se=2041", SECOND: b"se=2042"}[credential]

    def fill(self, files: dict[str, bytes]) -> None:
        named = {f"/devstoreaccount1/{NAME}/{quote(name)}?{self._signatures[FIRST]}": content for name, content in files.items()}
        _put(self.port, named, {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2021-08-06"})

    def texts(self, prefix: str) -> list[str]:
        names = [blob.name for blob in self.container.list_blobs(name_starts_with=prefix)]
        return [self.container.download_blob(name).readall().decode() for name in names]

    def buckets(self) -> list[str]:
        return [one.name for one in self.client.list_containers()]


def _put(port: int, files: dict[str, bytes], headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for path, content in files.items():
        connection.request("PUT", path, content, headers)
        response = connection.getresponse()
        response.read()
        assert response.status in (200, 201), response.status
    connection.close()

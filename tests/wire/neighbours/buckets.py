"""A bucket of an S3 and a container of an Azure Blob Storage, alike: what tests put there and find there.

Each has a connection for everything, and a revocable one, whose credentials are refused from ``revoke()`` to ``restore()``.
"""

from __future__ import annotations

import http.client
import logging
from datetime import UTC, datetime
from typing import Any

from tests.wire.neighbours.servers import AZURITE_KEY, Neighbour

NAME = "staging"
_REGION = "us-east-1"
_ACCOUNT = "devstoreaccount1"


class S3Bucket:
    """A bucket of moto's S3."""

    scheme = "s3"

    def __init__(self, server: Neighbour) -> None:
        import boto3

        self.server = server
        login = {"aws_access_key_id": "tests", "aws_secret_access_key": "testing"}
        self.client: Any = boto3.client("s3", endpoint_url=server.url, region_name=_REGION, **login)
        self.client.create_bucket(Bucket=NAME)

    def connection(self) -> dict[str, Any]:
        extra = {"endpoint_url": self.server.url, "region_name": _REGION}
        return {"conn_type": "aws", "login": "tests", "password": "testing", "extra": extra}

    def revocable(self) -> dict[str, Any]:
        return self.connection()

    def revoke(self) -> None:
        self._accept_without_a_user(0)

    def restore(self) -> None:
        self._accept_without_a_user(1_000_000)

    def _accept_without_a_user(self, requests: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request("POST", "/moto-api/reset-auth", str(requests))
        assert connection.getresponse().status == 200
        connection.close()

    def put(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket=NAME, Key=name, Body=content)

    def contents(self) -> dict[str, bytes]:
        keys = [one["Key"] for one in self.client.list_objects_v2(Bucket=NAME).get("Contents", ())]
        return {key: self.client.get_object(Bucket=NAME, Key=key)["Body"].read() for key in keys}

    def buckets(self) -> list[str]:
        return [one["Name"] for one in self.client.list_buckets()["Buckets"]]


class AzureContainer:
    """A container of Azurite; an access policy makes a signature valid."""

    scheme = "abfs"

    def __init__(self, server: Neighbour) -> None:
        from azure.storage.blob import BlobServiceClient

        logging.getLogger("azure").setLevel(logging.WARNING)  # thirty lines for each request
        self.server, self._endpoint = server, f"{server.url}/{_ACCOUNT}"
        self.client: Any = BlobServiceClient(self._endpoint, {"account_name": _ACCOUNT, "account_key": AZURITE_KEY})
        self.container = self.client.create_container(NAME)
        self.restore()

    def connection(self) -> dict[str, Any]:
        return self._connection(f"AccountKey={AZURITE_KEY}")

    def revocable(self) -> dict[str, Any]:
        from azure.storage.blob import generate_container_sas

        return self._connection(f"SharedAccessSignature={generate_container_sas(_ACCOUNT, NAME, AZURITE_KEY, policy_id='tests')}")

    def _connection(self, credentials: str) -> dict[str, Any]:
        account = f"DefaultEndpointsProtocol=http;BlobEndpoint={self._endpoint};AccountName={_ACCOUNT};{credentials}"
        return {"conn_type": "adls", "extra": {"connection_string": account}}

    def revoke(self) -> None:
        self.container.set_container_access_policy({})

    def restore(self) -> None:
        from azure.storage.blob import AccessPolicy, ContainerSasPermissions

        everything = ContainerSasPermissions(read=True, write=True, delete=True, list=True, add=True, create=True)
        self.container.set_container_access_policy({"tests": AccessPolicy(everything, datetime(2041, 1, 1, tzinfo=UTC))})

    def put(self, name: str, content: bytes) -> None:
        self.container.upload_blob(name, content)

    def contents(self) -> dict[str, bytes]:
        return {name: self.container.download_blob(name).readall() for name in self.container.list_blob_names()}

    def buckets(self) -> list[str]:
        return [one.name for one in self.client.list_containers()]


Bucket = S3Bucket | AzureContainer

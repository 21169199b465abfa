"""A bucket of an S3 and a container of an Azure Blob Storage, alike: what tests put there and find there."""

from __future__ import annotations

import logging
from typing import Any

from tests.wire.neighbours.servers import Neighbour

_REGION = "us-east-1"
_ACCOUNT = "devstoreaccount1"
# Not a secret: every Azurite has this account.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class S3Bucket:
    """A bucket of moto's S3."""

    scheme = "s3"

    def __init__(self, server: Neighbour, name: str) -> None:
        import boto3

        self.server, self.name = server, name
        login = {"aws_access_key_id": "tests", "aws_secret_access_key": "testing"}
        self._client: Any = boto3.client("s3", endpoint_url=server.url, region_name=_REGION, **login)
        self._client.create_bucket(Bucket=name)

    def connection(self) -> dict[str, Any]:
        extra = {"endpoint_url": self.server.url, "region_name": _REGION}
        return {"conn_type": "aws", "login": "tests", "password": "testing", "extra": extra}

    def put(self, name: str, content: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=name, Body=content)

    def contents(self) -> dict[str, bytes]:
        keys = [one["Key"] for one in self._client.list_objects_v2(Bucket=self.name).get("Contents", ())]
        return {key: self._client.get_object(Bucket=self.name, Key=key)["Body"].read() for key in keys}


class AzureContainer:
    """A container of Azurite."""

    scheme = "abfs"

    def __init__(self, server: Neighbour, name: str) -> None:
        from azure.storage.blob import BlobServiceClient

        logging.getLogger("azure").setLevel(logging.WARNING)  # thirty lines for each request
        self.server, self.name, self._endpoint = server, name, f"{server.url}/{_ACCOUNT}"
        self._client: Any = BlobServiceClient(self._endpoint, {"account_name": _ACCOUNT, "account_key": _KEY})
        self._container = self._client.create_container(name)

    def connection(self) -> dict[str, Any]:
        account = f"DefaultEndpointsProtocol=http;BlobEndpoint={self._endpoint};AccountName={_ACCOUNT};AccountKey={_KEY}"
        return {"conn_type": "adls", "extra": {"connection_string": account}}

    def put(self, name: str, content: bytes) -> None:
        self._container.upload_blob(name, content)

    def contents(self) -> dict[str, bytes]:
        return {name: self._container.download_blob(name).readall() for name in self._container.list_blob_names()}


Bucket = S3Bucket | AzureContainer


def url_of(bucket: Bucket, name: str = "") -> str:
    """The URL of the bucket, or of another in the same store, with Airflow's connection to it."""
    return f"{bucket.scheme}://store_{bucket.scheme}@{name or bucket.name}"

"""Names files across systems: the asset URI of a file, and the namespace and name of a dataset in OpenLineage.

Two services, or two base paths of one host, never share a name: the base path is part of it, and a file id is one segment,
whatever characters it contains.
"""

from __future__ import annotations

from urllib.parse import SplitResult, quote, unquote_to_bytes, urlsplit, urlunsplit

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.guards import validate_file_id
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

SCHEME = "cloudstore"
_DEFAULT_PORTS = {"https": ":443", "http": ":80"}


def file_uri(base_url: str, file_id: str | int) -> str:
    """The asset URI of a file: ``cloudstore://HOST[:PORT]/BASE/PATH/FILE_ID``.

    :raises InvalidInputError: if the base URL or the id cannot be one.
    """
    base = urlsplit(base_url)
    if base.scheme not in _DEFAULT_PORTS or not base.netloc:
        raise InvalidInputError(f"base_url {bare_url(base_url)!r} must be a URL such as https://files.example.com")
    port = "" if base.port else _DEFAULT_PORTS[base.scheme]
    path = f"{base.path.rstrip('/')}/{path_segment(file_id)}"
    return urlunsplit(normalize(SplitResult(SCHEME, base.netloc + port, path, "", "")))


def path_segment(file_id: str | int) -> str:
    """A file id as one segment of a path, percent-encoded (RFC 3986 section 2.1): in URIs, dataset names and file names alike.

    :raises InvalidInputError: if it is no file id.
    """
    return quote(validate_file_id(file_id), safe="")


def normalize(uri: SplitResult) -> SplitResult:
    """The normal form of an asset URI, without user info, query and fragment.

    :raises InvalidInputError: if it has no host, or parsers disagree on where its user info ends.
    """
    try:
        parts = split_url(urlunsplit(uri))
    except AmbiguousUrlError as error:
        advice = "Set it to a URI such as cloudstore://files.example.com/file-id."
        raise InvalidInputError(f"a cloudstore asset URI {error}", advice=advice) from None
    authority = parts.netloc.rpartition("@")[2].lower().removesuffix(_DEFAULT_PORTS["https"])
    path = "/".join(quote(unquote_to_bytes(segment), safe="") for segment in parts.path.split("/"))
    return SplitResult(SCHEME, authority, path, "", "")


def dataset_of_url(url: str) -> tuple[str, str]:
    """OpenLineage's namespace and name of the dataset at a URL or an absolute path of this machine.

    It does not include user info, which in Airflow's paths is a connection id, or the query.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return "file", parts.path or url
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.removeprefix("/") or "/"


def bare_url(url: str) -> str:
    """A URL without user info, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

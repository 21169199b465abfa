"""Which certificates are trusted: those that ``requests`` would trust."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from airflow_provider_cloudstore.clients.tls import tls_context
from tests.support import settings


def test_the_same_certificates_are_trusted_as_with_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(bundle)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    assert tls_context(settings()).cert_store_stats()["x509_ca"] > 50
    assert tls_context(settings(verify=str(bundle))).cert_store_stats()["x509_ca"] == 1
    for name in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(bundle))
        assert tls_context(settings()).cert_store_stats()["x509_ca"] == 1
        monkeypatch.delenv(name)
    assert tls_context(settings(verify=str(tmp_path))).verify_mode.name == "CERT_REQUIRED"
    assert tls_context(settings(verify=False)).verify_mode.name == "CERT_NONE"

from __future__ import annotations

from airflow_provider_cloudstore.protocol.lineage import Lineage, of_batch, of_download, of_upload

BASE = "https://files.example.com/eu"


def test_an_upload_leads_from_its_source_to_its_file_and_names_no_credential() -> None:
    found = of_upload("ftp://user:hunter2@h/f?sig=hunter2", BASE, "a/b")
    assert found == Lineage(("ftp://h/f",), ("cloudstore://files.example.com/eu/a%2Fb",))
    assert of_upload("ftp://***@h/f?***", BASE, None) == Lineage(("ftp://h/f",), ())


def test_a_batch_leads_from_its_manifest_to_its_receipts() -> None:
    assert of_batch("s3://my_conn@bucket/urls.csv", "/data/receipts") == Lineage(("s3://bucket/urls.csv",), ("/data/receipts",))
    assert of_batch(None, None) == Lineage()


def test_a_download_leads_from_its_file_to_its_target() -> None:
    assert of_download(BASE, "f1", "s3://my_conn@bucket/f") == Lineage(
        ("cloudstore://files.example.com/eu/f1",), ("s3://bucket/f",)
    )

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cloudstore.compat import ObjectStoragePath
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.stores import atomic_write, resolve_target


@pytest.mark.parametrize("path", ["s3://KEY:hunt@e/r2@bucket/x", "s3://:hunter2@bucket/x", "s3://KEY:hunter2@bucket/a@b"])
def test_a_path_with_credentials_is_refused_and_not_repeated(path: str) -> None:
    with pytest.raises(InvalidInputError, match=r"target holds a user and a password.*\n.*s3://conn_id@bucket/") as refused:
        resolve_target(path, "f1")
    assert "hunt" not in f"{refused.value} {vars(refused.value)}"


@pytest.mark.parametrize("path", ["nowhere://conn@bucket/a:b@c", "nowhere://conn@namenode:8020/a@b:c", "nowhere://h/a:b@c"])
def test_a_connection_a_port_and_a_key_with_signs_are_no_credentials(path: str) -> None:
    with pytest.raises(InvalidInputError, match="no filesystem is installed for 'nowhere'"):
        resolve_target(path, "f1")


def test_the_home_folder_is_meant_by_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path, text = resolve_target("~/folder/", "f")
    assert (str(path), text) == (f"{tmp_path}/folder/f", f"{tmp_path}/folder/f")


@pytest.mark.parametrize("file_id", ["../../x", "/etc/passwd", "C:\\x", "~root", "文" * 28, "%2e%2e", "*[x]{y}", "a://b"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_target_that_is_a_folder_gets_the_id_as_one_name_in_it(tmp_path: Path, file_id: str, scheme: str) -> None:
    path, text = resolve_target(f"{scheme}{tmp_path}/in/", file_id)
    with atomic_write(path) as file:
        file.write(b"new")
    assert ObjectStoragePath(text).read_bytes() == b"new"
    assert [str(one.parent.relative_to(tmp_path)) for one in tmp_path.rglob("*")] == [".", "in"]


@pytest.mark.parametrize("file_id", ["..", "x" * 256, "a\nb"])
def test_an_id_that_can_be_no_name_needs_a_target_that_names_the_file(tmp_path: Path, file_id: str) -> None:
    with pytest.raises((InvalidInputError, OSError)), atomic_write(resolve_target(f"{tmp_path}/", file_id)[0]):
        pass
    assert [*tmp_path.iterdir()] == []

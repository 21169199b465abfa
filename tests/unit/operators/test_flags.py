"""``retry_unknown_outcome="no"`` would be true in Python, and resend uploads that may have arrived."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator, RemoteUrlUploadOperator


@pytest.mark.parametrize("value", ["no", "false", 1, None])
def test_opting_in_to_resending_takes_a_bool(value: Any) -> None:
    for kind, source in ((RemoteUrlUploadOperator, {"url": "https://h/f"}), (RemoteUrlBatchUploadOperator, {"urls": []})):
        more: dict[str, Any] = {"receipts": None} if kind is RemoteUrlBatchUploadOperator else {}
        with pytest.raises(ValueError, match="retry_unknown_outcome must be True or False"):
            kind(task_id="t", retry_unknown_outcome=value, **source, **more)

"""The cloud file storage service on loopback, for demos, tests and users' own DAG tests.

It does real work: it fetches the remote URL, keeps the bytes in memory, issues random tokens that expire, serves the file for a
token, and deletes a folder with everything in it. ``python -m airflow_provider_cloudstore.emulator`` runs it as a program,
:class:`airflow_provider_cloudstore.emulator.runner.Emulator` inside a test, and
:mod:`airflow_provider_cloudstore.emulator.fixtures` as a pytest fixture.

The API document shows requests only. Everything below is an **assumption** of this emulator; a real service may differ:

- all responses, and the status of each error: 400 for a missing field, 401 for a wrong token, 404 for an unknown id, 405 for a
  wrong method;
- uploads land in the folder ``staging``, which exists from the start and is created again when needed;
- the response to an upload contains the id of the future file, and a link to it can be created once it is fetched;
- the download address, and that it responds to an expired or unknown token with 403;
- deleting a folder also revokes the tokens of its files and drops its queued uploads.
"""

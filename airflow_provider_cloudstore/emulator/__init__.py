"""The cloud file storage service on loopback, for demos, tests and users' own DAG tests.

It does the real work: it fetches the remote URL, stores the bytes on disk, mints random tokens that end, serves the file for a
token, and deletes a folder with everything in it. ``python -m airflow_provider_cloudstore.emulator`` runs it as a program,
:class:`airflow_provider_cloudstore.emulator.runner.Emulator` inside a test, and
:mod:`airflow_provider_cloudstore.emulator.fixtures` as a pytest fixture.

The API document shows requests only. Everything below is an **assumption** of this emulator; a real service may differ:

- every answer, in the three shapes that such services use (``--answers envelope|plain|text``), and every error's status:
  400 for a missing field, 401 for a wrong token, 404 for an unknown id, 405 for a wrong method;
- that an upload lands in one folder named by an option, which is there from the start and is made anew when needed;
- that the answer to an upload names the id of the file to be, and that a link for it can be made once it is fetched;
- the download address, and that a token that ended or is unknown gets 403 there;
- that deleting a folder also ends the tokens of its files and drops its queued uploads.
"""

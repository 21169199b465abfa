"""The cloud file storage service on loopback, for demos, tests and users' own DAG tests.

It does real work: it fetches the remote URL, keeps the bytes in memory, issues random tokens that expire, serves the file for a
token, and deletes a folder. It answers as one of two services, ``api_v2.py`` or ``yetishare.py``; ``docs/reference/emulator.md``
says what each assumes.
"""

"""Very many remote uploads in one task: read as a stream, sent at once, resumed where they stopped. It knows no Airflow."""

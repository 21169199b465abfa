"""``python -m airflow_provider_cloudstore.doctor``, which works on every Airflow."""

from airflow_provider_cloudstore.doctor.command import main

if __name__ == "__main__":
    main()

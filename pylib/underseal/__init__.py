"""Held operations and sealed executions for the Postgres you already run."""

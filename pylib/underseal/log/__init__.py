"""Executions and their logs: starting, looking, writing as a driver, following, verifying."""

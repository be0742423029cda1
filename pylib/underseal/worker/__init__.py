"""The worker: approved operations, flows, schedules and sweeps, side by side in one process."""

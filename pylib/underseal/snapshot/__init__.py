"""Snapshots, where replay may begin instead of at the beginning, and content stored by its hash."""

"""What is measured, and how: `python -m bench` (docs/benchmarks.md)."""

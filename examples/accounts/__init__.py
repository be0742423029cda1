"""A small service with a database of its own, on which Underseal is installed."""

"""The inbox of an execution: sending to it, and delivering from it as a driver."""

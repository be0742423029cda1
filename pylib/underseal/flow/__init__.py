"""Durable flows: code whose every outside effect is recorded, and which goes on from its log after any crash."""

"""Held operations: requests that wait for somebody else's approval, and then run once, as the requester."""

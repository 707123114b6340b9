"""Caps, quiet hours, paces and suppressions on Redis, shared by every process."""

"""Recurring rules on Redis."""

"""Sender 2.0: notifications in batches with a verdict, throttled and sent to push providers."""

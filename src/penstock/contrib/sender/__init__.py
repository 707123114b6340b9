"""Sender 2.0: notifications in batches with a verdict, throttled and handed to push providers."""

"""Waiting rooms on Redis, in the keys of the Dispatcher."""

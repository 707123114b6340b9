"""The Dispatcher: waiting rooms that other programs write to Redis."""

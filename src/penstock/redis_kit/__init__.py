"""One way to call Redis, for everything that does: stores, waiting rooms, the stream sink."""

"""Redis access for stores, waiting rooms and the stream sink."""

"""Penstock against its peers: the same messages, the same handler, the same two cores."""

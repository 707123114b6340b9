"""One file a source: where messages are taken from."""

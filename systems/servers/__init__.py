"""Real servers of our own: loopback, free ports, a temporary folder. The tests use them too."""

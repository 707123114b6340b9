"""The five systems that Penstock replaces, each whole by one command: `python -m systems`."""

"""Sources of messages, one file per driver."""

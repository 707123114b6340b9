"""Lists, counts and forecasts of messages."""

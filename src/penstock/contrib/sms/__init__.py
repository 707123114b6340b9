"""The SMS system: a producer, any number of senders, and exact figures."""

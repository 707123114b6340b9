"""The SMS system: a producer, any number of senders, and figures that are exact."""

"""How to reach a broker: its address, TLS and credentials, shared by its sink and its source."""

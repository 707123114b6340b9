"""Connections to brokers: address, TLS and credentials, shared by a broker's sink and source."""

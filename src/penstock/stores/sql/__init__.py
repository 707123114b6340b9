"""Shared by SQLite and PostgreSQL: schema, named statements, and steps over a transaction."""

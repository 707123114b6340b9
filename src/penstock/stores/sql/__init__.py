"""What SQLite and PostgreSQL share: schema, named statements, and steps over a transaction."""

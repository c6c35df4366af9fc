"""The migrations of a history database, for Alembic."""

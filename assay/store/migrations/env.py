"""What Alembic runs: migrations inside the transaction of the connection that it is given."""

from alembic import context

from assay.store.history_tables import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
)
context.run_migrations()

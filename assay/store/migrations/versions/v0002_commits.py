"""Runs know the commit that they tested."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column, empty for the runs that are there."""
    op.add_column("assay_runs", sa.Column("commit", sa.Text))

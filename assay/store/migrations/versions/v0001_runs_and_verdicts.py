"""The first tables: runs, series, toolchains, reasons and verdicts."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "assay_runs",
        _number(),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("started_at", sa.DateTime, nullable=False),
        sa.Column("lines", sa.Integer, nullable=False),
        sa.Column("nbytes", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_table(
        "assay_series",
        _number(),
        _digest(),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("variant", sa.Text, nullable=False),
        sa.Column("claim", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("unit", sa.String(16), nullable=False),
    )
    for name, content in (("toolchains", "versions"), ("reasons", "reason")):
        op.create_table(
            f"assay_{name}",
            _number(),
            _digest(),
            sa.Column(content, sa.Text, nullable=False),
        )
    op.create_table(
        "assay_verdicts",
        sa.Column("series_id", sa.Integer, sa.ForeignKey("assay_series.id"), primary_key=True),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("assay_runs.id"), primary_key=True),
        sa.Column("line", sa.Integer, primary_key=True),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("measured", sa.Double),
        sa.Column("limit", sa.Double),
        sa.Column("toolchain_id", sa.Integer, sa.ForeignKey("assay_toolchains.id"), nullable=False),
        sa.Column("reason_id", sa.Integer, sa.ForeignKey("assay_reasons.id")),
        sqlite_with_rowid=False,
    )


def _number() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, primary_key=True)


def _digest() -> sa.Column[str]:
    return sa.Column("digest", sa.String(64), nullable=False, unique=True)

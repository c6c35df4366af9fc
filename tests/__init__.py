"""What Assay itself must keep."""

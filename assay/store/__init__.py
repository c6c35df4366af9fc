"""What is kept on disk: evidence, records, accepted numbers; only this room writes files."""

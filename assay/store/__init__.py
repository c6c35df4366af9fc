"""What is kept on disk: evidence of a run, records, accepted numbers; nothing else touches files."""

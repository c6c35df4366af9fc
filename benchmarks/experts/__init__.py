"""Programs, and versions of them that an expert writes to save memory."""

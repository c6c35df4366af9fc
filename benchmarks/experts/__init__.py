"""Programs, and the versions of them that an expert writes to save memory."""

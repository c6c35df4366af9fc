"""The repository's own pytest configuration; the plugin itself comes with the package."""

"""memsafe and other projects that save memory, compared on the same programs."""

"""memsafe beside what other projects do against memory, on the same programs."""

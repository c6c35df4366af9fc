"""A run spread over the machines of a Ray cluster; only ``cluster`` imports Ray."""

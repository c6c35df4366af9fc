"""A sharded training step sends each layer as often as it says, on every target."""

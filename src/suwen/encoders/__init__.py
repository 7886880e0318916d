"""The space contract and the encoders of a pair. No index."""

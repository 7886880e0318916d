"""The retriever: an engine joined with the encoders of a pair."""

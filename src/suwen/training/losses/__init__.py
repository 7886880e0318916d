"""The losses, one per file, each computed from embeddings or scores; no models, batches or optimisers live here."""

"""Training: recipes of stages that make a document encoder, the query encoders aligned to it, and the pair to ship."""

"""The query encoders that are trained: shapes, starts, tokenizers."""

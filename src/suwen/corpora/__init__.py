"""Documents on disk: records, readers of public formats, collections, passages. No encoding."""

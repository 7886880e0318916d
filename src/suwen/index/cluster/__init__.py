"""The cluster engine: PostgreSQL is the truth, a searcher beside or inside it is derived. Any number of readers."""

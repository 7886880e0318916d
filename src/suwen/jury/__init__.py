"""Benchmarks by LLM judges: pooling, judging, votes, consensus, agreement, expert review, audits, reports."""

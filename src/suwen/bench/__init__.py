"""Evaluating retrievers: metrics, suites, published numbers, the runner. Knows nothing of training."""

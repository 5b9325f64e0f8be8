"""Benchmarks: measurements against plain Spark and other peers."""

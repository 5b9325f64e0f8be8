"""Spark: the only package, besides the benchmarks, that imports PySpark."""

"""Queries over current values: the last row of each key, exact at every tick or deferred."""

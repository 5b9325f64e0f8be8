"""Benchmarks: seeded workloads through the real pipeline, peers beside it in the same run.

``slackwater bench NAME`` measures, ``python -m slackwater.benchmarks.figures`` draws what was measured.
"""

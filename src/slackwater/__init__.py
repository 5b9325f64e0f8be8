"""Slackwater: standing queries over streams, run on Spark."""

__version__ = "0.1.0"

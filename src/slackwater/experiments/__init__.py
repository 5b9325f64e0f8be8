"""The papers' experiments run again on the real pipeline: ``slackwater reproduce NAME``."""

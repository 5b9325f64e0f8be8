"""Alerts while a run goes on: which are raised, what is owed to webhooks, and how it gets there."""

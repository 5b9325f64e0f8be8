"""The query language: parsing SQL text into typed, checked queries."""

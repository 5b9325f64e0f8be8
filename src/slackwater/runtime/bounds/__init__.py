"""Queries under PRECISION: what the coordinator believes, what follows from it, and what it grants."""

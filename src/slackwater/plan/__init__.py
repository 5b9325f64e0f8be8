"""Query plans: what is to be computed, apart from how it is run."""

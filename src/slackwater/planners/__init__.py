"""Planners: from a plan and statistics to the work that is shared and the work that is not."""

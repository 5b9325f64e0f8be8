"""Statistics of streams and tables that the planners base their choices on."""

"""The runtime: runs planned queries, keeps their state and delivers their answers."""

"""What people and programs see of a run: an HTTP API, metrics, and a page that shows it."""

"""What a person sees in a terminal: the live view, a run of a file, the demo."""

"""The reference: a slow, plain evaluation of the language that other results are checked against."""

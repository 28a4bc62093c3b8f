"""Builds data sets from a person's own pictures."""

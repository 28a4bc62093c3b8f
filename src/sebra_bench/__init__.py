"""Reproduces the paper and measures the product: a plug-in of `sebra`, which never imports it."""

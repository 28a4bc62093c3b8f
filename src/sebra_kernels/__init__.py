"""Copies of networks that compute the same faster on NVIDIA GPUs; a plug-in of `sebra`."""

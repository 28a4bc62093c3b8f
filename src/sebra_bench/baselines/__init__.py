"""Published methods to compare with, as plug-ins of `sebra debias --method`."""

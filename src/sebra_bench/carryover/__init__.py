"""One setting on many data sets: what it costs where nothing is wrong, what it gains elsewhere."""

"""Published data sets, as plug-ins of DATA (`NAME:PATH`)."""

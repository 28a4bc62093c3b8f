"""Methods × seeds on one data set after another: what to run, rows on disk, tables, studies."""

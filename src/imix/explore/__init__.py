"""Data exploration with features: groups, neighbors, duplicates, outliers, what to label next, and label errors."""

"""Questions that features answer: groups, neighbors, duplicates, outliers, what to label, and wrong labels."""

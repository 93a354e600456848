"""Questions that features answer without labels: groups, neighbors, duplicates, outliers, what to label, wrong labels."""

"""Measurements of a frozen encoder: features, linear and kNN classifiers, pseudoinverse, FED."""

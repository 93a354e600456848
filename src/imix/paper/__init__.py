"""Every table and figure of the paper as data: what to run, and what the paper got.

recipes      the settings behind its numbers, by data set
tables       tables 1 to 4 and C.1 to C.3, and the classifiers that the text quotes
figures      figures 2, 3 and C.1
reproduce    runs them: `imix reproduce`
"""

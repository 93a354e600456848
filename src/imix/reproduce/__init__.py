"""The paper's tables and figures as data, and the runner that reproduces them.

experiment      data model: experiments, cells, training runs, the paper's numbers, points the paper leaves open
recipes         training runs with the paper's settings for each data set, and shorter ones
tables          tables 1 to 4 and C.1 to C.3, and the classifiers quoted in the text
figures         figures 2, 3 and C.1
requests        selects the cells that a command requests
jobs            the training runs that they need, which of them remain, and their cost
plan            prints or writes what would be run, without running it
fake_data       tiny data for the smoke test
worker          runs one job: a training run and its measurements
parallel        runs many jobs, one process per device
results         result files (CSV) and means over seeds
page            paper and reproduction side by side: Markdown, SVG
runner          reproduce(), which uses everything above
"""

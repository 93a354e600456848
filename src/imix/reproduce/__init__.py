"""The paper's tables and figures as data, and the runner that reproduces them.

datasets        facts about the paper's data sets
experiment      data model: experiments, cells, training runs, the paper's numbers
recipes         training runs with the paper's settings for each data set, and shorter ones
tables          tables 1 to 4 and C.1 to C.3, and the classifiers quoted in the text
figures         figures 2, 3 and C.1
ambiguities     points the paper leaves open
requests        selects the cells that a command requests
jobs            the training runs that they need, which of them remain, and their cost
fake_data       tiny data for the smoke test
worker          runs one job: a training run and its measurements
parallel        runs many jobs, one process per device
results         result files (CSV) and means over seeds
page, line_chart    paper and reproduction side by side: HTML, Markdown, SVG
runner          reproduce(), which uses everything above
listing, as_commands, slurm     print or write what would be run, without running it
"""

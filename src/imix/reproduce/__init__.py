"""The paper's tables and figures as data, and the runner that reproduces them.

datasets        facts about the paper's data sets
experiment      data model: experiments, cells, trainings, the paper's numbers
recipes         trainings with the paper's settings for each data set, and shorter ones
tables          tables 1 to 4 and C.1 to C.3, and the classifiers quoted in the text
figures         figures 2, 3 and C.1
ambiguities     points the paper leaves open
requests        which cells a command asks for
jobs            the trainings behind them, which of them remain, and what they cost
fake_data       tiny data for the smoke test
worker          runs one training and its measurements
parallel        runs many jobs, one process per device
results         result files (CSV) and means over seeds
page, line_chart    paper and reproduction side by side: HTML, Markdown, SVG
runner          reproduce(): everything above
listing, as_commands, slurm     print or write what would be run, without running it
"""

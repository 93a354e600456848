"""Every table and figure of the paper as data: what to run, and what the paper got.

experiment      what a table or figure is made of: cells, trainings, numbers
recipes         the settings behind the numbers, by data set, and shorter ones
tables          tables 1 to 4 and C.1 to C.3, and the classifiers that the text quotes
figures         figures 2, 3 and C.1
switches        what the paper leaves open
budget          which trainings a command asks for, and which are left
stand_in        tiny data for the smoke test
work            one training and its measurements
processes       many of them, one process for each device
results         what was found, in files; `page` and `lines` show it beside the paper
reproduce       all of it; `listing`, `spelled_out` and `cluster` only tell
command         `imix reproduce`
"""

"""All tables and figures, by name."""

from imix.paper.experiment import Experiment
from imix.paper.figures import FIGURES
from imix.paper.tables import TABLES

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (*TABLES, *FIGURES)}

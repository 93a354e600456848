"""HTML reports that compare runs, and 2-D maps of their features."""

from imix.reports.groups import RunGroup
from imix.reports.maps import draw_map
from imix.reports.page import write_report
from imix.reports.run_report import report

__all__ = ["RunGroup", "draw_map", "report", "write_report"]

"""HTML reports that compare runs, and 2-D maps of their features."""

from imix.reports.groups import RunGroup
from imix.reports.maps import draw_map
from imix.reports.page import report, write_report

__all__ = ["RunGroup", "draw_map", "report", "write_report"]

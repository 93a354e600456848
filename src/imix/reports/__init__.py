"""`imix.report`: one run or many on one self-contained page that works offline; maps; tables of transfer."""

from imix.reports.arms import Arm
from imix.reports.maps import draw_map
from imix.reports.page import report, write_report
from imix.reports.transfers import transfer

__all__ = ["Arm", "draw_map", "report", "transfer", "write_report"]

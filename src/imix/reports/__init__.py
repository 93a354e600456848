"""`imix.report`: one run or many on one self-contained page that works offline; maps; tables of transfer."""

from imix.reports.arms import Arm
from imix.reports.matrix import transfer
from imix.reports.page import report, write_report

__all__ = ["Arm", "report", "transfer", "write_report"]

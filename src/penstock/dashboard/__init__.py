"""The page at `/`: hand-written ES modules, and uPlot's files as published."""

from penstock.dashboard.files import INDEX, PageFile, dashboard_file

__all__ = ["INDEX", "PageFile", "dashboard_file"]

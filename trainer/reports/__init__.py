"""Pictures and pages of runs: learning curves over seeds, final tables, one HTML file for a team.

    from trainer.reports import plot_runs, write_report

    plot_runs(["runs/ppo-0", "runs/ppo-1", "runs/dqn-0"], file="curves.png")
    write_report(["runs/ppo-0", "runs/ppo-1"], "report.html")

Drawing needs matplotlib and pages need Jinja: `pip install "local-trainer[plot]"`.
"""

from trainer.errors import ReportError
from trainer.reports.curves import Curve, Summary, curve_of, grouped, summary_of
from trainer.reports.figures import plot_runs
from trainer.reports.page import write_report
from trainer.reports.run_records import Run, find_runs, read_run

__all__ = [
    "Curve",
    "ReportError",
    "Run",
    "Summary",
    "curve_of",
    "find_runs",
    "grouped",
    "plot_runs",
    "read_run",
    "summary_of",
    "write_report",
]

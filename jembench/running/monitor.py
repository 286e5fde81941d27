"""Who is told of a run's progress. Imports no torch, so that showing a finished run is quick."""

from __future__ import annotations

from jembench.experiment.plan import CellPlan, FitPlan


class Monitor:
    """Told of what happens. This one keeps silent; the command line's shows it."""

    def fit_started(self, fit: FitPlan) -> None:
        """Training begins, or goes on."""

    def training(self, done: int, total: int, note: str) -> None:
        """So many of all iterations are done."""

    def drawing(self, fit: FitPlan) -> None:
        """The model's own images are being drawn, which may take as long as a metric."""

    def cell_started(self, cell: CellPlan) -> None:
        """A metric is being computed."""

    def measuring(self, cell: CellPlan, done: int, total: int) -> None:
        """A metric that takes long has done so many of its images."""

    def waiting(self, fit: FitPlan) -> None:
        """Another process works on the fit. Told again at each look."""

    def trouble(self, fit: FitPlan, text: str) -> None:
        """Something beside the cells went wrong, which no outcome tells of."""

    def fit_finished(self, fit: FitPlan) -> None:
        """All cells of the fit have outcomes."""

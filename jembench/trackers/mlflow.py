"""Runs of MLflow."""

import re
import time
from typing import Any

from jembench.trackers.base import About, Numbers


class MLflowRun:
    """A run of an experiment, which a resumed fit continues.

    Args:
        uri: of the tracking server or database; "": MLflow's default.
        experiment: the name of the experiment, which is created if it does not exist.
        name: of the run.
        about: the parameters of the run, which is identified by ``id`` and ``attempt``.
    """

    def __init__(self, uri: str, experiment: str, name: str, about: About) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client: Any = MlflowClient(uri or None)
        stored = self._client.get_experiment_by_name(experiment)
        place = stored.experiment_id if stored else self._client.create_experiment(experiment)
        tags = {"jembench_id": about["id"], "jembench_attempt": about["attempt"]}
        same = " and ".join(f"tags.{tag} = '{value}'" for tag, value in tags.items())
        runs = self._client.search_runs([place], same, max_results=1)
        if runs:
            self._id = runs[0].info.run_id
            self._client.update_run(self._id, "RUNNING")
            return
        self._id = self._client.create_run(place, run_name=name, tags=tags).info.run_id
        params = [Param(key, value[:500]) for key, value in about.items()]
        self._client.log_batch(self._id, params=params)

    def numbers(self, values: Numbers, iteration: int) -> None:
        """Log metrics."""
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        metrics = [Metric(_key(name), value, now, iteration) for name, value in values.items()]
        self._client.log_batch(self._id, metrics)

    results = numbers

    def text(self, name: str, text: str, iteration: int) -> None:
        """Log a text file."""
        file = f"{_key(name)}-{iteration}.txt".replace("/", "-")
        self._client.log_text(self._id, text, file)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._id)


def _key(name: str) -> str:
    """Replace the characters that MLflow does not allow."""
    return re.sub(r"[^\w\-. /]", "_", name)

"""Runs of MLflow."""

import re
import time
from collections.abc import Mapping
from typing import Any


class MLflowRun:
    """A run of an experiment, which a resumed fit continues.

    Args:
        uri: of the tracking server or database; "": MLflow's default.
        experiment: the name of the experiment, which is created if it does not exist.
        name: of the run.
        about: the parameters of the run, which is identified by ``id`` and ``attempt``.
    """

    def __init__(self, uri: str, experiment: str, name: str, about: Mapping[str, str]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client: Any = MlflowClient(uri or None)
        stored = self._client.get_experiment_by_name(experiment)
        place = stored.experiment_id if stored else self._client.create_experiment(experiment)
        same = (
            f"tags.jembench_id = '{about['id']}' and tags.jembench_attempt = '{about['attempt']}'"
        )
        runs = self._client.search_runs([place], same, max_results=1)
        if runs:
            self._id = runs[0].info.run_id
            self._client.update_run(self._id, "RUNNING")
            return
        tags = {"jembench_id": about["id"], "jembench_attempt": about["attempt"]}
        self._id = self._client.create_run(place, run_name=name, tags=tags).info.run_id
        self._client.log_batch(
            self._id, params=[Param(key, value[:500]) for key, value in about.items()]
        )

    def numbers(self, values: Mapping[str, float], iteration: int) -> None:
        """Log metrics."""
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        self._client.log_batch(
            self._id, [Metric(_key(name), value, now, iteration) for name, value in values.items()]
        )

    results = numbers

    def text(self, name: str, text: str, iteration: int) -> None:
        """Log a text file."""
        self._client.log_text(self._id, text, f"{_key(name)}-{iteration}.txt".replace("/", "-"))

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._id)


def _key(name: str) -> str:
    """Replace the characters of a name that MLflow does not allow."""
    return re.sub(r"[^\w\-. /]", "_", name)

"""The functions that the iterations of a training call, compiled where that is faster."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from jembench.experiment.recipe import Recipe
from jembench.interfaces import DataSpec, Phase
from jembench.models import devices, execution
from jembench.models.energies import LogitModel, grad_energy, logits_function
from jembench.models.objective import has_batch_norm
from jembench.sampling.graph import ChainGraph


class Functions:
    """The losses of the phases, and dE/dx for chains.

    Args:
        model: its weights are converted to the memory layout of the execution.
        phases: the turns of an iteration.
        data: the description of the images.
        recipe: how to train.
        device: of the model.
        chains: whether chains draw samples.
        precision: of the checkpoint, if there is one.

    Attributes:
        execution: the choices of execution.
        given_up: the reasons why functions could not be compiled.
        losses: the loss of each phase.
        pass_first: computes the logits of the data before chains are run; None: not needed.
        grad_energy: of chains.
        graph: the CUDA graph of a chain; None: chains are run step by step.
    """

    def __init__(
        self,
        model: Any,
        phases: Mapping[str, Phase],
        data: DataSpec,
        recipe: Recipe,
        device: torch.device,
        *,
        chains: bool,
        precision: str = "",
    ) -> None:
        compute = dataclasses.asdict(recipe.compute)
        if precision:
            compute["precision"] = precision
        self.execution = devices.execution(data, device, **compute)
        if self.execution.channels_last:
            converted = execution.to_channels_last(model, data)
            self.execution = dataclasses.replace(self.execution, channels_last=converted)
        self._device = device
        self.given_up: list[str] = []
        self.losses = {name: phase.loss for name, phase in phases.items()}
        self.pass_first = None
        if _passes_data_first(model, recipe):
            self.pass_first = logits_function(model, data.num_classes)
        if self.execution.compiled:
            self._compile(model)
        self.graph = None
        if chains:
            self.grad_energy = grad_energy(model, self.execution, self.given_up, of_chains=True)
            if self.execution.captured:
                self.graph = ChainGraph(model)

    def _compile(self, model: Any) -> None:
        execution.forget_compiled()  # functions of earlier networks
        if getattr(model, "compiles", True):
            for name, loss in self.losses.items():
                self.losses[name] = execution.compiled(loss, self.given_up)
        else:
            self.given_up.append("the model says that its loss cannot be compiled")
        # as the chains are: they write to running statistics that a plain pass would keep
        if self.pass_first:
            self.pass_first = execution.compiled(self.pass_first, self.given_up, captured=False)

    @property
    def computed(self) -> dict[str, Any]:
        """The execution of the iterations so far, for the record.

        The record has precision, layout, compilation and algorithms.
        """
        layout, not_captured = "contiguous", list[str]()
        if self.execution.channels_last:
            layout = "channels_last"
        if self.graph:
            not_captured += self.graph.given_up
        return {
            "precision": self.execution.precision,
            "layout": layout,
            "compiled": self.execution.compiled and not self.given_up,
            "not_compiled": list(self.given_up),
            "captured": self.graph is not None and not not_captured,
            "not_captured": not_captured,
            # the fastest algorithms may differ from run to run, and with them the bits of results
            "cudnn_benchmark": self._device.type == "cuda" and torch.backends.cudnn.benchmark,
        }


def _passes_data_first(model: Any, recipe: Recipe) -> bool:
    """Return whether the data of p(x) pass before the chains are run.

    The data pass first where data and chains both change the running statistics of batch norm, as
    in the code of JEM++ and SADA-JEM.
    """
    marginal = isinstance(model, LogitModel) and model.chains == "marginal"
    separate = recipe.chains.mode == "train" and not recipe.data.shared
    return marginal and separate and has_batch_norm(model)

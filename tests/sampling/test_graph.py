"""A chain as one CUDA graph, on a GPU that is not there: the same numbers as step by step, or a
fallback.
"""

import copy

import pytest
import torch
from fake_gpu import GPU, FakeGenerator, fake_gpu
from fake_graph import fake_graphs
from torch import nn

from jembench.errors import Fallback
from jembench.interfaces import ChainState, DataSpec
from jembench.models.energies import LogitModel, grad_energy
from jembench.sampling import chain
from jembench.sampling.graph import WARM_UP, ChainGraph
from jembench.sampling.pcd import PersistentChains
from jembench.sampling.sgld import Langevin

DATA = DataSpec(name="toy", shape=(1, 4, 4), num_classes=2)


@pytest.fixture
def gpu():
    with fake_gpu() as device, fake_graphs(device):
        yield device


def seeded(seed=0):
    return FakeGenerator().manual_seed(seed)


def make_model(*extra):
    torch.manual_seed(0)
    return LogitModel(
        nn.Sequential(nn.Conv2d(1, 3, 3), *extra, nn.SiLU(), nn.Flatten(), nn.Linear(12, 2))
    ).to(GPU)


class Pair:
    """The same chains twice: with a graph and without."""

    def __init__(self, model=None, sampler=PersistentChains):
        self.models = [model or make_model()]
        self.models.append(copy.deepcopy(self.models[0]))
        langevin = Langevin(steps=3, step_size=0.5, noise=0.1, clip=1, bounds=(-1, 1))
        self.samplers = [sampler(DATA, langevin, buffer_size=20, reinit=0.3) for _ in range(2)]
        self.generators = [seeded(), seeded()]
        self.gradients = [grad_energy(model) for model in self.models]
        self.graph = ChainGraph(self.models[0])

    def draw(self, n=5, y=None, steps=None):
        """Both are equal, in the ends, what is kept and how far the generators have come."""
        y = None if y is None else torch.tensor(y, device=GPU)
        ends = []
        for i, run in enumerate((self.graph.run, chain.run)):
            state = self.samplers[i].init(n, y, generator=self.generators[i])
            ends.append(run(self.samplers[i], state, self.gradients[i], self.generators[i], steps))
            self.samplers[i].finish(ends[i])
        for captured, plain in zip(*ends, strict=True):
            same = (
                torch.equal(captured.held, plain.held)
                if isinstance(plain, torch.Tensor)
                else captured == plain
            )
            assert same
        assert torch.equal(*(generator.get_state() for generator in self.generators))
        buffers = zip(*(model.buffers() for model in self.models), strict=True)
        assert all(torch.equal(captured.held, plain.held) for captured, plain in buffers)
        return ends[0]


def learn(pair):
    """Other weights, the same in both."""
    for model in pair.models:
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.1)


def test_chains_are_the_same_and_one_launch_each(gpu):
    pair = Pair()
    for number in range(WARM_UP + 3):
        gpu.launches.clear()
        pair.draw()
        assert gpu.launches.count("graph") == (number >= WARM_UP)
        learn(pair)
    (graph,) = gpu.made
    assert graph.log == ["register", "capture", *["replay"] * 3]
    assert pair.graph.given_up == []


def test_a_captured_chain_is_a_handful_of_launches_however_long_it_is(gpu):
    launches = []
    for steps in (3, 6):
        pair = Pair()
        for _ in range(WARM_UP + 1):
            pair.draw(steps=steps)
        state = pair.samplers[0].init(5, generator=pair.generators[0])
        gpu.launches.clear()
        pair.graph.run(pair.samplers[0], state, pair.gradients[0], pair.generators[0], steps)
        launches.append(gpu.launches[:])
    # images and slots
    assert launches[0] == launches[1] == ["copy_", "copy_", "graph", "clone", "clone"]


def test_statistics_of_batch_norm_move_with_every_replay(gpu):
    pair = Pair(make_model(nn.BatchNorm2d(3)).train())
    for number in range(1, WARM_UP + 4):
        pair.draw()
        assert pair.models[0].net[1].num_batches_tracked.tolist() == 3 * number


def test_dropout_draws_anew_in_every_replay(gpu):
    pair, ends = Pair(make_model(nn.Dropout(0.5)).train()), []
    graph, gradient, generator = pair.graph, pair.gradients[0], pair.generators[0]
    state = ChainState(torch.zeros(5, *DATA.shape, device=GPU))
    for seed in (0, 1, 2, 3, 3):
        torch.manual_seed(seed)
        generator.manual_seed(0)
        ends.append(graph.run(pair.samplers[0], state, gradient, generator, 2).x.tolist())
        torch.manual_seed(seed)
        generator.manual_seed(0)
        assert ends[-1] == chain.run(pair.samplers[0], state, gradient, generator, 2).x.tolist()
    assert ends[2] != ends[3]
    assert ends[3] == ends[4]


def test_what_a_replay_gave_stays_when_the_next_one_is_run(gpu):
    pair = Pair()
    ends = [pair.draw().x for _ in range(WARM_UP + 2)]
    values = [end.tolist() for end in ends]
    pair.draw()
    assert [end.tolist() for end in ends] == values


@pytest.mark.parametrize(
    "change", ["batch", "classes", "steps", "generator", "mode", "place", "buffer"]
)
def test_another_kind_of_chain_is_captured_anew(gpu, change):
    pair = Pair()
    for _ in range(WARM_UP + 1):
        pair.draw()
    for _ in range(WARM_UP + 1):
        if change == "generator" and pair.generators[0].initial_seed() == 0:
            pair.generators = [seeded(1), seeded(1)]
        elif change == "mode":
            for model in pair.models:
                model.eval()
        elif change == "place" and len(gpu.made) == 1 and "reset" not in gpu.made[0].log:
            pair.models[0].net[0].weight = nn.Parameter(pair.models[0].net[0].weight.clone())
        elif change == "buffer" and "reset" not in gpu.made[0].log:
            pair.samplers[0].load_state_dict(pair.samplers[0].state_dict())
        pair.draw(
            n=4 if change == "batch" else 5,
            y=[0, 1, 0, 1, 1] if change == "classes" else None,
            steps=4 if change == "steps" else None,
        )
    first, second = gpu.made
    assert first.log == ["register", "capture", "replay", "reset"]
    assert second.log == ["register", "capture", "replay"]


def test_a_forgotten_graph_is_captured_again_when_chains_are_drawn(gpu):
    pair = Pair()
    for _ in range(WARM_UP + 1):
        pair.draw()
    pair.graph.forget()
    assert gpu.made[0].log[-1] == "reset"
    for _ in range(WARM_UP + 1):
        pair.draw()
    assert gpu.made[1].log == ["register", "capture", "replay"]


class Foreign(PersistentChains):
    """Does not say that it can be captured."""

    capturable = False


class Refused(PersistentChains):
    """Does what cannot be captured."""

    def step(self, state, grad_energy, generator):
        if self.device.graph:
            self.device.graph.is_broken = True
            raise RuntimeError("CUDA error: not while capturing\nand more")
        return super().step(state, grad_energy, generator)


class OtherGenerator(PersistentChains):
    """Draws from a generator of its own."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.own = seeded(5)

    def step(self, state, grad_energy, generator):
        state = super().step(state, grad_energy, generator)
        noise = torch.randn(state.x.shape, generator=self.own, device=GPU)
        return state._replace(x=state.x + noise)


@pytest.mark.parametrize(
    ("sampler", "cause", "captures"),
    [
        (Foreign, "the sampler does not say that it is capturable", 0),
        (Refused, "RuntimeError: CUDA error: not while capturing", 2),
        (
            OtherGenerator,
            "RuntimeError: Attempt to increase offset for a CUDA generator not in capture mode.",
            2,
        ),
    ],
)
def test_what_cannot_be_captured_goes_step_by_step_with_the_same_numbers(
    gpu, sampler, cause, captures
):
    """After a capture that failed, an empty one lets the generators draw again."""
    sampler.device = gpu
    pair = Pair(sampler=sampler)
    with pytest.warns(Fallback) as told:
        assert {pair.draw().steps for _ in range(WARM_UP + 3)} == {3}
    expected = f"Chains run step by step, which is slower but gives the same results ({cause})."
    assert [str(each.message) for each in told] == [expected]
    assert pair.graph.given_up == [cause]
    assert len(gpu.made) == captures
    assert gpu.graph is None

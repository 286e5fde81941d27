"""One fit in two processes: the same training as in one, and each its own part of the chains."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from jembench.errors import SpecError
from jembench.interfaces import DataSpec
from jembench.sampling.pcd import PersistentChains
from jembench.sampling.sgld import Langevin
from jembench.store import checkpoint
from jembench.training import snapshots
from jembench.training.chains import share
from jembench.training.fit import train
from jembench.training.processes import SINGLE, Controller, ProcessGroup, serve

HERE = Path(__file__).parent
JEM = {"batch_size": 10, "data.validation": 10}


class Half(ProcessGroup):
    """The second of two processes that never speak."""

    rank = 1
    size = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the two processes have been."""
    folder = tmp_path_factory.mktemp("group")
    command = [sys.executable, HERE / "two_processes.py", folder]
    both = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert both.returncode == 0, both.stderr
    return folder


@pytest.fixture(scope="module")
def ranks(folder):
    """What each of them ended with."""
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone():
    """The script's own functions, to do in this process what the two have done."""
    sys.path.insert(0, str(HERE))
    import two_processes

    sys.path.remove(str(HERE))
    return two_processes


def assert_same(first, second, tolerance=0.0):
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=tolerance)


# --- what the processes tell one another ------------------------------------------------------------------------------


def test_rank_0_gathers_from_all_in_their_order_and_is_heard_by_all(ranks):
    assert ranks[0]["gathered"] == [{"rank": 0}, {"rank": 1}]
    assert ranks[1]["gathered"] == []
    assert [found["told"] for found in ranks] == [{"from": 0}, {"from": 0}]


@pytest.mark.parametrize(("rank", "expected"), [(0, slice(0, 3)), (1, slice(3, 6))])
def test_parts_are_consecutive(rank, expected):
    group = Half()
    group.rank = rank
    assert group.part(6) == expected
    assert SINGLE.part(6) == slice(0, 6)


def test_a_call_in_step_is_a_call_for_one_alone():
    done = []
    with Controller(done, SINGLE) as call:
        call("append", 3)
        assert call("copy") == [3]


def test_who_follows_does_what_it_is_told_until_the_end():
    orders = iter([("append", (1,)), ("extend", ([2, 3],)), None])
    group = Half()
    group.broadcast = lambda value: next(orders)
    done = []
    serve(done, group)
    assert done == [1, 2, 3]


# --- the same training ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), [("classifier", {}), ("sharpness", {"optimizer.sharpness": 0.5})])
def test_a_classifier_becomes_the_one_of_a_single_process(name, options, ranks, alone):
    expected = alone.after(alone.make_trainer(model=alone.ToyClassifier, **alone.SGD, **options), 12)
    assert_same(ranks[0][name], expected, 1e-6)  # a sum of ten gradients, in another order
    assert_same(ranks[0][name], ranks[1][name])


def test_all_processes_hold_the_same_model_also_what_its_norms_have_seen(ranks):
    assert_same(ranks[0]["batch norm"], ranks[1]["batch norm"])
    assert ranks[0]["batch norm"]["net.2.running_mean"].abs().min() > 0


def test_what_the_first_batch_sets_is_the_same_in_all_processes(ranks):
    assert_same(ranks[0]["set by the first batch"], ranks[1]["set by the first batch"])
    assert ranks[0]["set by the first batch"]["net.2.shift"].abs().min() > 0


def test_the_loss_and_energies_are_those_of_a_single_process_with_the_same_negatives(ranks, alone):
    trainer = alone.with_given_negatives(alone.make_trainer(**alone.SGD), alone.given_negatives())
    expected = trainer.window(4)
    for found in ranks:
        assert found["window"].starts == pytest.approx(expected.starts, abs=1e-5)
        for row, row_of_one in zip(found["window"].rows, expected.rows, strict=True):
            assert row == pytest.approx(row_of_one, abs=1e-5)
    assert {"loss", "energy_data", "energy_samples", "highest_sample", "highest_data"} <= expected.rows[0].keys()


# --- the chains -------------------------------------------------------------------------------------------------------


def test_the_parts_of_the_buffer_are_different_and_make_up_the_whole(ranks):
    parts = [found["marginal part"] for found in ranks]
    whole = ranks[0]["marginal whole"]
    assert [len(part["images"]) for part in parts] == [15, 15]
    assert torch.equal(whole["images"], torch.cat([part["images"] for part in parts]))
    assert len(whole["images"].flatten(1).unique(dim=0)) == 30
    assert int(whole["ages"].sum()) == sum(int(part["ages"].sum()) for part in parts)


def test_a_class_s_slots_in_the_whole_are_those_of_its_parts(ranks):
    data = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)
    chains = PersistentChains(data, Langevin(steps=1, step_size=1.0, noise=0.0), buffer_size=30, reinit=0.05)
    chains.load_state_dict(ranks[0]["conditional whole"])
    kept = chains.kept()
    for number in range(3):
        parts = [found["conditional part"]["images"][found["conditional classes"] == number] for found in ranks]
        assert [len(part) for part in parts] == [5, 5]
        assert torch.equal(kept.x[kept.y == number], torch.cat(parts))


@pytest.mark.parametrize("conditional", [False, True])
def test_a_whole_buffer_is_shared_out_again_without_a_rest(conditional):
    data = DataSpec(name="toy", shape=(1, 1, 1), num_classes=3)
    langevin = Langevin(steps=1, step_size=1.0, noise=0.0)
    whole = {"images": torch.arange(12.0).view(12, 1, 1, 1), "ages": torch.arange(12)}
    whole |= {"filled": torch.tensor(True), "conditional": torch.tensor(conditional)}
    parts = []
    for rank in range(2):
        chains = PersistentChains(data, langevin, buffer_size=12, reinit=0.0)
        chains.share(rank, 2)
        chains.load_state_dict(whole)
        parts.append(chains.state_dict())
    assert [part["ages"].tolist() for part in parts] == (
        [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]] if conditional else [list(range(6)), list(range(6, 12))]
    )
    assert_same(chains.whole(parts), whole)


def test_what_cannot_be_shared_out_is_told(alone):
    half, make_trainer = Half(), alone.make_trainer
    with pytest.raises(SpecError, match=r"batch_size of recipe .* is 9, .* 2 processes.*--set batch_size="):
        make_trainer(half)
    with pytest.raises(SpecError, match=r"data\.labelled_batch of recipe .* is 5"):
        make_trainer(half, batch_size=10, **{"data.labelled_batch": 5})
    with pytest.raises(SpecError, match="replay buffer of 15 images cannot be shared out evenly among 2 processes"):
        make_trainer(half, batch_size=10, **{"chains.sampler": '"pcd:buffer=15"'})
    with pytest.raises(SpecError, match=r"buffer of 32 images .* among 3 classes and 2 processes.*times that of proc"):
        make_trainer(half, alone.ToyFactored, batch_size=10, **{"chains.sampler": '"pcd:buffer=32"'})


def test_a_sampler_with_a_memory_that_it_cannot_share_is_told(alone):
    class Miser:
        def state_dict(self):
            return {"gold": torch.zeros(1)}

    recipe = alone.make_trainer().recipe
    with pytest.raises(SpecError, match=r"pcd:steps=3.* cannot share its chains out among processes"):
        share(Miser(), recipe, Half())
    share(Miser(), recipe, SINGLE)


def test_short_runs_need_no_sharing(alone):
    trainer = alone.make_trainer(Half(), batch_size=10, **{"chains.sampler": '"sgld:steps=2,step_size=0.1"'})
    assert float(trainer.iterate()["loss"]) != 0


def test_the_chains_of_each_process_draw_other_numbers(alone):
    first, second = alone.make_trainer(batch_size=10), alone.make_trainer(Half(), batch_size=10)
    assert torch.equal(first.batches.generator.get_state(), second.batches.generator.get_state())
    assert not torch.equal(first.generator.get_state(), second.generator.get_state())


# --- stopped, resumed, diverged, failed -------------------------------------------------------------------------------


def test_the_buffers_of_the_last_epochs_are_of_all_chains_stopped_or_not(folder):
    straight, stopped = (snapshots.read(folder / name) for name in ("straight", "stopped"))
    assert len(straight) == len(stopped) == 4
    for one, other in zip(straight, stopped, strict=True):
        assert len(one.images.flatten(1).unique(dim=0)) == 30
        assert torch.equal(one.images, other.images)


def test_a_fit_that_was_stopped_ends_as_one_that_was_not(folder, ranks):
    assert ranks[0]["stopped"] == 16
    for found in ranks:
        assert_same(found["resumed"], ranks[0]["straight"])
    straight, stopped = (checkpoint.read(folder / name / "sampler.safetensors") for name in ("straight", "stopped"))
    assert_same(straight, stopped)
    assert straight["images"].shape == (30, 1, 4, 4)


def test_a_single_process_goes_on_from_the_checkpoint_of_two(folder, tmp_path, alone):
    shutil.copytree(folder / "straight", tmp_path, dirs_exist_ok=True)
    (newest,) = tmp_path.glob("checkpoint-*")
    state = checkpoint.read(newest)
    assert len(state["trainer"]["generators"]["chains"]) == 2
    trainer = alone.make_trainer(**alone.JEM, epochs=6)
    trainer.load_state_dict(state["trainer"])
    assert_same(trainer.sampler.state_dict(), state["trainer"]["sampler"])
    fitted = train(trainer, tmp_path)
    assert [row["iteration"] for row in fitted.history] == list(range(4, 49, 4))
    assert fitted.iteration in (32, 40, 48)


def test_what_diverges_in_one_process_is_mended_in_all(ranks):
    (intervention,) = ranks[0]["interventions"]
    assert (intervention.iteration, intervention.returned_to, intervention.remedy) == (16, 8, "seed")
    assert "loss was nan" in intervention.reason
    assert ranks[0]["adjustment"] == ranks[1]["adjustment"]
    assert ranks[0]["adjustment"].seeds == 1
    assert_same(ranks[0]["diverged"], ranks[1]["diverged"])


def test_an_error_that_all_meet_leaves_them_together(ranks):
    assert ranks[0]["bug everywhere"] == "a bug"
    assert ranks[0]["after the bug"] == [0, 1]


def test_an_error_in_one_process_is_told_by_it_and_ends_the_waiting_of_the_other(ranks):
    assert ranks[1]["bug in one"] == (
        "Process 2 of 2 that train together failed, and the others did not (Bug: a bug). The same command goes on from "
        "the last checkpoint."
    )
    assert ranks[0]["bug in one"].startswith("Process 1 of 2 that train together has lost another one, which failed")

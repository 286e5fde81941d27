import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from jembench.errors import Remark, SpecError, Unavailable
from jembench.interfaces import DataSpec
from jembench.models import devices

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SMALL = DataSpec(name="small", shape=(1, 32, 32), num_classes=2)
LARGE = DataSpec(name="large", shape=(3, 32, 32), num_classes=2)


@pytest.fixture
def gpus(monkeypatch):
    """Pretend that so many GPUs are there."""

    def pretend(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return pretend


@pytest.mark.parametrize(("count", "expected"), [(0, "cpu"), (1, "cuda:0"), (2, "cuda:0")])
def test_auto_is_the_first_gpu_or_the_cpu(gpus, count, expected):
    gpus(count)
    assert devices.resolve("auto") == torch.device(expected)


@pytest.mark.parametrize(("name", "expected"), [("cuda", "cuda:0"), ("cuda:1", "cuda:1")])
def test_a_gpu_by_its_name(gpus, name, expected):
    gpus(2)
    assert devices.resolve(name) == torch.device(expected)


@pytest.mark.parametrize(("name", "count"), [("cuda:7", 0), ("cuda:7", 7), ("cuda", 0)])
def test_a_gpu_that_is_not_there(gpus, name, count):
    gpus(count)
    with pytest.raises(Unavailable) as caught:
        devices.resolve(name)
    assert str(caught.value) == (
        f"There is no device {name}: torch {torch.__version__} finds {count} CUDA devices that it "
        "can use on this machine. Use --device cpu, or see what `jembench doctor` says of the "
        "driver."
    )


@pytest.mark.parametrize("name", ["gpu", "", "cuda:one", "cpu cpu"])
def test_what_is_no_device(name):
    with pytest.raises(SpecError) as caught:
        devices.resolve(name)
    assert (
        str(caught.value)
        == f"{name!r} is not a device. Write cpu, cuda, cuda:1 ..., mps or auto with --device."
    )


@pytest.mark.parametrize("name", ["meta", "vulkan", "hpu"])
def test_a_device_that_torch_knows_and_cannot_use(name):
    with pytest.raises(
        Unavailable, match=rf"^The device {name} cannot be used: .*\. Use --device cpu or auto\.$"
    ):
        devices.resolve(name)


def test_mps_is_accepted_and_said_to_be_untested(monkeypatch):
    monkeypatch.setattr(torch, "zeros", lambda count, device: torch.ones(count))
    with pytest.warns(Remark, match=r"^jembench is untested on MPS: compare results"):
        assert devices.resolve("mps") == torch.device("mps")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("data", "device", "threads"), [(SMALL, CPU, 1), (LARGE, CPU, 2), (SMALL, CUDA, 2)]
)
def test_small_images_are_worked_on_by_one_thread_of_the_cpu(two_threads, data, device, threads):
    with devices.threads_for(data, device):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_one_thread_holds_for_the_products_of_numpy_and_scipy_as_well():
    def threads():
        return {
            library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
        }

    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, "blas"):
        with devices.one_thread():
            assert threads() == {1}
        assert threads() == {2}


def test_the_cpu_computes_in_float32_and_has_a_name():
    assert devices.execution(LARGE, CPU).precision == "float32"
    assert devices.processor()


@pytest.mark.parametrize("data", [SMALL, LARGE])
@pytest.mark.parametrize("fast", [True, False])
def test_auto_on_a_gpu_is_what_its_hardware_has_and_not_what_it_emulates(monkeypatch, fast, data):
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: including_emulation or fast,
    )
    expected = "bfloat16" if fast and data is LARGE else "float32"
    assert devices.execution(data, CUDA).precision == expected


@pytest.mark.parametrize(
    ("data", "device", "compiled"), [(LARGE, CUDA, True), (SMALL, CUDA, False), (LARGE, CPU, False)]
)
def test_auto_lays_maps_out_channels_last_and_compiles_large_images_on_gpus(
    monkeypatch, data, device, compiled
):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    found = devices.execution(data, device)
    assert (found.channels_last, found.compiled) == (True, compiled)

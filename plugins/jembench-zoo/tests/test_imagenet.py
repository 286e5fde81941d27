"""The suite ``imagenet`` on a few small images in folders named by WordNet ids."""

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

import jembench
from jembench.errors import Unavailable

IDS = ["n01440764", "n01443537", "n01484850", "n01491361", "n01494475", "n01496331"]
SETS = {
    "ssb_hard": "images_largescale",
    "ninco": "images_largescale",
    "inaturalist": "images_largescale",
    "textures": "images_classic",
    "openimage_o": "images_largescale",
}


def save(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(256, size=(37, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.mark.filterwarnings("ignore::jembench.errors.Remark")
def test_the_suite_runs_whole(tmp_path, monkeypatch):
    pytest.importorskip("jembench_robustness")
    monkeypatch.setenv("JEMBENCH_DATA", str(tmp_path))
    for number in range(12):
        save(tmp_path / "val" / IDS[number % 6] / f"ILSVRC2012_val_{number:08}.JPEG", number)
    torch.manual_seed(0)
    net = torchvision.models.squeezenet1_1(num_classes=6)
    torch.save(net.state_dict(), tmp_path / "net.pth")
    what = {
        "models": f"torchvision:squeezenet1_1,size=32,weights={tmp_path / 'net.pth'}",
        "datasets": f"imagefolder:root={tmp_path / 'val'},name=imagenet,split=0,size=32",
        "settings": {"autoattack.images": 2},
        "store": tmp_path / "runs",
        "progress": False,
    }
    with pytest.raises(Unavailable, match=r"OpenOOD's list .*test_ssb_hard\.txt is missing"):
        jembench.run("imagenet", **what)

    for seed, (name, folder) in enumerate(SETS.items()):
        for number in range(3):
            save(tmp_path / "openood" / folder / name / f"{number}.jpg", 100 * seed + number)
        listed = tmp_path / "openood" / "benchmark_imglist" / "imagenet" / f"test_{name}.txt"
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text("".join(f"{name}/{number}.jpg -1\n" for number in range(3)))
    results = jembench.run("imagenet", **what)
    values = {record.label for record in results}
    assert {"accuracy", "top-5-accuracy", "nll", "ece", "autoattack-linf@4/255"} <= values
    areas = [record for record in results if record.label == "auroc"]
    assert len(areas) == 3 * len(SETS)
    assert {record.status for record in results} == {"ok"}

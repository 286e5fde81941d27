"""Feature networks with published weights, computed by torch-fidelity: DINOv2 and CLIP.

The module imports torch inside functions, since its classes are registered as factories.
"""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from jembench.metrics.pretrained import Pretrained, WeightsFile

if TYPE_CHECKING:
    from torch import Tensor


def _dinov2(content: bytes) -> Any:
    """Return torch-fidelity's network without its constructor, which runs downloaded code."""
    import torch
    from torch_fidelity.feature_extractor_base import FeatureExtractorBase
    from torch_fidelity.feature_extractor_dinov2 import FeatureExtractorDinoV2

    net = FeatureExtractorDinoV2.__new__(FeatureExtractorDinoV2)
    FeatureExtractorBase.__init__(net, "dinov2-vit-l-14", ["dinov2"])
    net.feature_extractor_internal_dtype = torch.float32
    weights = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    net.model = _transformer(weights)
    return net.eval()


def _clip(content: bytes) -> Any:
    """Return torch-fidelity's network with the tensors of the TorchScript archive.

    The forward code that the archive may hold does not run.
    """
    from torch_fidelity.feature_extractor_clip import FeatureExtractorCLIP

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit.load is deprecated
        return FeatureExtractorCLIP("clip-vit-b-32", ["clip"], io.BytesIO(content))


_NAMES = {
    "blocks.": "encoder.layers.encoder_layer_",
    ".norm": ".ln_",
    "norm.": "encoder.ln.",
    "attn.qkv.": "self_attention.in_proj_",
    "attn.proj": "self_attention.out_proj",
    "mlp.fc1": "mlp.0",
    "mlp.fc2": "mlp.3",
    "patch_embed.proj": "conv_proj",
    "cls_token": "class_token",
    "pos_embed": "encoder.pos_embedding",
}
"""Parts of the names of DINOv2's weights, and their names in torchvision."""


def _transformer(weights: dict[str, Tensor]) -> Any:
    """Return torchvision's vision transformer with DINOv2's weights, for images of 224 pixels.

    The factors of each block's outputs are multiplied into the layers before them. The embeddings
    of positions are interpolated to 16 x 16 as in DINOv2's code, with the scale of 16.1.
    """
    import torch
    from torch.nn import functional as F
    from torchvision.models import VisionTransformer

    gammas = [name for name in weights if name.endswith(".gamma")]
    for name in gammas:
        gamma = weights.pop(name)
        layer = name.replace("ls1.gamma", "attn.proj").replace("ls2.gamma", "mlp.fc2")
        weights[f"{layer}.weight"] *= gamma[:, None]
        weights[f"{layer}.bias"] *= gamma
    del weights["mask_token"]
    embedding = weights["pos_embed"]
    width = weights["norm.weight"].numel()
    side = math.isqrt(embedding.shape[1])
    class_place = embedding[:, :1]
    grid = embedding[:, 1:].reshape(1, side, side, width)
    grid = grid.permute(0, 3, 1, 2)
    patches = F.interpolate(grid, scale_factor=16.1 / side, mode="bicubic")
    weights["pos_embed"] = torch.cat([class_place, patches.flatten(2).mT], dim=1)
    for old, new in _NAMES.items():
        weights = {name.replace(old, new): tensor for name, tensor in weights.items()}
    with torch.device("meta"):
        depth = len(gammas) // 2
        net = VisionTransformer(224, 14, depth, width // 64, width, 4 * width)
    net.heads = torch.nn.Identity()
    net.load_state_dict(weights, assign=True)
    return net


_DINOV2 = "https://dl.fbaipublicfiles.com/dinov2/dinov2_vitl14/dinov2_vitl14_pretrain.pth"
_VIT_L_14 = "d5383ea8f4877b2472eb973e0fd72d557c7da5d3611bd527ceeb1d7162cbf428"
_VIT_B_32 = "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af"
_CLIP = f"https://openaipublic.azureedge.net/clip/models/{_VIT_B_32}/ViT-B-32.pt"


@dataclass(kw_only=True)
class DinoV2Features(Pretrained):
    """DINOv2's ViT-L/14, the network of FD-DINOv2; needs 1.2 GB of weights.

    Its 1,024 features are those of the class token. torch-fidelity resizes images to 224 pixels
    with bilinear interpolation; Stein et al. (2023), arXiv:2306.04675, who introduced FD-DINOv2,
    with bicubic interpolation. ``weights`` and ``download``: as for ``inception``.
    """

    identity: str = field(default="dinov2-vit-l-14", init=False)
    name: ClassVar[str] = "dinov2"
    dimensions: ClassVar[int] = 1024
    published: ClassVar[WeightsFile] = WeightsFile("DINOv2", _dinov2, "1.2 GB", _VIT_L_14, _DINOV2)


@dataclass(kw_only=True)
class ClipFeatures(Pretrained):
    """CLIP's ViT-B/32, as in Kynkäänniemi et al. (2023); 354 MB of weights.

    Its 512 features are the image embedding. ``weights`` and ``download``: as for ``inception``.
    """

    identity: str = field(default="clip-vit-b-32", init=False)
    name: ClassVar[str] = "clip"
    dimensions: ClassVar[int] = 512
    published: ClassVar[WeightsFile] = WeightsFile("CLIP", _clip, "354 MB", _VIT_B_32, _CLIP)

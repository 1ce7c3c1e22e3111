"""BN-Inception (GoogLeNet-V2): GoogLeNet with batch normalisation, the network of many metric-learning papers.

Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift" (ICML
2015), with the widths of the Caffe release. In the blocks 4a to 4e these differ from the table in the paper.

    images [B, 3, 224, 224] -> conv 7x7 / 2, pool / 2, conv 1x1, conv 3x3, pool / 2    192 channels, 28 x 28
    -> 3a 3b 3c / 2    576, 14 x 14    -> 4a 4b 4c 4d 4e / 2    1056, 7 x 7    -> 5a 5b    1024, 7 x 7    -> mean

A block concatenates up to four branches of the same input, with batch norm and ReLU after every convolution:

    1x1    |    1x1, 3x3    |    1x1, 3x3, 3x3    |    pool 3x3, 1x1

Blocks 3c and 4e halve the map: the last 3x3 convolutions have stride 2, there is no 1x1 branch, and the fourth branch
is only a max pool. The pool of the other blocks is an average, and in 5b a maximum.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contml.models.network import PixelFormat

#: Channels: 1x1; 3x3 after a reduction; two 3x3 after a reduction; 1x1 after the pool. 0 means no such convolution.
_BLOCKS = {
    "inception_3a": (64, (64, 64), (64, 96), 32),
    "inception_3b": (64, (64, 96), (64, 96), 64),
    "inception_3c": (0, (128, 160), (64, 96), 0),
    "inception_4a": (224, (64, 96), (96, 128), 128),
    "inception_4b": (192, (96, 128), (96, 128), 128),
    "inception_4c": (160, (128, 160), (128, 160), 128),
    "inception_4d": (96, (128, 192), (160, 192), 128),
    "inception_4e": (0, (128, 192), (192, 256), 0),
    "inception_5a": (352, (192, 320), (160, 224), 128),
    "inception_5b": (352, (192, 320), (192, 224), 128),
}


class BNInception(nn.Module):
    """Images `[B, 3, H, W]`, BGR with values around 0..255, to features `[B, 1024]`.

    The layers have the names of the Caffe release, so that a state dict converted from Caffe can be loaded. Each block
    has a module for its output, such as `inception_3a_output`. Heights and widths must be even down to the last block,
    as for images of 224 and 227 pixels, and of every multiple of 32.
    """

    pixel_format = PixelFormat(mean=(104.0, 117.0, 128.0), std=(1.0, 1.0, 1.0), maximum=255, order="BGR")

    def __init__(self) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, 7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64)
        self._add("conv2_3x3", 64, 192, 3)
        channels = 192
        for block, (single, (reduce, triple), (double_reduce, double), projection) in _BLOCKS.items():
            stride = 1 if projection else 2
            if single:
                self._add(f"{block}_1x1", channels, single)
            self._add(f"{block}_3x3_reduce", channels, reduce)
            self._add(f"{block}_3x3", reduce, triple, 3, stride)
            self._add(f"{block}_double_3x3_reduce", channels, double_reduce)
            self._add(f"{block}_double_3x3_1", double_reduce, double, 3)
            self._add(f"{block}_double_3x3_2", double, double, 3, stride)
            if projection:
                self._add(f"{block}_pool_proj", channels, projection)
            self.add_module(f"{block}_output", _Concatenate())
            channels = single + triple + double + (projection or channels)
        self.global_pool = nn.AdaptiveAvgPool2d(1)

    def _add(self, name: str, channels_in: int, channels_out: int, kernel: int = 1, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(channels_out))

    def _layers(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = F.relu(self.get_submodule(f"{name}_bn")(self.get_submodule(name)(x)), inplace=True)
        return x

    def _block(self, name: str, x: Tensor) -> Tensor:
        single, _, _, projection = _BLOCKS[name]
        branches = [self._layers(x, f"{name}_1x1")] if single else []
        branches.append(self._layers(x, f"{name}_3x3_reduce", f"{name}_3x3"))
        branches.append(self._layers(x, *(f"{name}_double_3x3_{layer}" for layer in ("reduce", "1", "2"))))
        if not projection:
            branches.append(_halve(x))
        else:
            pool = F.max_pool2d if name == "inception_5b" else F.avg_pool2d
            branches.append(self._layers(pool(x, 3, stride=1, padding=1), f"{name}_pool_proj"))
        return self.get_submodule(f"{name}_output")(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Return features `[B, 1024]` of normalised images `[B, 3, H, W]`."""
        x = _halve(self._layers(x, "conv1_7x7_s2"))
        x = _halve(self._layers(x, "conv2_3x3_reduce", "conv2_3x3"))
        for name in _BLOCKS:
            x = self._block(name, x)
        return self.global_pool(x).flatten(1)


def _halve(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, stride=2, ceil_mode=True)


class _Concatenate(nn.Module):
    """A module without weights, which gives the output of a block a name."""

    def forward(self, branches: list[Tensor]) -> Tensor:
        return torch.cat(branches, dim=1)

"""The data of the examples: drawn dials of many colours, each with a reading from 0 to 100."""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

import contml


def dial(reading: float, hue: float, side: int = 32) -> Image.Image:
    """Draw a dial, whose needle turns by 270 degrees from 0 to 100."""
    picture = Image.new("RGB", (side, side), f"hsl({360 * hue:.0f}, 60%, 70%)")
    pen, middle, angle = ImageDraw.Draw(picture), side / 2, math.radians(135 + 2.7 * reading)
    pen.ellipse((2, 2, side - 3, side - 3), outline="white", width=2)
    tip = (middle + 0.36 * side * math.cos(angle), middle + 0.36 * side * math.sin(angle))
    pen.line((middle, middle, *tip), fill="black", width=2)
    return picture


def draw_dials(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw images, floats in 0..1 `[count, 3, 32, 32]`, and return them with their readings `[count]`."""
    random = np.random.default_rng(seed)
    readings, hues = random.uniform(0, 100, count), random.random(count)
    images = np.stack([np.asarray(dial(*each)) for each in zip(readings, hues, strict=True)])
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(readings)


def network(dim: int = 16) -> nn.Module:
    """Return a small network: images to embeddings `[B, dim]`."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32 * 8 * 8, 64), nn.ReLU(), nn.Linear(64, dim))


def share_of_random(model: nn.Module) -> str:
    """Return a text on how well the embedding of unseen dials ranks them. A lower percentage is better."""
    images, readings = draw_dials(200, seed=1)
    with torch.inference_mode():
        main = contml.evaluate(model(images), contml.NumberLabels(readings)).evaluation.main
    return f"{main.title}: {100 * main.model / main.random:.1f} % of a random ranking"

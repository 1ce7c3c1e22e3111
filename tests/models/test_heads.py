"""Heads that start where the features are: from principal components."""

from __future__ import annotations

import numpy as np
import torch
from support.refusals import refuses

from contml.models import EmbeddingModel
from contml.training.setup import sample_rows


def features(items: int = 50, width: int = 1024, rank: int = 6) -> torch.Tensor:
    """Features of rank 6 with a mean far from 0."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(items, rank, generator=generator) * torch.arange(rank, 0, -1)
    return x @ torch.randn(rank, width, generator=generator) + 5


def head(start: str, dim: int = 8, **options):
    torch.manual_seed(0)
    model = EmbeddingModel("small_cnn", dim=dim, head_start=start, **options)
    if start == "pca":
        model.start_head(features())
    return model


def test_principal_components_keep_distances():
    """Against numpy's singular vectors; with all components, distances are those of the features."""
    x = features()
    embeddings = head("pca").embed(x).detach()
    found, expected = (torch.cdist(each.double(), each.double()) for each in (embeddings, x))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=0.02)
    assert embeddings.mean(0).abs().max() < 1e-2
    centred = x.double().numpy() - x.double().numpy().mean(0)
    expected = np.abs(centred @ np.linalg.svd(centred, full_matrices=False)[2][:3].T)
    np.testing.assert_allclose(np.abs(head("pca", 3).embed(x).detach().numpy()), expected, rtol=1e-3, atol=0.02)


def test_components_beyond_the_rank_are_orthonormal():
    for dim in (20, 60):  # of 50 images
        weight = head("pca", dim).head.weight
        torch.testing.assert_close(weight @ weight.T, torch.eye(dim), rtol=0, atol=1e-4)


def test_each_level_starts_from_its_own_features():
    model = EmbeddingModel("small_cnn", dim=4, levels=["low", "high"], head_start="pca")
    x = torch.cat([features(width=width) for width in model.head.widths], 1)
    model.start_head(x)
    widths = model.head.widths
    for part, level, layer in zip(x.split(widths, 1), model.embed(x).split(4, 1), model.head.values(), strict=True):
        torch.testing.assert_close(level, layer(part))
        assert level.mean(0).abs().max() < 1e-2


def test_more_components_than_features_are_refused():
    with refuses("dim", "1025", allowed="at most 1024"):
        head("pca", 1025)


def test_a_large_set_is_sampled():
    assert sample_rows(10).tolist() == [*range(10)]
    rows = sample_rows(100_000)
    assert len(rows) == 4096 == len(rows.unique())
    assert rows.tolist() == sorted(rows.tolist())


def test_the_features_are_an_embedding_of_the_same_backbone():
    torch.manual_seed(0)
    model = EmbeddingModel("small_cnn", dim=8, normalize=True).eval()
    bare, images = model.without_head(), torch.randint(0, 255, (4, 3, 64, 64), dtype=torch.uint8)
    assert (bare.embedding_dim, model.embedding_dim) == (1024, 8)
    torch.testing.assert_close(bare(images), torch.nn.functional.normalize(model.features(images)))
    torch.testing.assert_close(model.bare_backbone()(images), model.features(images))
    assert bare.backbone is model.backbone
    assert model.fitted_to(model.state_dict()) is model
    assert model.fitted_to(bare.state_dict()).embedding_dim == 1024

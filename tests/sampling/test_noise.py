"""Keyed random numbers: uniform, open, independent, and the same wherever they are computed."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from spec_cli.sampling.noise import Purpose, gumbel, stream_key, uniform

FALSE_ALARM = 1e-6
NUM = 20_000


def keys_over(what: str) -> list[int]:
    """Many keys that differ in one thing only."""
    if what == "seed":
        return [stream_key(i, 5, Purpose.TARGET) for i in range(NUM)]
    if what == "position":
        return [stream_key(5, i, Purpose.TARGET) for i in range(NUM)]
    return [stream_key(i, i, Purpose.TARGET) for i in range(NUM)]  # both at once


def uniforms(keys: list[int], token_ids: list[int]) -> torch.Tensor:
    """The uniforms behind the noise, float64 `[N, M]`."""
    return (-(-gumbel(torch.tensor(keys), torch.tensor(token_ids))).exp()).exp()


@pytest.mark.parametrize("what", ["seed", "position", "both"])
def test_uniform_over_keys(what: str) -> None:
    """Over seeds, positions and both, noise is uniform (Kolmogorov-Smirnov, false alarm 1e-6)."""
    u = uniforms(keys_over(what), [7])[:, 0]

    assert stats.kstest(u.numpy(), "uniform").pvalue > FALSE_ALARM


def test_uniform_over_token_ids() -> None:
    """Over the ids of a vocabulary, noise is uniform (Kolmogorov-Smirnov, false alarm 1e-6)."""
    u = uniforms([stream_key(1, 2, Purpose.TARGET)], list(range(NUM)))[0]

    assert stats.kstest(u.numpy(), "uniform").pvalue > FALSE_ALARM


@pytest.mark.parametrize("what", ["seed", "position", "both"])
def test_neighbouring_keys_are_independent(what: str) -> None:
    """Uniforms of neighbouring keys, and of neighbouring ids, fill the square evenly (1e-6)."""
    u = uniforms(keys_over(what), [7, 8])
    for a, b in ((u[:-1, 0], u[1:, 0]), (u[:, 0], u[:, 1])):
        cells = (a * 10).long() * 10 + (b * 10).long()
        counts = torch.bincount(cells, minlength=100)

        assert stats.chisquare(counts.numpy()).pvalue > FALSE_ALARM


def test_purposes_are_independent() -> None:
    """The same seed and position give uncorrelated numbers for different purposes (1e-6 each)."""
    u = {p: torch.tensor([uniform(i, 3, p) for i in range(NUM)]) for p in Purpose}
    for a in Purpose:
        for b in Purpose:
            if a < b:
                r = float(torch.corrcoef(torch.stack((u[a], u[b])))[0, 1])
                assert abs(r) * math.sqrt(NUM) < stats.norm.isf(FALSE_ALARM / 2)


@given(
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**40),
    purpose=st.sampled_from(Purpose),
)
def test_python_and_torch_agree(seed: int, position: int, purpose: Purpose) -> None:
    """The number of a key on the host is the one behind the noise of token id 0 on the device."""
    u = uniform(seed, position, purpose)
    key = torch.tensor([stream_key(seed, position, purpose)])

    assert 0.0 < u < 1.0
    assert float(gumbel(key, torch.tensor([0]))) == pytest.approx(
        -math.log(-math.log(u)), rel=1e-12
    )


def test_the_interval_is_open() -> None:
    """The smallest and the largest number that 52 bits can give are not 0 and 1."""
    for bits in (0, 2**52 - 1):
        u = (bits + 0.5) * 2.0**-52
        assert 0.0 < u < 1.0
        assert math.isfinite(-math.log(-math.log(u)))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_noise_is_finite_and_bounded(keys: list[int]) -> None:
    """Whatever the key, noise lies between those of the smallest and the largest uniform."""
    noise = gumbel(torch.tensor(keys), torch.arange(200))

    assert noise.isfinite().all()
    assert float(noise.min()) >= -math.log(-math.log(0.5 * 2.0**-52))
    assert float(noise.max()) <= -math.log(-math.log1p(-0.5 * 2.0**-52))


def test_noise_of_an_id_depends_on_nothing_else() -> None:
    """Noise for some ids, in any order or per row, is that of the whole vocabulary at these ids."""
    keys = torch.tensor([stream_key(s, 1, Purpose.TARGET) for s in range(4)])
    full = gumbel(keys, torch.arange(100))
    ids = torch.tensor([[5, 99, 0], [1, 2, 3], [98, 5, 5], [7, 0, 1]])

    assert torch.equal(gumbel(keys, ids), full.gather(1, ids))
    assert torch.equal(gumbel(keys, ids[0]), full[:, ids[0]])
    assert torch.equal(gumbel(keys[2:3], torch.arange(100))[0], full[2])


def test_keys_differ() -> None:
    """No two of 80 000 near keys are equal (by chance with odds of 2e-10)."""
    keys = {
        stream_key(seed, position, purpose)
        for seed in range(200)
        for position in range(100)
        for purpose in Purpose
    }

    assert len(keys) == 200 * 100 * len(Purpose)

"""Timing forwards beforehand: within two seconds, in empty rows, once for all sessions."""

from dataclasses import replace
from random import Random

import pytest

from spec_cli import LLM, SamplingParams
from spec_cli.engine.calibration import BUDGET_S, Calibration
from spec_cli.engine.calibration_file import CalibrationFile, CalibrationKey
from spec_cli.policy.cost import CostModel
from tests.fakes import FakeRow, TableRunner
from tests.folders import save_text_model

KEY = CalibrationKey(("a model",), is_exact=False, versions=("torch 2",))


class TimedRunner(TableRunner):
    """Moves a clock by what its forwards cost."""

    def __init__(self, clock: list[float], fixed_s: float, token_s: float, noise: float = 0.0):
        super().__init__([0.5, 0.5])
        self._clock = clock
        self._cost = (fixed_s, token_s)
        self._rng = Random(1)
        self._noise = noise
        self.released: list[FakeRow] = []

    def release(self, row):
        """As any other, and it is noted."""
        super().release(row)
        self.released.append(row)

    def forward(self, inputs):
        """As any other, and time passes."""
        tokens = sum(len(item.token_ids) for item in inputs)
        seconds = self._cost[0] + self._cost[1] * tokens
        self._clock[0] += seconds * (1.0 + self._noise * self._rng.random())
        return super().forward(inputs)


def calibration(tmp_path, target_s=(0.02, 0.001), draft_s=(0.002, 0.0001), first=0.02, **options):
    """A calibration of fakes, and what it is made of."""
    clock = [100.0]
    target = TimedRunner(clock, *target_s, **options)
    draft = TimedRunner(clock, *draft_s) if draft_s is not None else None
    made = Calibration(
        target,
        draft,
        file=CalibrationFile(KEY, tmp_path),
        clock=lambda: clock[0],
        first_forward_s=first,
    )
    return made, target, draft, clock


def test_sizes_of_one_row_and_of_many_are_learnt(tmp_path) -> None:
    """Its samples let a cost model predict target steps, draft passes and catch-up within 5 %."""
    made, *_ = calibration(tmp_path)
    cost = CostModel()
    cost.calibrate(made.measure(8))
    for rows in (1, 8):
        expected, _ = cost.target_seconds(rows, rows, 4 * rows + 1, 0)
        assert expected[0] == pytest.approx(0.02 + 0.001 * rows, rel=0.05)
        assert expected[-1] == pytest.approx(0.02 + 0.001 * 5 * rows, rel=0.05)
        assert cost.draft_seconds(rows, 1, rows, 0) == pytest.approx(
            0.002 + 0.0001 * rows, rel=0.05
        )
    assert cost.catch_up_s == pytest.approx(0.0001, rel=0.2)


def test_nothing_is_left_behind(tmp_path) -> None:
    """Every row is given back, without a token that another prompt could take for a prefix."""
    made, target, draft, _ = calibration(tmp_path)
    made.measure(4)
    for runner in (target, draft):
        assert runner.rows_in_use == []
        assert len(runner.released) == 1 + 4
        assert not any(row.token_ids for row in runner.released)


@pytest.mark.parametrize("step_s", [0.01, 0.1, 0.4, 1.5])
def test_two_seconds_are_the_limit(tmp_path, step_s) -> None:
    """Of any model, over all batch sizes and all sessions together."""
    total = 0.0
    for rows in (1, 16, 4, 64, 4):
        made, _, _, clock = calibration(tmp_path, (step_s, step_s / 50), first=1.1 * step_s)
        begin = clock[0]
        made.measure(rows)
        total += clock[0] - begin
        assert made.spent_s == pytest.approx(total, abs=0.01)
    assert 0.0 < total <= BUDGET_S


def test_a_model_slower_than_the_limit_is_not_timed(tmp_path) -> None:
    """What one forward takes is known from the load."""
    made, target, draft, _ = calibration(tmp_path, (60.0, 0.0), first=60.0)
    assert made.measure(4) == []
    assert target.num_forwards == draft.num_forwards == 0


def test_a_size_timed_once_is_not_used(tmp_path) -> None:
    """Of 16 slow rows the two seconds hold one time: no sample, and no second try later."""
    made, *_ = calibration(tmp_path, (0.08, 0.008), first=0.09)
    of_target = [sample for sample in made.measure(16) if sample.kind == "target"]
    assert {sample.num_rows for sample in of_target} == {1}
    again, target, *_ = calibration(tmp_path, (0.08, 0.008), first=0.09)
    assert again.spent_s == pytest.approx(made.spent_s, abs=1e-5)
    again.measure(16)
    assert target.num_forwards == 0
    again.measure(4)
    assert target.released == []  # no row was reserved, which could cost a cached prefix


def test_the_next_session_reads_it(tmp_path) -> None:
    """Nothing is measured twice; other versions, models or formats measure their own."""
    first, *_ = calibration(tmp_path)
    samples = first.measure(4)
    again, target, *_ = calibration(tmp_path)
    assert again.samples == samples
    assert again.measure(1) == again.measure(5) == []
    assert target.num_forwards == 0
    for other in (
        replace(KEY, versions=("torch 3",)),
        replace(KEY, models=("another",)),
        replace(KEY, is_exact=True),
    ):
        assert CalibrationFile(other, tmp_path).read() == ([], 0.0)


def test_two_ways_of_one_pair_share_what_is_measured(tmp_path) -> None:
    """The second reads what the first one measured after both were built."""
    first, *_ = calibration(tmp_path)
    second, target, *_ = calibration(tmp_path)
    measured = first.measure(4)
    assert second.measure(4) == measured
    assert target.num_forwards == 0
    assert second.spent_s == pytest.approx(first.spent_s, abs=1e-5)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"key": 1}', "\x00"])
def test_a_broken_file_is_measured_anew(tmp_path, content) -> None:
    """And replaced."""
    file = CalibrationFile(KEY, tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.write_text(content)
    made, *_ = calibration(tmp_path)
    assert made.measure(1)
    assert CalibrationFile(KEY, tmp_path).read()[0] == made.samples


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path) -> None:
    """The session has its samples all the same."""
    (tmp_path / "spec-cli").write_text("a file where the folder should be")
    made, *_ = calibration(tmp_path)
    assert made.measure(1)


def test_times_of_a_busy_machine_are_not_kept(tmp_path) -> None:
    """They serve the session that met them only."""
    made, *_ = calibration(tmp_path, noise=6.0)
    assert made.measure(1)
    assert CalibrationFile(KEY, tmp_path).read() == ([], 0.0)


def test_llm_knows_its_costs_before_the_first_step(tmp_path) -> None:
    """`auto` may draft in the first step; the kept file speaks for the next LLM of the machine."""
    target = save_text_model(tmp_path)
    options = {"spec": "ngram", "cache_dir": tmp_path}
    with LLM(str(target), **options) as llm:
        calibrated = llm.assembly.calibration
        assert calibrated is not None
        assert calibrated.samples
        assert {sample.num_rows for sample in calibrated.samples} == {1}
        llm.generate(["a b a b"] * 3, SamplingParams(max_tokens=4))
        assert {sample.num_rows for sample in calibrated.samples} == {1, 3}
    with LLM(str(target), num_draft_tokens=2, **options) as llm:
        assert llm.assembly.calibration is None

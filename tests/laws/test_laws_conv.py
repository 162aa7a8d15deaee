"""Test the laws of finite networks over random convolutional specs, with and without BatchNorm."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, settings

import minintk as mn
from minintk import testing
from tests.kit.small_is_large import small_is_large
from tests.kit.strategies import SMOOTH, Case, cases, convolutional
from tests.kit.thinned import few

Array = np.ndarray[Any, Any]
nets = convolutional()


@given(cases(nets))
def test_adjoint(case: Case) -> None:
    testing.check_adjoint(case.net, case.theta, case.x, case.rng)


@given(cases(nets))
def test_derivative(case: Case) -> None:
    testing.check_derivative(case.net, case.theta, case.x, case.rng)


@given(cases(nets))
def test_gram(case: Case) -> None:
    testing.check_gram(case.net, case.theta, case.x, case.rng)


@given(cases(nets))
def test_kernel(case: Case) -> None:
    testing.check_kernel(case.net, case.theta, case.x, case.rng)


@given(cases(nets))
def test_stacked(case: Case) -> None:
    testing.check_stacked(case.net, case.theta, case.x, case.rng)


@given(cases(nets, ensembles=(1, 2, 4)))
def test_ensemble(case: Case) -> None:
    testing.check_ensemble(case.net, case.theta, case.x, case.rng)


@settings(max_examples=few(20))
@given(cases(nets))
def test_blocks(case: Case) -> None:
    testing.check_blocks(case.net, case.theta, case.x, case.rng)


@given(cases(convolutional(SMOOTH)))
def test_float32(case: Case) -> None:
    testing.check_float32(case.net, case.theta, case.x, case.rng)


@settings(max_examples=few(20))
@given(cases(nets, dtype=np.float32))
def test_laws_hold_in_float32(case: Case) -> None:
    testing.check_model(case.net, case.theta, case.x, case.rng)


@given(cases(nets, ensembles=(3,)))
def test_members_of_an_ensemble_are_bit_for_bit_the_networks_alone(case: Case) -> None:
    f, J = case.net.linearize(case.theta, case.x)
    v, u = case.rng.standard_normal(case.theta.shape), case.rng.standard_normal((3, len(case.x), case.net.outputs))
    for e in range(3):
        f_e, J_e = case.net.linearize(case.theta[e], case.x)
        assert np.array_equal(f[e], f_e)
        assert np.array_equal(J.jvp(v)[e], J_e.jvp(np.asarray(v)[e]))
        assert np.array_equal(J.vjp(u)[e], J_e.vjp(u[e]))


@given(cases(nets))
def test_the_kernel_of_a_batch_with_itself_is_symmetric_to_the_last_bit(case: Case) -> None:
    k = mn.ntk(case.net, case.theta, case.x)
    assert np.array_equal(k, k.swapaxes(-1, -2))
    full = mn.ntk_full(case.net, case.theta, case.x)
    assert np.array_equal(full, np.moveaxis(np.asarray(full), (-4, -3), (-2, -1)))


# ------------------------------------------------------------------------------------------ BatchNorm

coupled = convolutional(normalised=True)


@given(cases(coupled))
def test_batchnorm_in_training(case: Case) -> None:
    """Check derivatives of networks that normalise with the batch's statistics. Such networks have no kernel.

    If all inputs of a BatchNorm are equal, as after LayerNorm over one channel, J may consist only of rounding errors.
    Then tolerances relative to |J| are meaningless, so such cases are skipped.
    """
    x = case.rng.standard_normal((6, *case.net.input_shape))
    J = case.net.linearize(case.theta, x)[1].dense()
    assume(bool((np.abs(J).max(axis=(-3, -2, -1)) > 1e-6).all()))
    testing.check_adjoint(case.net, case.theta, x, case.rng)
    testing.check_derivative(case.net, case.theta, x, case.rng)
    testing.check_stacked(case.net, case.theta, x, case.rng)
    if case.theta.ndim == 2:
        testing.check_ensemble(case.net, case.theta, x, case.rng)


@settings(max_examples=few(25))
@given(cases(coupled))
def test_batchnorm_calibrated(case: Case) -> None:
    """Check the laws for a calibrated network. On the calibration batch, this network equals the uncalibrated one."""
    batch = case.rng.standard_normal((7, *case.net.input_shape))
    frozen, f = case.net.calibrate(case.theta, batch), case.net(case.theta, batch)
    tolerance = testing.roundings(case.net, case.theta, batch) * (1 + float(np.abs(f).max()))
    testing.assert_close("calibrated = the batch's statistics", frozen(case.theta, batch), f, tolerance)
    moved = case.theta + 0.1 * case.rng.standard_normal(case.theta.shape)  # away from relu's kink
    testing.check_model(frozen, np.asarray(moved), case.x, case.rng)


# ---------------------------------------------------------------- the other ways through the same formulas


@settings(max_examples=few(15))
@given(cases(nets))
def test_batches_split_over_cores(case: Case) -> None:
    with small_is_large():
        net = mn.Network(case.net.spec, case.net.input_shape, case.net.parametrization)
        testing.check_model(net, case.theta, case.x, case.rng)

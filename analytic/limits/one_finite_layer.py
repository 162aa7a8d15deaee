"""Compute the corrections of order 1/n due to one hidden layer of n neurons, with all other layers infinitely wide.

To first order in the inverse widths, the corrections of all layers add up, so we treat one finite layer at a time.  The
layers below are a Gaussian process: the pre-activations z_j of different neurons j are independent, with the NNGP k and
the NTK kappa of these layers.  The layers above are also a Gaussian process, f = F(sigma(z_1), ..., sigma(z_n)),

    F ~ GP(K(c, p, q)),  c = mean_j sigma(z_ja) sigma(z_jb),  p = mean_j sigma(z_ja)^2,  q = mean_j sigma(z_jb)^2

for examples a, b.  The network's NTK is a function T(c, p, q, rho) of these means and of rho = mean_j s_ab (see below).
Neuron j is described by z_j and g_j = sqrt(n) dF/dsigma_j, where g ~ GP(K_c).  Indices c, p, q, rho of K and T denote
derivatives; sigma, s1, s2, s3 are phi(z) and its derivatives; E is the mean over z ~ N(0, k).  With A = K or T, and

    alpha^A_a(b) = A_c sigma_b + 2 A_p sigma_a   tau_ab = kappa_ab s1_b   beta_ab = alpha^T_a(b) s1_a + K_c s2_a tau_ab
    s_ab = kappa_ab s1_a s1_b                   v = (sigma_a sigma_b, sigma_a^2, sigma_b^2, s_ab)     u = c, p, q, rho

averaging over F at fixed z by Wick's theorem to leading order gives n times each moment:

    Cov(Theta_ab, Theta_cd)    Cov(sum_u T_u v_u, sum_u T_u v_u) + (K_c,ac K_c,bd + K_c,ad K_c,bc) E s_ab s_cd
    E Theta_ab - T             1/2 sum_uu' T_uu' Cov(v_u, v_u') + E s_ab ((K_cc + 4 K_pq) v_c + 2 (K_cp v_p + K_cq v_q))
    E D2_a(b, c) f_d           X^K = E beta_ab tau_ac alpha^K_c(d) + E beta_ac tau_ab alpha^K_b(d)
                                      + K_c,bc E tau_ab tau_ac (s2_a alpha^K_a(d) + 2 K_p,ad s1_a^2)
    E grad D2_a(b, c).grad f_d X^T + K_c,cd E d(beta_ab tau_ac) + K_c,bd E d(beta_ac tau_ab)
                                    + K_c,ad K_c,bc E d(s2_a tau_ab tau_ac),          d : each z_e by kappa_ed s1_d

D2_a(b, c) = D^2 f_a[grad f_b, grad f_c], O3_abc = D2_a(b, c) + D2_b(a, c), O4_abcd = grad O3_abc . grad f_d.  With one
hidden layer, K = w^2 c + b^2 and g is the output weight.  (Roberts, Yaida and Hanin 2022, chapters 8 and 11, propagate
moments from layer to layer; docs/one-finite-layer.md derives the formulas and shows why layers' corrections add up.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import factorial
from typing import NamedTuple

import numpy as np

from minintk import spec as s
from minintk.arrays import Host
from minintk.models.power_series import Series, expanded

ORDER = 5
"""Number of derivatives of phi that the second derivatives of T need."""
PRICE = ((1, 1, 1.0), (2, 0, 0.5), (0, 2, 0.5))
"""(u, v, factor) for c, p, q: the derivative of E phi^(i)_a phi^(j)_b is factor E phi^(i+u)_a phi^(j+v)_b (Price)."""


class Moments(NamedTuple):
    """Moments for P examples, of which the first N are the training set: a < P, and b, c, d < N.

    theta : E Theta_ab - T.  cov : Cov(Theta_ab, Theta_cd).  o3f : E O3_abc f_d.  o4 : E O4_abcd.
    """

    theta: Host
    cov: Host
    o3f: Host
    o4: Host


class Jet(NamedTuple):
    """First and second derivatives, (4, P, P) and (4, 4, P, P), of a function of each pair's (c, p, q, rho)."""

    first: Host
    second: Host

    def below(self, first: Host, second: Host) -> Jet:
        """Return the jet in (c, p, q, rho) of the layer below, given the two arrays that `through` returns."""
        bent = np.einsum("iab,iuvab->uvab", self.first, second)
        bent += np.einsum("ijab,iuab,jvab->uvab", self.second, first, first, optimize=True)
        return Jet(np.einsum("iab,iuab->uab", self.first, first), bent)


def mean(a: Host, b: Host) -> Host:
    """Return the mean of a b over samples, (*A, *B), for a : (S, *A) and b : (S, *B)."""
    return np.tensordot(a, b, (0, 0)) / len(a)


def derivatives(phi: s.Layer, z: Host) -> list[Host]:
    """Return phi and its derivatives up to ORDER at z, from the power series of phi(z + t)."""
    line: Series = [z, np.ones_like(z), *(None for _ in range(ORDER - 1))]
    return [np.zeros_like(z) if c is None else factorial(i) * c for i, c in enumerate(expanded(phi, np, line)[0])]


def through(phi: list[Host], kappa: Host, w2: float) -> tuple[Host, Host]:
    """Return first and second derivatives of a layer's (c, p, q, rho) with respect to those below, for `Jet.below`.

    phi : the layer's phi and its derivatives at samples of z.  kappa : w2 (c + rho) + b^2 of the layer below.
    """
    P = len(kappa)

    def slopes(i: int, j: int) -> tuple[Host, Host]:
        """Return the first and second derivatives of E phi^(i)_a phi^(j)_b."""
        first, second = np.zeros((4, P, P)), np.zeros((4, 4, P, P))
        for u, (iu, ju, fu) in enumerate(PRICE):
            first[u] = w2 * fu * mean(phi[i + iu], phi[j + ju])
            for v, (iv, jv, fv) in enumerate(PRICE):
                second[u, v] = w2**2 * fu * fv * mean(phi[i + iu + iv], phi[j + ju + jv])
        return first, second

    first, second = np.zeros((4, 4, P, P)), np.zeros((4, 4, 4, P, P))
    first[0], second[0] = slopes(0, 0)
    own = np.diagonal(first[0].sum(0))[:, None], np.diagonal(second[0].sum((0, 1)))[:, None]  # E phi_a^2 needs only p
    (first[1, 1], second[1, 1, 1]), (first[2, 2], second[2, 2, 2]) = own, (own[0].T, own[1].T)
    (dot, bent), dkappa = slopes(1, 1), w2 * np.array([1, 0, 0, 1])[:, None, None]
    first[3] = kappa * dot + dkappa * mean(phi[1], phi[1])  # rho = kappa E phi'_a phi'_b
    second[3] = kappa * bent + dkappa[:, None] * dot + dkappa * dot[:, None]
    return first, second


@dataclass(frozen=True, eq=False, repr=False)
class FiniteLayer:
    """Apply the formulas at the top of this file to one finite layer.

    phi : sigma, s1, s2, s3, ... at samples of z, (S, P) each.  kappa : (P, P).  K, T : jets in this layer's means.
    N : the size of the training set.
    """

    phi: list[Host]
    kappa: Host
    K: Jet
    T: Jet
    N: int

    def moments(self) -> Moments:
        """Return all moments, multiplied by n."""
        found = [self.second_derivatives(a) for a in range(len(self.kappa))]
        D2 = (np.array(rows) for rows in zip(*found, strict=True))
        return Moments(*self.kernel(), *(rows[:, : self.N] + rows[: self.N].swapaxes(0, 1) for rows in D2))

    def kernel(self) -> tuple[Host, Host]:
        """Return n (E Theta - T), (P, N), and n Cov(Theta, Theta), (P, N, N, N)."""
        n, K, K2 = slice(self.N), self.K.first[0], self.K.second[..., : self.N]
        a, b, s1 = self.phi[0][..., None], self.phi[0][:, None, n], self.phi[1]
        s_ab = self.kappa[:, n] * s1[..., None] * s1[:, None, n]
        v = np.array([a * b, a**2 + 0 * b, 0 * a + b**2, s_ab])
        off = v - v.mean(axis=1, keepdims=True)
        psi = np.einsum("uab,usab->sab", self.T.first[..., n], off)
        pairs = K[:, None, n, None] * K[n, None, n] + K[:, None, None, n] * K[n, n, None]
        bent = (K2[0, 0] + 4 * K2[1, 2]) * v[0] + 2 * K2[0, 1] * v[1] + 2 * K2[0, 2] * v[2]
        curved = np.einsum("uvab,usab,vsab->ab", self.T.second[..., n], off, off, optimize=True) / len(a)
        return curved / 2 + np.mean(s_ab * bent, axis=0), mean(psi, psi[:, n]) + pairs * mean(s_ab, s_ab[:, n])

    @cached_property
    def alpha(self) -> tuple[Host, Host]:
        """Return alpha^K_a(b) and alpha^T_a(b), (S, P, P)."""
        a, b = self.phi[0][..., None], self.phi[0][:, None]
        return self.K.first[0] * b + 2 * self.K.first[1] * a, self.T.first[0] * b + 2 * self.T.first[1] * a

    def second_derivatives(self, a: int) -> tuple[Host, Host]:
        """Return n E D2_a(b, c) f_d and n E grad D2_a(b, c) . grad f_d, (P, N, N), for one a and all b."""
        _, s1, s2, s3, *_ = self.phi
        n, K, T, slope = slice(self.N), self.K.first[0], self.T.first, self.alpha[1][:, a]
        at1, at2, at3 = s1[:, [a]], s2[:, [a]], s3[:, [a]]
        dz = self.kappa[:, n] * s1[:, None, n]  # (S, e, d)
        tau, dtau = self.kappa[a] * s1, (self.kappa[a] * s2)[..., None] * dz  # (S, b), (S, b, d)
        beta = slope * at1 + K[a] * at2 * tau
        dbeta = (slope * at2 + 2 * T[1, a] * at1**2 + K[a] * at3 * tau)[..., None] * dz[:, [a]]
        dbeta += (T[0, a] * s1 * at1)[..., None] * dz + (K[a] * at2)[..., None] * dtau
        pair = tau[..., None] * tau[:, None, n]

        def moved(A: Host, alpha: Host) -> Host:
            """Return X^A."""
            along = tau[..., None] * alpha[..., n]  # (S, b, d)
            own = at2 * alpha[:, a, n] + 2 * A[1, a, n] * at1**2
            return mean(beta, along[:, n]) + mean(along, beta[:, n]).swapaxes(1, 2) + K[:, n, None] * mean(pair, own)

        by_c = mean(dbeta, tau[:, n]).swapaxes(1, 2) + mean(beta, dtau[:, n])
        by_b = mean(tau, dbeta[:, n]) + mean(dtau, beta[:, n]).swapaxes(1, 2)
        by_a = mean(pair, at3 * dz[:, a]) + mean(dtau, at2 * tau[:, n]).swapaxes(1, 2) + mean(at2 * tau, dtau[:, n])
        turned = K[n, n] * by_c + K[:, None, n] * by_b + K[a, n] * K[:, n, None] * by_a
        return moved(self.K.first, self.alpha[0]), moved(T, self.alpha[1]) + turned

"""Test the matching of layers between networks of different depths."""

from __future__ import annotations

import minintk as mn
from minintk.lab.experiments.layer_sizes import matched
from minintk.lab.experiments.named import spec_of_width


def test_branches_are_matched_with_those_of_the_same_relative_depth() -> None:
    """Branches 1 and 2 of two match branches 3 and 5 of five, by ceil(5 k / 2). Layers outside branches match too."""
    nets = [mn.Network(spec_of_width("resnet", 10, L)(4), (3,)) for L in (5, 2)]
    variable, (deep, shallow) = matched(nets, (5, 2))
    assert variable == "L"
    around = {"1": "1", "1.W": "1.W", "7": "4", "8.W": "5.W", "loss": "loss"}  # "1" and "8.W" are Dense layers
    branches = {"4.branch.1.W": "2.branch.1.W", "4": "2", "6.branch.3": "3.branch.3"}
    nowhere = dict.fromkeys(["2", "2.branch.1.W", "3.branch.3.W", "5"])
    for name, counterpart in (around | branches | nowhere).items():
        assert deep(name) == counterpart, name
    assert [shallow(t.name) for t in nets[1].layout.tensors] == [t.name for t in nets[1].layout.tensors]

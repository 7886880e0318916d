"""Position effects are found where a judge has them."""

from __future__ import annotations

import math

from court import vote

from suwen.jury.positions import position_effects


def both(judge, passage, first, second, place, size=4):
    one = vote("q", passage, judge, first, position=place, batch=size)
    return [one, one._replace(round=1, grade=second, position=size + 1 - place)]


def test_a_judge_that_prefers_the_top_is_found_and_one_that_does_not_is_not():
    votes = []
    for number, place in enumerate((1, 2, 3, 4)):
        top, bottom = ("S", "C") if place <= 2 else ("C", "S")
        votes += both("lazy", f"p{number}", top, bottom, place) + both("steady", f"p{number}", "A", "A", place)
    lazy, steady = position_effects(votes, ["lazy", "steady"])
    assert lazy.twice == steady.twice == 4
    assert lazy.same_grade == lazy.same_side == 0.0 and steady.same_grade == 1.0
    assert (lazy.first_half, lazy.second_half) == (4.0, 1.0) and steady.first_half == steady.second_half == 3.0
    assert lazy.means == {1: (4.0, 2), 2: (4.0, 2), 3: (1.0, 2), 4: (1.0, 2)}
    assert lazy.kappa == -1.0


def test_a_change_of_grade_on_one_side_is_no_change_of_side():
    (found,) = position_effects(both("j", "p", "S", "A", 1) + both("j", "p2", "A", "B", 2), ["j"])
    assert found.same_grade == 0.0 and found.same_side == 0.5
    (loose,) = position_effects(both("j", "p2", "A", "B", 2), ["j"], frozenset("SAB"))
    assert loose.same_side == 1.0


def test_abstentions_and_single_votes_are_not_compared():
    votes = [vote("q", "p", "j", "A"), *both("j", "p2", None, "A", 1), vote("q", "p", "other", "S")]
    (found,) = position_effects(votes, ["j"])
    assert found.twice == 0 and math.isnan(found.same_grade) and math.isnan(found.kappa)

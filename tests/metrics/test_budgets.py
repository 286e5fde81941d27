from jembench.metrics.budgets import BUDGETS, Budget


def test_the_numbers_behind_a_name_never_change():
    """Results in stores go by the name: a budget of other numbers needs another one."""
    assert {
        "paper": Budget(images=300, restarts=20, steps=40, tolerance=0.01, eot=5, queries=25_000, copies=100_000),
        "quick": Budget(images=25, restarts=2, steps=10, tolerance=0.05, eot=1, queries=1_000, copies=1_000),
    } == BUDGETS


def test_each_number_can_be_set_by_itself():
    changed = BUDGETS["quick"].but(images=7, steps=None)
    assert (changed.images, changed.steps, changed.restarts) == (7, 10, 2)
    assert BUDGETS["quick"].images == 25

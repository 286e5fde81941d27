import json


def test_the_recipe_that_is_asked_for_stands_first_and_others_below_it(jembench):
    done = jembench(
        "estimate",
        "jem:net=small-2",
        "--recipe",
        "digits",
        "--set",
        "epochs=2",
        "--against",
        "digits-paper",
    )
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("jem:net=small-2 on digits, ")
    assert [line.split("  ")[0].strip() for line in lines[3:]] == [
        "digits+epochs=2",
        "digits-paper",
    ]
    assert "timing digits-paper ..." in done.err


def test_a_dataset_need_not_be_there(jembench):
    arguments = ["estimate", "baseline:net=wrn-10-1", "--dataset", "cifar10", "--recipe", "paper"]
    (row,) = json.loads(jembench(*arguments, "--set", "batch_size=2", "--format", "json").out)
    assert row["iterations"] == 3750000  # 150 epochs of 25,000 batches


def test_models_without_iterations_and_recipes_that_do_not_fit(jembench, zoo_of_tests):
    for arguments, error in (
        (["zoo_of_tests:untrainable"], "cannot be trained"),
        (
            ["baseline:net=small-2", "--against", "code"],
            "Cannot hold 5000 of 1400 training images out",
        ),
    ):
        done = jembench("estimate", *arguments)
        assert (done.code, done.out) == (2, "")
        assert error in done.err

"""The baselines keep what every model promises."""

from jembench.testing import check_model, parametrize


@parametrize(check_model("baseline:net=small-1"))
def test_without_a_norm(check):
    check()


@parametrize(check_model("baseline:net=small-1,norm=batch,dropout=0.1"))
def test_with_batch_norm_and_dropout(check):
    check()


@parametrize(check_model("adversarial:net=small-1,steps=2"))
def test_trained_adversarially(check):
    check()


@parametrize(check_model("weat:net=small-1,steps=2,variant=adv"))
def test_weat(check):
    check()


@parametrize(check_model("ratio:net=small-1,steps=2,outlier_steps=2"))
def test_ratio(check):
    check()


@parametrize(check_model("smoothadv:net=small-1,steps=2"))
def test_smoothadv(check):
    check()

"""DAT and its sampler keep what every model and sampler promises."""

from jembench.testing import check_model, check_sampler, parametrize


@parametrize(check_model("dat:net=small-4,steps=2"))
def test_the_energies_of_the_code(check):
    check()


@parametrize(check_model("dat:net=small-4,logit=joint,steps=0"))
def test_joint(check):
    check()


@parametrize(check_model("dat:net=small-4,norm=batch,logit=marginal,steps=0"))
def test_marginal_with_frozen_batch_norm(check):
    check()


@parametrize(check_sampler("ascent-curriculum:start=permuted"))
def test_curriculum(check):
    check()

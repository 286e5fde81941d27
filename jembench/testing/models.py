"""The checks of models: what :mod:`jembench.interfaces` promises of every one, whoever wrote it."""

from __future__ import annotations

from functools import partial

from jembench.interfaces import DataSpec
from jembench.testing.asking import promises
from jembench.testing.checks import Check, checks_of
from jembench.testing.model_checks import (
    chance,
    densities,
    making,
    normalisation,
    outputs,
    saving,
    side_effects,
    training,
)
from jembench.testing.model_checks.subject import Subject


def checks(spec: str, data: DataSpec) -> list[Check]:
    """A check for every promise of a model, made for ``data``.

    Raises:
        SpecError: if there is no such model, or it is declared to fail a check that does not exist.
        PluginError: if it cannot be imported.
    """
    return checks_of("models", spec, PROMISES, partial(Subject, data=data))


PROMISES = promises(
    making.can_be_made,
    making.has_a_capability,
    making.trained_here_or_elsewhere,
    making.options_typed,
    making.shapes_from_data,
    outputs.logits_shape,
    outputs.energy_shape,
    outputs.log_prob_shape,
    outputs.samples_shape,
    outputs.samples_within_bounds,
    outputs.labels_taken_or_refused,
    outputs.answers_are_float32,
    outputs.answers_are_finite,
    outputs.one_image,
    outputs.each_image_alone,
    outputs.any_memory_layout,
    outputs.follows_its_device,
    chance.weights_by_seed,
    chance.making_sets_no_seed,
    chance.same_answer_twice,
    chance.samples_by_generator,
    chance.global_chance_left_alone,
    side_effects.mode_left_alone,
    side_effects.images_left_alone,
    side_effects.state_left_alone,
    side_effects.no_gradients_left,
    densities.energy_is_minus_log_density,
    densities.energy_sums_over_classes,
    densities.energy_follows_from_logits,
    densities.class_energies_agree_with_logits,
    densities.class_densities_agree_with_logits,
    densities.density_within_its_classes,
    normalisation.density_integrates_to_1,
    densities.answers_depend_on_the_class,
    densities.samples_depend_on_the_class,
    densities.energy_has_a_gradient,
    densities.gradient_is_of_the_energy,
    training.chains_are_known,
    training.passes_are_counted,
    training.loss_is_a_number,
    training.parts_are_numbers,
    training.energies_of_the_loss,
    training.loss_pulls_energies_apart,
    training.every_parameter_is_trained,
    training.loss_by_seed,
    training.labels_belong_to_x_labelled,
    training.training_lowers_the_loss,
    saving.saved_and_loaded,
    saving.deep_copy,
)
"""What every model promises."""

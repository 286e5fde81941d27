from jembench.running import fit_samples


def test_a_picture_is_of_the_classes_that_were_drawn_for_or_that_the_model_sees(
    plan, loaded, tmp_path, monkeypatch
):
    rows = []
    monkeypatch.setattr(
        fit_samples.grid, "write_png", lambda path, images, chosen, *_: rows.append(chosen)
    )
    evaluation = loaded(plan("factored"))
    kept = evaluation.samples()
    fit_samples.write_samples(evaluation, kept, tmp_path / "a.png", columns=4)
    shown = rows[-1]
    assert shown.shape == (3, 4)
    for number, row in enumerate(shown):
        assert (kept.labels[row[row >= 0]] == number).all()
    fit_samples.write_samples(evaluation, kept._replace(labels=None), tmp_path / "b.png", columns=4)
    seen = evaluation.predictions.read("logits", kept.images).argmax(1)
    for number, row in enumerate(rows[-1]):
        assert (seen[row[row >= 0]] == number).all()

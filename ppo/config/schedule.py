"""Coefficients that change while a run is trained."""


def scheduled(setting, remaining: float):
    """Return the value of a coefficient at some time in a run.

    remaining: the fraction of the run that is left, 1 at its start. setting: a number or None,
    returned as it is; "linear:<number>", the number times remaining; "adaptive:<number>", the one
    that the learner starts with; or a function of remaining.
    """
    if callable(setting):
        return setting(remaining)
    shape, colon, start = str(setting).partition(":")
    if not colon:
        return setting
    if shape == "linear":
        return float(start) * remaining
    return float(start)

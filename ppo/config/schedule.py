"""Coefficients that change while a run is trained."""


def scheduled(setting, remaining: float):
    """Return the value of a coefficient when a share of the run remains: 1 at its start, towards 0.

    setting: a number or None; "linear:<number>", from which it falls to 0; "adaptive:<number>", at
    which the learner begins to change it; or a function of the remaining share.
    """
    if callable(setting):
        return setting(remaining)
    shape, colon, start = str(setting).partition(":")
    if not colon:
        return setting
    if shape == "linear":
        return float(start) * remaining
    return float(start)

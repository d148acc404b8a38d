"""Environments that are stepped together: vector environments, EnvPool, PettingZoo's teams."""

from ppo.extensions import Extension, Form

HERE = "ppo.extras.vector"
BATCH = Form(
    suits=f"{HERE}.make:is_batch",
    look=f"{HERE}.look:look_at",
    worker=f"{HERE}.worker:BatchWorker",
    make_env=f"{HERE}.make:make_one_column",
    evaluate=f"{HERE}.evaluation:evaluate_batch",
)
TEAM = BATCH._replace(suits=f"{HERE}.make:is_team", evaluate=f"{HERE}.evaluation:evaluate_team")

EXTENSION = Extension(
    forms={"batch": BATCH, "team": TEAM},
    needs=("checks",),
    about_wrappers={
        f"gymnasium.wrappers.vector:{name}": "has statistics that are in no checkpoint and no "
        f"evaluation: leave it out, --{flag} does it here"
        for name, flag in (
            ("NormalizeObservation", "normalize_observations"),
            ("NormalizeReward", "normalize_rewards"),
        )
    },
    makers={"EnvPool/": f"{HERE}.envpool:make_envpool"},
)

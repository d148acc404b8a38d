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
    makers={"EnvPool/": f"{HERE}.envpool:make_envpool"},
)

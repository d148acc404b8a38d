"""Extras: features that the core does not name. Here is the table of what they add to it."""

from typing import Any

FLAGS = {  # each a field of a callback, which takes part in the run if one of its flags is given
    "stop_when": "ppo.extras.stopping:Stopping",
    "patience": "ppo.extras.stopping:Stopping",
    "max_time": "ppo.extras.stopping:Stopping",
    "init_from": "ppo.extras.fine_tuning:FineTuning",
    "freeze": "ppo.extras.fine_tuning:FineTuning",
    "critic_warmup": "ppo.extras.fine_tuning:FineTuning",
    "teacher": "ppo.extras.teacher:Teacher",
    "teacher_coef": "ppo.extras.teacher:Teacher",
    "video_every": "ppo.extras.videos:Videos",
    "policy_keys": "ppo.extras.keys:Keys",
    "value_keys": "ppo.extras.keys:Keys",
}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {  # what makes it; what its "auto" flags mean
    "lstm": ("ppo.extras.recurrent:make_recurrent", {"hidden_size": 128, "share_trunk": True}),
    "gru": ("ppo.extras.recurrent:make_recurrent", {"hidden_size": 128, "share_trunk": True}),
}
COLUMNS = {  # by a parameter or attribute of an environment's class or function: what steps it
    "num_envs": "ppo.extras.vector:VectorColumns",
    "possible_agents": "ppo.extras.teams:TeamColumns",
}
WRAPPERS = {  # by an attribute of an environment, or a part of its observations: what adapts it
    "action_mask": "ppo.extras.masks:adapt",
    "action_masks": "ppo.extras.masks:adapt",
}
REPEATS = {  # the wrapper of a flag that repeats actions
    "frame_skip": "ppo.extras.repeat:RepeatAction",
}
IDS = {  # by the prefix of an id: what returns its spec
    "EnvPool/": "ppo.extras.envpool:find_spec",
    "PettingZoo/": "ppo.extras.teams:find_spec",
}
COMMANDS = {  # each has Flags and main(words, Flags, flags)
    "check": "ppo.extras.check",
    "evaluate": "ppo.extras.evaluate",
    "export": "ppo.extras.export",
    "plot": "ppo.extras.plot",
    "report": "ppo.extras.report",
    "runs": "ppo.extras.runs",
    "seeds": "ppo.extras.seeds",
}
LAUNCHERS = {  # by an environment variable of a distributed job: what trains in its place
    "RANK": "ppo.extras.torchrun:train",
    "WORLD_SIZE": "ppo.extras.torchrun:train",
}
LOGGERS = {
    "tensorboard": "ppo.extras.tensorboard:TensorBoard",
    "wandb": "ppo.extras.wandb:WeightsAndBiases",
}

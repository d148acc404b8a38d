"""The forms in which environments come: each by itself, unless an extension knows another."""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import EnvSpec

from ppo.envs.env_kwargs import fill_in, tasks_of
from ppo.envs.errors import OtherForm
from ppo.envs.lookup import explained_errors, look_up
from ppo.extensions import Form, names_of

if TYPE_CHECKING:
    from ppo.config.config import Config

SINGLE = "single"
CORE = Form(
    suits="",
    look="ppo.envs.probe:look_at",
    worker="ppo.envs.worker:Worker",
    make_env="ppo.envs.make:make_env",
    evaluate="ppo.policy.evaluation:evaluate_envs",
)


def form_named(name: str) -> Form:
    """Return a form by its name."""
    return {**names_of("forms"), SINGLE: CORE}[name]


def form_of(spec: EnvSpec, made: Any = None) -> str:
    """Return the name of the form in which environments of a spec come, as far as it tells.
    made: what it has made, if that is no gymnasium.Env."""
    for name, form in names_of("forms").items():
        if resolve_name(form.suits)(spec, made):
            return name
    return SINGLE


def in_its_form(config: "Config", field: str, *arguments: Any, **options: Any) -> Any:
    """Call what the form of an environment has in a field with the config, of which the flags of
    EnvironmentFlags are used, and further arguments; return its result.

    Raises EnvironmentUnavailable if there is no such environment, and as the function does."""
    with explained_errors(config.env_name):
        spec, _ = look_up(config.env_name, fill_in(tasks_of(config.env_kwargs)[0], 0))
    form = form_named(form_of(spec))
    try:
        return resolve_name(getattr(form, field))(config, *arguments, **options)
    except OtherForm as error:  # what a function makes is seen once it has made it
        form = form_named(error.form)
    return resolve_name(getattr(form, field))(config, *arguments, **options)

"""Loading of YAML files and overrides into a checked `Experiment`, reporting all mistakes at once.

    read -> merge -> fill in defaults -> resolve ${...} -> validate -> refuse what has no effect

The tree of nodes records the place of each key, so that every step can report it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass, replace
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from art_cli.config.credentials import written_credentials
from art_cli.config.explain import Mistake, mistakes, read_into
from art_cli.config.interpolate import Resolved, escape, resolve
from art_cli.config.problem import KeyPath, Problem, dotted
from art_cli.config.rules import broken_rules
from art_cli.config.schema import Experiment
from art_cli.config.sections.deploy import TARGETS
from art_cli.config.unions import section_type
from art_cli.config.values import FORBID_UNKNOWN
from art_cli.config.yaml import (
    Node,
    dump,
    leaves,
    read_file,
    read_override,
)
from art_cli.errors import ConfigError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedExperiment:
    """A checked experiment and the origin of each of its settings."""

    experiment: Experiment
    env_settings: Any  # an instance of the env's own Config; None if the env is not known
    origins: dict[str, str]  # "train.steps" -> "config.yaml:12", "override" or "default"
    document: dict[str, Any]  # all settings; values from the environment are still ${...}
    tree: Node = field(repr=False)  # all settings with their places

    def to_yaml(self, with_origins: bool = False) -> str:
        """Return the whole config with its defaults: a valid experiment that loads to an equal one.

        It never contains values of environment variables. With origins, a comment in each line
        names the origin of its value.
        """
        comment = (lambda path: self.origins[dotted(path)]) if with_origins else None
        return dump(self.document, comment)

    def problem(self, key: str, message: str) -> Problem:
        """Return a problem of a setting on this machine, with its place."""
        return _located(Mistake(tuple(key.split(".")), "key", message), self.tree)


def load_experiment(
    paths: Sequence[Path],
    overrides: Sequence[str] = (),
    *,
    plugin_config: Callable[..., type] | None = None,
) -> LoadedExperiment:
    """Read the files in order, later ones overriding earlier ones, then `key.path=value` overrides.

    `plugin_config(use, python)` returns the settings dataclass of the env, or raises UsageError;
    the second argument is omitted if `env.python` is not set. Without it, `env.args` is not
    checked. Raises ConfigError with all mistakes.
    """
    if not paths:
        raise ConfigError(["no config file given; give one, for example: art run config.yaml"])
    return _load(paths, overrides, paths[0], plugin_config)


def load_env(
    use: str, args: Sequence[str], plugin_config: Callable[..., type], python: str | None = None
) -> LoadedExperiment:
    """Load an experiment that consists of an env; `args` are its settings as `key=value`.

    Raises ConfigError like load_experiment.
    """
    section = [f"env.use={json.dumps(use)}", f"env.python={json.dumps(python)}"]
    section += [f"env.args.{arg}" for arg in args]
    return _load([], [*section, "model.base=tiny", "train.steps=0"], Path("env"), plugin_config)


def read_settings(config: type, given: Mapping[str, Any], section: str = "env") -> Any:
    """Return the `args` of a section as a Config. Raise UsageError, a line for each mistake."""
    return read_into(_section(config), {"args": dict(given)}, section).args


def _load(
    paths: Sequence[Path],
    overrides: Sequence[str],
    named: Path,
    plugin_config: Callable[..., type] | None,
) -> LoadedExperiment:
    """Return the experiment. If it has no name, it gets that of the file `named`."""
    files = [read_file(path) for path in paths]
    changes = [read_override(text) for text in overrides]
    problems = [problem for _, found in (*files, *changes) for problem in found]
    if not all(tree for tree, _ in files):
        # Do not report settings as missing that an unreadable file may have.
        raise _config_error(problems, paths)
    tree = reduce(_merged, (tree for tree, _ in (*files, *changes) if tree))
    tree = _with_defaults(tree, Experiment, name=_name_from(named))
    env_section = None
    if plugin_config:
        tree, env_section, found = _with_env_defaults(tree, plugin_config)
        problems += [_located(mistake, tree) for mistake in found]
    resolved = resolve(_plain(tree))
    experiment, settings, found = _checked(resolved, env_section)
    problems += [_located(mistake, tree) for mistake in found]
    if problems:
        raise _config_error(problems, paths)
    document = resolved.as_written(resolved.data)
    return LoadedExperiment(
        experiment=experiment,
        env_settings=settings,
        origins={dotted(path): _origin(tree, path) for path, _ in leaves(document)},
        document=document,
        tree=tree,
    )


def _merged(base: Node, over: Node) -> Node:
    """Merge mappings. Any other value, including null, replaces the earlier one."""
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    value = dict(base.value)
    for key, node in over.value.items():
        value[key] = _merged(value[key], node) if key in value else node
    return replace(base, value=value)


def _with_defaults(node: Node, cls: type, **extra: Any) -> Node:
    """Add the defaults of a dataclass, in the order of its fields; `extra` are further defaults."""
    if not isinstance(node.value, dict):
        return node
    hints = get_type_hints(cls, include_extras=True)
    value: dict[str, Node] = {}
    for each in fields(cls):
        child = node.value.get(each.name)
        written = child.value if child and isinstance(child.value, dict) else {}
        section = section_type(hints[each.name], written)
        if child and section:
            value[each.name] = _with_defaults(child, section)
        elif child:
            value[each.name] = child
        elif (default := extra.get(each.name, _default(each))) is not MISSING:
            value[each.name] = _default_node(to_jsonable_python(default))
    return replace(node, value=value | {k: v for k, v in node.value.items() if k not in value})


def _default(of: Field[Any]) -> Any:
    if not of.init:
        return MISSING
    return of.default if of.default_factory is MISSING else of.default_factory()


def _default_node(value: Any) -> Node:
    if isinstance(value, dict):
        return Node({str(key): _default_node(item) for key, item in value.items()})
    if isinstance(value, list):
        return Node([_default_node(item) for item in value])
    return Node(escape(value) if isinstance(value, str) else value)


def _name_from(path: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).lstrip("._-")
    return name[:100] or "experiment"


def _with_env_defaults(
    tree: Node, plugin_config: Callable[..., type]
) -> tuple[Node, type | None, list[Mistake]]:
    """Add defaults of the env's Config to `env.args`. Also return a type for the section `env`."""
    assert isinstance(tree.value, dict)
    env = tree.value.get("env")
    if not env or not isinstance(env.value, dict) or "use" not in env.value:
        return tree, None, []  # validation reports this, like a `use` that is not text
    written = {key: env.value[key].value for key in ("use", "python") if key in env.value}
    if any(isinstance(value, str) and "${" in value for value in written.values()):
        written = resolve(_plain(tree)).data["env"]
    use, python = written["use"], written.get("python")
    if not isinstance(use, str) or not isinstance(python, str | None):
        return tree, None, []
    try:
        config = plugin_config(use, python) if python else plugin_config(use)
    except UsageError as error:
        key = ("env", "python" if python else "use")
        return tree, None, [Mistake(key, "value", str(error).removeprefix(f"{dotted(key)}: "))]
    section = _section(config)
    try:
        _adapter(section)
        args = _with_defaults(env.value["args"], config)
    except (PydanticUserError, PydanticSerializationError, NameError, TypeError) as error:
        message = f"the Config of this env must be a dataclass of what YAML can say: {error}"
        return tree, None, [Mistake(("env", "use"), "value", message)]
    env = replace(env, value=env.value | {"args": args})
    return replace(tree, value=tree.value | {"env": env}), section, []


@lru_cache(maxsize=8)
def _section(args: type) -> type:
    """Return a dataclass with `args`, which then refuses unknown keys like its container."""
    namespace = {"__pydantic_config__": FORBID_UNKNOWN}
    return make_dataclass("Section", [("args", args)], namespace=namespace)


@lru_cache(maxsize=8)
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def _checked(resolved: Resolved, env_section: type | None) -> tuple[Any, Any, list[Mistake]]:
    """Return the experiment and the env's settings, which are None with mistakes, and mistakes."""
    found = list(resolved.mistakes)

    def validated(cls: type, data: Any, prefix: KeyPath) -> Any:
        secrets = {
            path[len(prefix) :]: text
            for path, text in resolved.secrets.items()
            if path[: len(prefix)] == prefix
        }
        try:
            # JSON, because strict validation of Python objects takes no mapping for a dataclass.
            return _adapter(cls).validate_json(json.dumps(data), strict=True)
        except ValidationError as error:
            for mistake in mistakes(error, cls, data, secrets):
                path = prefix + mistake.path
                # Do not report values that could not be resolved.
                if not any(path[: len(bad.path)] == bad.path for bad in resolved.mistakes):
                    found.append(replace(mistake, path=path))

    experiment = validated(Experiment, resolved.data, ())
    settings = None
    if env_section and isinstance(args := resolved.data["env"]["args"], dict):
        settings = validated(env_section, {"args": args}, ("env",))
    deploy = resolved.data.get("deploy")
    if isinstance(deploy, dict) and deploy.get("use") in TARGETS:
        validated(_section(TARGETS[deploy["use"]]), {"args": deploy["args"]}, ("deploy",))
    found += broken_rules(resolved, {mistake.path for mistake in found})
    found += written_credentials(resolved.as_written(resolved.data))
    return experiment, settings and settings.args, found


def _located(mistake: Mistake, tree: Node) -> Problem:
    """Locate a mistake: at an override if one is involved, else in the file or its section.

    With an override, the lines of the file are not what the user has to change.
    """
    path, message = mistake.path, mistake.message
    for pointed in sorted((path, *mistake.others), key=lambda p: not _is_override(tree, p)):
        nodes = _nodes(tree, pointed)
        exact = nodes[-1] if len(nodes) == len(pointed) + 1 else None
        if mistake.about == "value" and exact and not exact.place:
            message += " (the env's own default)"
        elif mistake.about == "value" and exact and exact.place:
            return Problem(exact.place, path, message, mistake.is_secret)
        if written := [node for node in nodes[1:] if node.place]:
            place = written[-1].key_place or written[-1].place
            assert place
            return Problem(place, path, message, mistake.is_secret)
    assert tree.key_place
    return Problem(tree.key_place, path, message, mistake.is_secret)


def _is_override(tree: Node, path: KeyPath) -> bool:
    nodes = _nodes(tree, path)
    place = nodes[-1].place if len(nodes) == len(path) + 1 else None
    return place is not None and place.line is None


def _nodes(tree: Node, path: KeyPath) -> list[Node]:
    """Return the existing nodes on a path, starting at the root."""
    nodes = [tree]
    for key in path:
        value = nodes[-1].value
        if isinstance(value, dict) and key in value:
            nodes.append(value[str(key)])
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            nodes.append(value[key])
        else:
            break
    return nodes


def _origin(tree: Node, path: KeyPath) -> str:
    place = _nodes(tree, path)[-1].place
    if place is None:
        return "default"
    return f"{Path(place.source).name}:{place.line}" if place.line else "override"


def _plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {key: _plain(item) for key, item in node.value.items()}
    return [_plain(item) for item in node.value] if isinstance(node.value, list) else node.value


def _config_error(problems: list[Problem], paths: Sequence[Path]) -> ConfigError:
    """Sort problems by file and line, with overrides last."""
    files = [str(path) for path in paths]

    def position(problem: Problem) -> tuple[int, int, int]:
        place = problem.place
        file = files.index(place.source) if place.source in files else len(files)
        return file, place.line or 0, place.column or 0

    found = {str(problem): problem.pointed() for problem in sorted(problems, key=position)}
    return ConfigError(list(found), "\n".join(found.values()))

"""The command line: `run` (the controller), `plan` (what it would do, over files), and `cleanup`.

Exit codes: 0 done and sound; 1 could not do it (one line on stderr, nothing on stdout); 2 done, and
it found violations.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quota_translator import __version__

if TYPE_CHECKING:
    from quota_translator.settings import Settings

PROGRAM = "quota-translator"
application = typer.Typer(
    name=PROGRAM,
    help="Translates a tree of accelerator quotas into Kueue objects, and says whether each "
    "promise in it is true.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


capacity = typer.Typer(help="The hardware that budgets are checked against.", rich_markup_mode=None)
application.add_typer(capacity, name="capacity", no_args_is_help=True)


TextOrJson = Annotated[str, typer.Option("--output", "-o", help="text or json.", metavar="FORMAT")]
KubeconfigOption = Annotated[
    str | None, typer.Option(help="As for run.", metavar="FILE", show_default=False)
]
ContextOption = Annotated[
    str | None, typer.Option(help="As for run.", metavar="NAME", show_default=False)
]
ExecCommandsOption = Annotated[
    str | None, typer.Option(help="As for run.", metavar="NAME,…", show_default=False)
]


def fail(message: str) -> typer.Exit:
    """One line on stderr, exit code 1."""
    typer.echo(f"{PROGRAM}: {message}", err=True)
    return typer.Exit(1)


def _settings(flags: Mapping[str, Any], config: Path | None) -> "Settings":
    """Of the flags, the environment and the file; a mistake in them ends the program."""
    from quota_translator.settings import SettingsError, load_settings

    try:
        return load_settings(flags, config)
    except SettingsError as error:
        raise fail(str(error)) from None


def _check_output(output: str, *allowed: str) -> None:
    if output not in allowed:
        raise fail(f"--output: {output!r} is not one of {', '.join(allowed)}")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@application.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version  # its callback has printed it


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each setting. The command gets those given, as `flags`."""
    from quota_translator.settings import Settings, default_text, flag, metavar

    own = inspect.signature(command)
    parameters = [p for p in own.parameters.values() if p.name != "flags"]
    for name, field in Settings.model_fields.items():
        default = default_text(name)
        text = f"{field.description}" + (f" [default: {default}]" if default else "")
        option = typer.Option(flag(name), help=text, metavar=metavar(name), show_default=False)
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[str | None, option],
            )
        )

    def wrapper(**values: Any) -> None:
        flags = {name: values.pop(name) for name in Settings.model_fields}
        command(**values, flags=flags)

    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


@_with_settings
def run(
    *,
    local: Annotated[
        Path | None,
        typer.Option(
            help="Work on a folder of YAML in place of a cluster: its files are what was seen, the "
            "Kueue objects are written beneath --output.",
            metavar="DIR",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="With --local: where the Kueue objects and statuses go "
            "(DIR/.quota-translator when it is not given).",
            metavar="DIR",
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="With --local: settle, print the tree with its verdict, and end."
        ),
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file of settings.", metavar="FILE")
    ] = None,
    flags: dict[str, Any],
) -> None:
    """Run the controller, on a cluster or (--local) on a folder of YAML.

    Each setting is a flag, an environment variable (QUOTA_TRANSLATOR_ and the name in capitals)
    and a field of the file that --config names; a flag beats the environment, which beats the file.
    """
    from quota_translator.app import run_cluster, run_local

    settings = _settings(flags, config)
    if local is None:
        if once or output:
            raise fail("--once and --output go with --local DIR")
        raise typer.Exit(run_cluster(settings))
    raise typer.Exit(run_local(settings, local, output, once=once))


application.command()(run)


@application.command()
def plan(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Files and folders of YAML or JSON: nodes, ResourceFlavors, namespaces, "
            "AcceleratorQuotas, and Kueue's current objects as kubectl prints them.",
            metavar="PATH…",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="text, json, yaml, or markdown: a summary for a comment on a pull request.",
            metavar="FORMAT",
        ),
    ] = "text",
    mark: Annotated[
        list[str] | None,
        typer.Option(
            help="An earlier high-water mark, such as nvidia.com/gpu/a100=32. May be repeated.",
            metavar="RESOURCE/FLAVOR=N",
        ),
    ] = None,
    enrolled: Annotated[
        str | None,
        typer.Option(
            help="The namespaces that may submit, comma-separated. Default: all in the input.",
            metavar="NAMESPACE,…",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file of settings, as for run.", metavar="FILE")
    ] = None,
) -> None:
    """Say what the controller would do, over files, without a cluster.

    Prints the tree with shares, use and conditions, the capacity table, the violations with file
    and line, and the changes to Kueue's objects. Exit code 2 when there are violations.
    """
    from quota_translator.local.run_plan import run_plan

    _check_output(output, "text", "json", "yaml", "markdown")
    options = _settings({}, config).options()
    names = None if enrolled is None else tuple(n.strip() for n in enrolled.split(",") if n.strip())
    code, text, problems = run_plan(
        paths, output=output, marks=mark or [], enrolled=names, options=options
    )
    if problems:
        typer.echo(problems.rstrip("\n"), err=True)
    if text:
        typer.echo(text.rstrip("\n"))
    raise typer.Exit(code)


@application.command()
def cleanup(
    *,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without this it is only shown.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also while a controller is alive, which makes everything again."
        ),
    ] = False,
    output: TextOrJson = "text",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    kubeconfig_exec_commands: ExecCommandsOption = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            help="Where the controller lived. Default: where root's status says.",
            metavar="NAMESPACE",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file of settings, as for run.", metavar="FILE")
    ] = None,
) -> None:
    """Take everything of ours off a cluster, once the controller is gone.

    Removes our webhook configuration, our Kueue objects, the cover flavor, our finalizers, the
    webhook's Secret and the Lease. AcceleratorQuotas, their CRD and flavors of people's stay.
    Exit code 2 when queues stay until the work in them has ended.
    """
    from quota_translator.cleanup import run_cleanup

    _check_output(output, "text", "json")
    flags = {
        "kubeconfig": kubeconfig,
        "context": context,
        "kubeconfig_exec_commands": kubeconfig_exec_commands,
        "namespace": namespace,
    }
    settings = _settings(flags, config)
    raise typer.Exit(run_cleanup(settings, yes=yes, force=force, output=output))


@capacity.command()
def retire(
    resource: Annotated[str, typer.Argument(help="Such as nvidia.com/gpu.", metavar="RESOURCE")],
    flavor: Annotated[str, typer.Argument(help="Such as v100.", metavar="FLAVOR")],
    *,
    output: TextOrJson = "text",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    kubeconfig_exec_commands: ExecCommandsOption = None,
) -> None:
    """Give up the high-water mark of hardware that is gone for good.

    A pair that no node reports keeps its mark, because a pool that is scaled to zero is no loss.
    Once it is retired, budgets on it freeze until they are lowered. Refused while nodes report it.
    """
    from quota_translator.core.names import Pair
    from quota_translator.retire import run_retire

    _check_output(output, "text", "json")
    flags = {
        "kubeconfig": kubeconfig,
        "context": context,
        "kubeconfig_exec_commands": kubeconfig_exec_commands,
    }
    settings = _settings(flags, None)
    raise typer.Exit(run_retire(settings, Pair(resource, flavor), output))


def main() -> None:
    """The console script. Click's own usage errors exit 1 as everything that could not be done."""
    # typer brings its own copy of click and names its base exceptions nowhere public.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        code = application(prog_name=PROGRAM, standalone_mode=False)
    except usage_error as error:
        message = str(getattr(error, "format_message", error.__str__)())
        typer.echo(f"{PROGRAM}: {message} (see --help)", err=True)
        sys.exit(1)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe went away (quota-translator plan … | head): nothing to say.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)

"""Groups of commands: one imported only when it runs, and an answer to names that are not there."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from jembench.errors import unknown


class LazyCommand(NamedTuple):
    """A command that has not been imported, and what ``--help`` says of it."""

    target: str  # module:attribute
    help: str


class Group(click.Group):
    """A group that answers an unknown command with the nearest ones and all, and none at all with its help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's own options."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with.

        Raises:
            SpecError: if there is none of that name.
        """
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise unknown("command", args[0], known, f"{ctx.command_path} --help")
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group whose commands are imported one at a time, when they run: ``--help`` imports none of them."""

    def __init__(self, *args: Any, late: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.late = late

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which they were given."""
        return list(self.late)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self.late:
            return None
        module, attribute = self.late[cmd_name].target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Group) and not any(known.name == "plugin" for known in command.params):
            from jembench.cli import options  # imports what --help need not wait for

            options.plugin(command)  # whatever is done, it may be done with a plugin of the user's own
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands into the help, without importing them for their own."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.late.items()])

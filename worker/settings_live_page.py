"""The group `live_page` of `worker.settings`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from worker.settings_groups import Group


class LivePage(Group):
    """A page that shows what the worker does, for development and demos."""

    enabled: bool = False
    """Whether it is served."""
    host: str = "127.0.0.1"
    """Address to listen on. The page has no sign-in: whoever reaches it sees the ids of calls."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 9_109
    """Port to listen on; 0: any free one."""
    names: tuple[str, ...] = ()
    """Names by which browsers may call it besides `localhost` and IP addresses, as a JSON list."""
    show_text: bool = False
    """Whether it shows what is said."""
    most_sessions: Annotated[int, Field(ge=1, le=500)] = 50
    """Calls shown; those heard last."""

    @field_validator("names")
    @classmethod
    def _without_ports(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not name or not all(c.isalnum() or c in ".-_" for c in name):
                raise ValueError("names are host names without a port")
        return names

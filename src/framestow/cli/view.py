"""``framestow view``: show what a saved replay memory contains, in a browser."""

from __future__ import annotations

import dataclasses
import shlex
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console

from framestow.cli.arguments import check_output
from framestow.cli.printing import ProgressDisplay, print_line, print_warning
from framestow.cli.saved_memory import AGENT, RUN_SETTINGS, SavedMemory, find_memory
from framestow.errors import FramestowError, InvalidSettingsError
from framestow.interface import plural
from framestow.replay.eviction.byte_amounts import format_bytes, parse_bytes

if TYPE_CHECKING:
    from framestow.replay.memory import ReplayMemory
    from framestow.viewer.agent_values import AgentValues


MOST_MESSAGES = 3  # about damage; the page has more


@dataclasses.dataclass(frozen=True)
class View:
    """Show a replay memory in a browser: its episodes as videos, their rewards, and what the learner gets of each step.

      framestow view runs/Breakout-baselines-s0-20260131-174500
      framestow view my.memory --output memory.html --max-size 10MB
      framestow view my.memory --serve --open

    Takes the folder of a memory (written by save() or directory=), of a run or of a checkpoint. It only reads there,
    so it works while another process is writing. It writes one HTML file, which needs no network. A file has as many
    whole episodes as fit: the newest, those with the best and the worst returns, and some in between. With --serve, a
    server on this machine shows all of them, of a memory of any size, until Ctrl-C. Of a run, the page has the agent's
    values of the actions and the TD errors too.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a memory, a run or a checkpoint."""

    output: Path | None = None
    """HTML file; None writes NAME.html beside the folder NAME of the memory."""

    max_size: str = "50 MB"
    """Largest size of the file, such as '50 MB' or '8 MiB'."""

    serve: bool = False
    """Serve the page on this machine and write no file. The address has a secret token, and works here only."""

    open: bool = False
    """Open the page in the browser."""

    follow_links: bool = False
    """Follow checkpoints or a memory in the run folder that are links to folders elsewhere. Only for runs you trust."""

    def run(self, console: Console) -> int:
        """Write the page, or serve it, and return the exit code."""
        if self.serve and self.output:
            raise InvalidSettingsError(f"output is {self.output}: --serve writes no file; leave one of the two out")
        max_bytes = parse_bytes(self.max_size, "max_size")
        found = find_memory(self.folder, follow_links=self.follow_links)
        return self._serve(found, console) if self.serve else self._write(found, max_bytes, console)

    def _write(self, found: SavedMemory, max_bytes: int, console: Console) -> int:
        from framestow.viewer.memory_view import MemoryView  # noqa: PLC0415 -- --help must not wait for it
        from framestow.viewer.page import write_page  # noqa: PLC0415 -- likewise

        folder = found.folder.resolve()
        output = self.output or folder.with_name(f"{folder.name}.html")
        check_output("output", output)
        with ProgressDisplay(console, "reading the memory"):
            view = MemoryView.open(*found, find_agent=lambda memory: self._find_agent(found, memory, console))
        with ProgressDisplay(console, "writing the page", "bytes") as progress:
            num_episodes = write_page(view, output, max_bytes, progress)
        shown = f"{num_episodes:,} of {plural(len(view.table), 'episode')} in {format_bytes(output.stat().st_size)}"
        print_line(console, f"{shown} written to {output}")
        for message in list(view.damage)[:MOST_MESSAGES]:
            print_warning(console, message)
        if view.damage:
            command = f"framestow verify {shlex.quote(str(found.folder))}"
            print_warning(console, f"the memory is damaged; the places: {command}")
        if self.open:
            webbrowser.open(output.resolve().as_uri())
        return 0

    def _find_agent(self, found: SavedMemory, memory: ReplayMemory, console: Console) -> AgentValues | None:
        """Return the agent of the run that the memory belongs to; ``None`` if there is none, or no PyTorch."""
        run = found.folder.resolve().parent
        if not (run / RUN_SETTINGS).is_file():
            return None
        try:
            from framestow.training.run_folder import RunFolder  # noqa: PLC0415 -- imports PyTorch
            from framestow.viewer.agent_values import AgentValues  # noqa: PLC0415 -- likewise

            checkpoint = self.folder if (self.folder / AGENT).is_file() else None
            return AgentValues(RunFolder.open(run, follow_links=self.follow_links), memory, checkpoint)
        except ImportError as error:
            print_line(console, f"the agent's values are not shown: {error}; install framestow[train]", "yellow")
        except FramestowError as error:
            print_line(console, f"the agent's values are not shown: {error}", "yellow")
        return None

    def _serve(self, found: SavedMemory, console: Console) -> int:
        from framestow.viewer.server import ViewServer  # noqa: PLC0415 -- --help must not wait for it

        with ProgressDisplay(console, "reading the memory"):
            server = ViewServer(*found, find_agent=lambda memory: self._find_agent(found, memory, console))
        for line in server.address, "served until Ctrl-C":
            print_line(console, line)
        if self.open:
            webbrowser.open(server.address)
        try:
            server.serve()
        except KeyboardInterrupt:
            print_line(console, "stopped")
        return 0

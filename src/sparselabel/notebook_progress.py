"""Progress bars in a notebook: HTML that is replaced in place, without widgets."""

import html
import time
from datetime import timedelta

from IPython.display import HTML, display
from rich.progress import Progress, Task, TaskID

EVERY = 0.1  # seconds between two updates of the bars


class NotebookProgress(Progress):
    """Rich's account of tasks, shown as HTML; the bars disappear when all is done."""

    def start(self) -> None:
        self._shown_at = 0.0
        self._handle = display(HTML(""), display_id=True)  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        self._handle.update(HTML(""))  # type: ignore[no-untyped-call]

    def refresh(self) -> None:
        """Show where the tasks are; called by Rich when tasks come and go."""
        self._shown_at = time.monotonic()
        rows = "".join(row_of(task) for task in self.tasks if task.visible)
        self._handle.update(HTML(f"<table>{rows}</table>"))  # type: ignore[no-untyped-call]

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        if time.monotonic() - self._shown_at >= EVERY:
            self.refresh()


def row_of(task: Task) -> str:
    """A task as a row: what it is, a bar, how many are done, and the time left."""
    done, total = int(task.completed), task.total
    value = "" if total is None else f' value="{done}" max="{int(total)}"'
    left = task.time_remaining
    cells = (
        html.escape(task.description),
        f'<progress{value} style="width: 20em"></progress>',
        f"{done:,}" if total is None else f"{done:,}/{int(total):,}",
        "" if left is None else f"{timedelta(seconds=round(left))} left",
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"

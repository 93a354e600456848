"""What can go wrong and be said in one line: `InputError` for what was given, `TrainingError` for what a run did."""


class InputError(ValueError):
    """Something given by the user cannot be used; the message names it, what was given and what is allowed."""


class TrainingError(RuntimeError):
    """A run that must not go on (loss not finite, collapse); the message says where and the likely cause."""


class Interrupted(RuntimeError):
    """A run was asked to stop; its checkpoint is written and it can be resumed."""


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]

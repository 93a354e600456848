"""What an evaluation found."""

from dataclasses import dataclass, field
from typing import Any

DISTANCES = ("fed",)
SHARES = ("accuracy", "ap50", "ap75")  # how details end that are told in per cent
UNTOLD = ("by_lr", "confusion", "per_class", "classes", "paper_lr")  # details that are too long for a line
WORDS = {  # how others are told
    "lr": "rate",
    "train_accuracy": "on training samples",
    "paper_accuracy": "with the rate that is best on test samples, the paper's way,",
    "majority_accuracy": "always the most frequent class",
}


@dataclass(frozen=True)
class Result:
    """What a protocol found, an accuracy or a distance, never without the constants behind it."""

    protocol: str
    data: str
    value: float
    constants: dict[str, Any]
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def is_distance(self) -> bool:
        """Whether less is better."""
        return self.protocol in DISTANCES

    @property
    def accuracy(self) -> float:
        """The value, where it is an accuracy."""
        if self.is_distance:
            raise AttributeError(f"{self.protocol} is a distance and no accuracy; see `value`")
        return self.value

    @property
    def scaled(self) -> float:
        """The value in the unit in which people write it: per cent, or 0.0001 for a distance."""
        return (1e4 if self.is_distance else 100) * self.value

    @property
    def shown(self) -> str:
        """The value with its unit."""
        return f"{self.scaled:.2f}{'e-4' if self.is_distance else ' %'}"

    def __str__(self) -> str:
        told = {name: value for name, value in self.details.items() if name not in UNTOLD}
        told |= {name: f"{100 * value:.2f} %" for name, value in told.items() if name.endswith(SHARES)}
        details, constants = (
            ", ".join(f"{WORDS.get(name, name)} {value}" for name, value in part.items())
            for part in (told, self.constants)
        )
        first = f"{self.protocol} on {self.data}: {self.shown}" + (f" ({details})" if details else "")
        return f"{first}\n  {constants}" if constants else first

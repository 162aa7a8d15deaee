"""What a check found: the side that is wrong, the cause by name, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: where ("dW", "forward"), the name of its cause ("unnamed" if none fits), a sentence."""

    where: str
    cause: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True)
class Diagnosis:
    """All that a check found, nothing if it passes; true where there is something.

    >>> said = Diagnosis((Finding("db", "sign", "right but for the sign"),))
    >>> said.passed, str(said), said.causes
    (False, 'db: right but for the sign', {'db': 'sign'})
    """

    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def causes(self) -> dict[str, str]:
        """{side: the first cause found there}."""
        return {finding.where: finding.cause for finding in reversed(self.findings)}

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "passed"

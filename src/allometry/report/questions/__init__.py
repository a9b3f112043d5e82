"""Studies of expressive power: degrees, ranks, and built against trained networks."""

from typing import TYPE_CHECKING

from allometry.report.questions.built import built_against_trained
from allometry.report.questions.degrees import degree
from allometry.report.questions.findings import Answer, Finding
from allometry.report.questions.ranks import mixer, rank

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Answer", "Finding", "answer"]

_ANSWERS = {
    "degree": degree,
    "rank": rank,
    "mixer": mixer,
    "built-against-trained": built_against_trained,
}


def answer(name: str, done: "pd.DataFrame") -> Answer:
    """The answer that the finished runs give to a question.

    Args:
        name: `"degree"`, `"rank"`, `"mixer"` or `"built-against-trained"`.
        done: The rows of a study's frame that are done.

    References:
        `levine2020` (separation rank of attention), `tolstikhin2021` (the Mixer).
    """
    if done.empty or "part" not in done:
        return Answer("No run has finished yet, so there is no answer.", (), ())
    return _ANSWERS[name](done)

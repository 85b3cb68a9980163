"""The texts in rules of prometheus-adapter beside Go's own packages, on patterns that nobody chose.

`SEED=n COUNT=n` in the environment try others.
"""

import os
import shutil

import pytest

from tests.kit.gotexts import answers_of_go, differences, questions, random_questions, recorded

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="no `go` on this machine, which is asked")


def test_the_recorded_answers_are_those_of_the_go_that_is_here() -> None:
    asked, answers = recorded()
    assert asked == [list(each) for each in questions()]
    now = answers_of_go(asked)
    # The words of an error are not compared: they change from version to version.
    assert [answer.get("text", "refused") for answer in now] == [answer.get("text", "refused") for answer in answers]


def test_patterns_that_nobody_chose_have_gos_answer() -> None:
    asked = list(random_questions(int(os.environ.get("SEED", "1")), int(os.environ.get("COUNT", "20000"))))
    answers = answers_of_go(asked)
    assert sum("error" not in answer for answer in answers) > len(asked) / 10
    assert differences(asked, answers)[:3] == []

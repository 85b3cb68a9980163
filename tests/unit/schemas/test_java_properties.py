"""A client.properties is read as Java reads it: recorded answers of Java, which are asked for again where Java is."""

from __future__ import annotations

import json
import shutil

import pytest

from schemas.connection import SettingsError, gather
from schemas.javaproperties import JavaTextError, read_jaas, read_properties
from tests.javaanswers import RECORDED, Grammar, JavaAnswer, java_answers, texts

ANSWERS: list[JavaAnswer] = json.loads(RECORDED.read_text())


def read(grammar: Grammar, text: str) -> list[list[str]] | None:
    """What our readers answer, in the form of the record."""
    try:
        if grammar == "jaas":
            found = read_jaas(text)
            return sorted([[found.name], *map(list, found.options.items())])
        return sorted([key, value] for key, value in {each.key: each.value for each in read_properties(text)}.items())
    except JavaTextError:
        return None


@pytest.mark.parametrize("grammar", ["properties", "jaas"])
def test_every_text_is_read_as_java_reads_it(grammar: Grammar) -> None:
    asked = [each for each in ANSWERS if each["grammar"] == grammar]
    differences = [(each, ours) for each in asked if (ours := read(grammar, each["text"])) != each["answer"]]

    assert differences == []
    answers = [each["answer"] is None for each in asked]
    assert any(answers)
    assert not all(answers)


def test_the_record_is_of_these_texts() -> None:
    assert [(each["grammar"], each["text"]) for each in ANSWERS] == texts()


@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_the_record_is_what_java_answers() -> None:
    assert java_answers() == ANSWERS


WRITTEN_BY_JAVA = """#Tue Feb 03 10:11:12 UTC 2026
bootstrap.servers=b-1.example.com\\:9096,b-2.example.com\\:9096
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username\\="alice" \
password\\="pa\\=ss\\:word\\u00E9";
"""


def test_what_java_has_stored_gives_the_settings_that_java_has_had() -> None:
    settings = gather({}, properties=WRITTEN_BY_JAVA)

    assert settings.servers == ["b-1.example.com:9096", "b-2.example.com:9096"]
    assert (settings.username, settings.password) == ("alice", "pa=ss:wordé")


def test_a_blank_ends_a_key_and_a_value_loses_the_blanks_around_it() -> None:
    assert gather({}, properties="bootstrap.servers a:1,\\\n  b:2  \nclient.id: me \n").servers == ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("hunter", "property 1: expected name=value", id="a word alone"),
        pytest.param("client.id=a\nhunter two", "property 2: expected name=value", id="words alone"),
        pytest.param("client.id=hunter\\u12", r"property 1: \\u must be followed by four", id="no digits"),
        pytest.param("client.id=hunter\\uD800", r"property 1: \\u gives half", id="half of a character"),
        pytest.param('sasl.jaas.config=X required username="hunter', "no closing quote", id="an open quote"),
        pytest.param('sasl.jaas.config=X required username="hunter"', "end with a semicolon", id="no semicolon"),
        pytest.param("sasl.jaas.config=X required password=4711;", "a number in quotes", id="a number"),
        pytest.param('sasl.jaas.config=X username="hunter";', "must be one of required", id="no flag"),
        pytest.param("sasl.jaas.config=X required; hunter", "one login module", id="two modules"),
    ],
)
def test_what_java_refuses_is_refused_with_its_place_and_without_its_value(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as refused:
        gather({}, properties=text)
    assert "hunter" not in str(refused.value)
    assert "4711" not in str(refused.value)

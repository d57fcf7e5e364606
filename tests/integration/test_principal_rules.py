"""Names as Kafka's own classes and Java give them.

Where the two differ, ours may only know less: a rule refused when it is read, a principal
``User:unknown``.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import time
from collections.abc import Iterable, Iterator

import pytest

from receiver.principal.distinguished_name import subject_name
from receiver.principal.mapping_rules import MappingRules, MappingRulesError, NoMatchingRuleError
from receiver.principal.sasl import UNKNOWN_PRINCIPAL, SaslExchange
from tests.testbed import jvm, parts
from tests.unit.principal import certificates
from tests.unit.principal.certificates import (
    COMMON_NAME,
    UTF8,
    base64url,
    certificate,
    der,
    json_web_token,
    name,
)

Question = tuple[str, *tuple[bytes, ...]]


class KafkaNames:
    """Kafka's answers, from one Java for all tests (see KafkaNames.java)."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program

    def of(self, questions: Iterable[Question]) -> list[str | None]:
        """The name that each question leads to, or None where Kafka gives none."""
        lines = [
            " ".join([word, *(base64.b64encode(value).decode() for value in values)])
            for word, *values in questions
        ]
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write("\n".join([*lines, "", ""]))
        self._program.stdin.flush()
        answers = [self._program.stdout.readline() for _ in lines]
        assert all(answers), "KafkaNames ended early"
        return [base64.b64decode(answer[1:]).decode() if answer[0] == "=" else None for answer in answers]


@pytest.fixture(scope="module")
def kafka_names() -> Iterator[KafkaNames]:
    source = parts.HERE / "kafka" / "names" / "KafkaNames.java"
    key = base64.b64encode(certificates.public_key()).decode()
    command = jvm.command(str(source), key)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii"
    ) as program:
        yield KafkaNames(program)


NAMES = (
    "CN=alice,OU=dev,O=Acme",
    "CN=Bob",
    "",
    "aaa",
    "O=a/b",
    "OU=a,CN=ß Jürgen İΣ",
    "CN=a\\,b,C=DE",
    "1.2.840.113549.1.9.1=#1613,CN=x",
)
RULES = (
    "DEFAULT",
    "  DEFAULT  ",
    ",,DEFAULT,,",
    "RULE:^CN=([^,]+).*$/$1/",
    "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
    "RULE:^CN=([^,]+).*$/$1/L , RULE:.*/none/",
    "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U,DEFAULT",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    "RULE:.*/x/",
    "RULE:(.*)/$1$1/U",
    "RULE:a*/-/",
    "RULE:a*?/-/",
    "RULE:.*?/-/",
    "RULE:(a)|(.*)/[$1|$2]/",
    "RULE:(x)?.*/<$1>/",
    "RULE:CN=(?<user>[^,]*).*/${user}/L,DEFAULT",
    r"RULE:O=a\/b/a\/b/",
    r"RULE:.*/\$1\\/",
    "RULE:(.*)/$9-$0-$11/",
    "RULE:(.*)/$01/",
    "RULE:(.*),(.*),(.*)/$3$12$40/",
    "RULE:^CN=Bob$//,DEFAULT",
    "RULE:(?i)cn=(.*)/$1/U",
    r"RULE:\p{L}+=.*/p/,DEFAULT",
    "RULE:(?s).*/$0!/L",
    r"RULE:\Q[a&&]\E|.*/q/",
    r"RULE:[\[&]|.*/q/",
    "RULE:$|.*/e/",
    r"RULE:\b|.*/w/",
    "RULE:[^,]+(,|$)|.*/~/",
)


def random_rules() -> list[tuple[str, str]]:
    chosen = random.Random(714)
    found = []
    for _ in range(1500):
        pattern = chosen.choice(["(.*)", "(.)(.*)", "a+", "(?<n>a)(b)?.*", "()()()()()()()()()()(.*)"])
        replacement = "".join(
            chosen.choices(["$", "$", "1", "2", "0", "9", "\\\\", "\\$", "a", "{n}", "{", "\\/"], k=4)
        )
        found.append((f"RULE:{pattern}/{replacement}/", chosen.choice(["aab", "abc"])))
        pieces = ["RULE:", "RULE:", "/", "/", "/", ",", "DEFAULT", " ", "\\", "a", "b", "L", "U", "a/b/"]
        found.append(
            ("".join(chosen.choices(pieces, k=chosen.randrange(10))), chosen.choice(["a", "ab", "RULE:a"]))
        )
    return found


def test_mapping_rules_are_kafkas(kafka_names: KafkaNames) -> None:
    cases = [(rules, name) for rules in RULES for name in NAMES] + random_rules()
    answers = kafka_names.of([("rules", rules.encode(), name.encode()) for rules, name in cases])
    mapped = 0
    for (rules, distinguished_name), theirs in zip(cases, answers, strict=True):
        ours: str | None
        try:
            ours = MappingRules.parse(rules).principal_name(distinguished_name)
        except (MappingRulesError, NoMatchingRuleError):
            ours = None
        assert ours == theirs, (rules, distinguished_name)
        mapped += ours is not None
    assert 500 < mapped < len(cases) - 500


def subjects() -> list[bytes]:
    values = [
        b'a,b+c"d\\e<f>g;h=i#j',
        b"#x",
        b"  x \r",
        b"   ",
        b"",
        "Jürgen 😀".encode(),
        b"a\0b",
        b"a\nb",
        b"\\, ",
    ]
    values += ["Jürgen".encode(code) for code in ("latin-1", "utf-16-be", "utf-32-be")]
    tags = [*range(1, 0x1F), 0x2C, 0x80]
    kinds = [f"2.5.4.{number}" for number in range(3, 50)] + [
        "0.9.2342.19200300.100.1.1",
        "0.9.2342.19200300.100.1.3",
        "0.9.2342.19200300.100.1.25",
        "1.2.840.113549.1.9.1",
        "1.3.6.1.4.1.42.2.11.2.1",
        "1.2.3.99999999999999999999",
        "0.39.1",
        "1.39",
        "2.47",
        "2.999.1",
    ]
    found = [
        name([(COMMON_NAME, tag, value)]) for tag in tags for value in values if tag > 6 or value.isascii()
    ]
    found += [name([(kind, UTF8, b"v,")]) for kind in kinds]
    several = [[(COMMON_NAME, UTF8, b"b"), ("2.5.4.10", UTF8, b"a"), ("1.2.840.113549.1.9.1", 0x16, b"a@b")]]
    found += [name(*several, *several), der(0x30, der(0x31)), name([(COMMON_NAME, UTF8, b"x" * 70_000)])]
    chosen = random.Random(2253)
    pieces = [
        b"\xed\xa0\x80",
        b"\xed\x9f",
        b"\xf0\x90",
        b"\xe2\x82\xac",
        b"\xc3\xa4",
        b"\xf4\x8f\xbf\xbf",
        b"\xf4\x90",
    ]
    pieces += [
        bytes([octet])
        for octet in b" \r\0=#,\\a\x80\x90\x9f\xa0\xbf\xc0\xc2\xe0\xe1\xed\xef\xf0\xf1\xf4\xf5\xff"
    ]
    for _ in range(2000):
        found.append(name([(COMMON_NAME, UTF8, b"".join(chosen.choices(pieces, k=chosen.randrange(1, 9))))]))
    return found


def test_subjects_are_javas(kafka_names: KafkaNames) -> None:
    cases = [certificate(subject) for subject in subjects()]
    answers = kafka_names.of([("subject", case) for case in cases])
    accepted = [(case, theirs) for case, theirs in zip(cases, answers, strict=True) if theirs is not None]
    assert len(accepted) > 0.9 * len(cases)  # Java refuses some tags with values that they cannot have
    for case, theirs in accepted:
        assert subject_name(case) == theirs


def standard_claims() -> str:
    now = int(time.time())
    return f'"iat":{now - 5},"exp":{now + 3600},"aud":"kafka","iss":"issuer"'


def payloads() -> list[bytes]:
    claims = [
        '"sub":"alice",',
        '"sub":"alice","sub":"bob",',
        r'"sub":"alice","s\u0075b":"bob",',
        '"sub":" alice ",',
        '"sub":"alice\u00a0",',
        r'"sub":"alice\u001f",',
        r'"sub":"alice\u2028",',
        '"sub":true,',
        '"sub":7,',
        '"sub":null,',
        '"sub":["alice"],',
        '"sub":{"sub":"alice"},',
        '"sub":"",',
        '"SUB":"alice",',
        "",
        '"sub":"Jürgen 😀",',
        r'"sub":"\ud83d\ude00",',
        r'"sub":"\ud83d",',
        r'"sub":"a\u0000b",',
        '"sub":"a\tb",',
        r'"sub":"a\/b",',
        r'"sub":"a\xb",',
        "'sub':'alice',",
        '"sub":"/*alice*/",',
        '"sub":"alice"/*,"sub":"bob"*/,',
        '"sub":"alice","x":{"sub":"bob","a":1,"a":2},',
        '"sub":"alice","x":NaN,',
        '"sub":"alice","x":' + "[" * 1200 + "]" * 1200 + ",",
        '"sub":"alice","x":' + "1" * 5000 + ",",
    ]
    objects = [f"{{{claim}{standard_claims()}}}".encode() for claim in claims]
    plain = objects[0]
    return [
        *objects,
        plain + b"x",
        plain + b'{"sub":"bob"}',
        b"\xef\xbb\xbf" + plain,
        plain.decode().encode("utf-16-be"),
        plain.replace(b"alice", b"al\xffice"),
        plain.replace(b"}", b",}"),
        b"\n " + plain,
        b"[]",
        b"",
    ]


def oauthbearer_tokens(*, signed: bool) -> list[bytes]:
    header = json.dumps({"alg": "RS256" if signed else "none"}).encode()

    def token(payload: bytes) -> bytes:
        return json_web_token(header, payload, signed=signed)

    found = [b"n,,\x01auth=Bearer " + token(payload) + b"\x01\x01" for payload in payloads()]
    alice, bob = (token(f'{{"sub":"{sub}",{standard_claims()}}}'.encode()) for sub in ("alice", "bob"))
    good = b"n,,\x01auth=Bearer " + alice + b"\x01\x01"
    head, payload, signature = alice.split(b".")
    found += [
        good.replace(b"n,,", b"n,a=alice,"),
        good.replace(b"n,,", b"n,a=bob,"),
        good.replace(b"n,,", b"y,,"),
        good.replace(b"Bearer ", b"bEARER   "),
        good.replace(b"Bearer", b"Basic"),
        good.replace(b"auth", b"Auth"),
        good.replace(b"auth", b"x=y\x01auth"),
        good[:-1] + b"auth=Bearer " + bob + b"\x01\x01",
        good[:-1] + b"y=auth=Bearer " + bob + b"\x01\x01",
        good[:-1],
        good + b"x",
        good.replace(alice, alice + b" "),
        good.replace(alice, b"opaque"),
        good.replace(alice, alice + b".x"),
        good.replace(alice, b".".join([head, payload + b"A", signature])),
        good.replace(alice, b".".join([head, base64url(b'{"sub":"bob"}'), signature])),
        b"n,,\x01\x01",
        b"\x01",
        b"",
    ]
    return found


PLAIN_TOKENS = (
    b"\0alice\0pw",
    b"alice\0alice\0pw",
    b"bob\0alice\0pw",
    b"\0alice\0pw\0x",
    b"\0alice\0\0x",
    b"\0alice\0",
    b"\0\0pw",
    b"\0alice",
    b"alice",
    b"",
    b"\0 alice \0pw",
    b"\0a\nb\0pw",
    "\0Jürgen\0pw".encode(),
    b"\0alice\0\xff\xfe",
    b"\0al\xffice\0pw",
    b"\0al\xc0\x80ice\0pw",
    b"\0al\xed\xa0\x80\0pw",
    b"\0alice\xe2\0pw",
    b"\xe2\0alice\0pw",
    b"\xff\0alice\0pw",
    b"\xff\0\xff\0pw",
    b"\0" + b"x" * 3000 + b"\0pw",
)
SCRAM_TOKENS = (
    b"n,,n=alice,r=abc",
    b"n,a=alice,n=alice,r=abc",
    b"n,a=bob,n=alice,r=abc",
    b"n,,n=alice,n=bob,r=abc",
    b"n,,m=x,n=alice,r=abc",
    b"n,,m=n=bob,n=alice,r=abc",
    b"n,,n=alice,r=abc,n=bob",
    b"n,,n=alice,r=abc,n=bob,r=x,tokenauth=true",
    b"y,,n=alice,r=abc",
    b"p=tls-unique,,n=alice,r=abc",
    b"n,,n=a=2Cb=3Dc,r=abc",
    b"n,,n=a=2cb,r=abc",
    b"n,,n=a=3D2C,r=abc",
    b"n,,n=a=b,r=abc",
    b"n,a=a=3Db,n=a=3Db,r=abc",
    b"n,a=a=3D3Db,n=a=3D3Db,r=abc",
    "n,,n=Jürgen,r=abc".encode(),
    b"n,,n=a\0b,r=abc",
    b"n,,n=a\nb\x7f,r=abc",
    b"n,,n=,r=abc",
    b"n,,n=alice,r=",
    b"n,,n=alice,r=a b",
    b"n,,n=alice,r=abc\n",
    b"n,,n=alice,r=abc,",
    b"n,,n=alice",
    b"",
    b"n,,n=alice,r=abc,tokenauth=true",
    b"n,,n=alice,r=abc,tokenauth=TRUE",
    b"n,,n=alice,r=abc,tokenauth=true ",
    b"n,,n=alice,r=abc,tokenauth=true=x",
    b"n,,n=alice,r=abc,Tokenauth=true",
    b"n,,n=alice,r=abc,x=y,tokenauth=true",
    b"n,,n=alice,r=abc,tokenauth=true,tokenauth=false",
    b"n,,n=alice,r=abc,tokenauth=false,tokenauth=true",
)


def principal(mechanism: str, token: bytes) -> str | None:
    """Return the principal after an accepted login, whether or not Kafka would accept it."""
    exchange = SaslExchange(mechanism)
    exchange.client_token(token)
    exchange.server_token(b"r=abc" if mechanism == "SCRAM-SHA-256" else b"")
    exchange.client_token(b"c=biws")
    exchange.server_token(b"v=c2ln")
    return exchange.principal


@pytest.mark.parametrize(
    ("mechanism", "word"),
    [
        ("PLAIN", "PLAIN"),
        ("SCRAM-SHA-256", "SCRAM-SHA-256"),
        ("OAUTHBEARER", "signed"),
        ("OAUTHBEARER", "unsecured"),
    ],
)
def test_no_token_means_another_name_to_kafka(kafka_names: KafkaNames, mechanism: str, word: str) -> None:
    if mechanism == "OAUTHBEARER":
        tokens = oauthbearer_tokens(signed=word == "signed")
        questions: list[Question] = [(word, b"sub", token) for token in tokens]
    else:
        tokens = list(PLAIN_TOKENS if mechanism == "PLAIN" else SCRAM_TOKENS)
        questions = [(word, token) for token in tokens]
    named = 0
    for token, theirs in zip(tokens, kafka_names.of(questions), strict=True):
        ours = principal(mechanism, token)
        assert theirs in (ours, None) or ours == UNKNOWN_PRINCIPAL, token
        named += theirs == ours
    assert named > 5  # and not all unknown


def test_kafka_takes_another_token_after_its_error_document(kafka_names: KafkaNames) -> None:
    """So the exchange can still complete, with the unknown principal."""
    good = oauthbearer_tokens(signed=False)[0]
    assert kafka_names.of([("error-then-token", b"n,,\x01auth=Bearer opaque\x01\x01", good)]) == [
        "User:alice"
    ]

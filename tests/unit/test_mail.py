"""Mail: what the sender wrote, when, in which thread, and what is not taken."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.ops.ingest.parsers.base import Bad, Note, Unreadable
from palimpsest.ops.ingest.parsers.mail_text import own_words
from palimpsest.ops.ingest.parsers.markup import text_of_html
from palimpsest.ops.ingest.recognising import recognised
from palimpsest.ops.ingest.records import Published
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read, using

POSTMARK = "From ana@example.org Mon Mar  2 09:00:00 2026\n"
ROOT = "From: Ana <ana@example.org>\nSubject: Dinner\nMessage-ID: <a@example.org>\n"
DATE = "Date: Mon, 2 Mar 2026 10:00:00 +0100\n"
PLAIN = "Content-Type: text/plain; charset="


def mail(head: str, body: str) -> bytes:
    return f"{head}\n{body}\n".encode()


def mbox(*mails: bytes) -> bytes:
    return b"\n".join(POSTMARK.encode() + each for each in mails)


def taken(path: Path, data: bytes) -> tuple[list[dict[str, str]], str]:
    """The mails of a file, and what was told of the rest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return from_source(path)


def from_source(path: Path) -> tuple[list[dict[str, str]], str]:
    form, items = read(path, using())
    assert form == "mail"
    records = [json.loads(each.value or b"") for each in items if isinstance(each, Outgoing)]
    told = [each.text for each in items if isinstance(each, Note)]
    told += [f"BAD {each.reason}" for each in items if isinstance(each, Bad)]
    return [{**each["body"], "at": each["occurred_at"]} for each in records], "\n".join(told)


def test_a_mail_is_known_by_its_id_and_dated_by_its_date(tmp_path: Path) -> None:
    found, told = taken(tmp_path / "a.mbox", mbox(mail(ROOT + DATE, "I moved to Porto.")))
    assert told == ""
    assert [(e["turn_id"], e["speaker"], e["session_id"], e["at"]) for e in found] == [
        ("mail:a@example.org", "Ana", "a@example.org", "2026-03-02T09:00:00Z")
    ]
    assert found[0]["content"] == "Dinner\n\nI moved to Porto."


def reply(own: str, before: str, day: int, subject: str = "Re: Dinner") -> bytes:
    head = f"From: Ben <ben@example.org>\nSubject: {subject}\nMessage-ID: <{own}@example.org>\n"
    date = f"Date: {day} Mar 2026 10:00:00 +0000\n"
    return mail(f"{head}{date}{before}", f"This is {own}.")


def test_a_thread_is_a_session_in_the_order_of_time(tmp_path: Path) -> None:
    mails = [
        reply("c", "In-Reply-To: <b@example.org>\n", 4),
        reply("b", "References: <a@example.org>\n", 3),
        reply("d", "References: <a@example.org>\n <b@example.org> <x@example.org>\n", 5),
        reply("e", "", 6, "Another"),
        mail(ROOT + DATE, "Seven?"),
    ]
    found, _ = taken(tmp_path / "a.mbox", mbox(*mails))
    assert [(each["source_id"][0], each["session_id"][0]) for each in found] == [
        *(("a", "a"), ("b", "a"), ("c", "a"), ("d", "a"), ("e", "e"))
    ]


def standings(published: Published, path: Path) -> list[tuple[str, str, str]]:
    records = [each for each in read(path, using())[1] if isinstance(each, Outgoing)]
    found = list(recognised(records, published, datetime.now(UTC), lambda _: None))
    bodies = [json.loads(each.value or b"")["body"] for each in found]
    return [
        (body["source_id"][0], body["session_id"][0], published.standing(each))
        for body, each in zip(bodies, found, strict=True)
    ]


def test_a_reply_of_a_later_file_is_in_the_session_of_its_thread(tmp_path: Path) -> None:
    published = Published(None)
    first = [mail(ROOT + DATE, "Seven?"), reply("b", "In-Reply-To: <a@example.org>\n", 3)]
    (tmp_path / "a.mbox").write_bytes(mbox(*first))
    standings(published, tmp_path / "a.mbox")
    (tmp_path / "b.mbox").write_bytes(mbox(reply("c", "In-Reply-To: <b@example.org>\n", 4)))
    assert standings(published, tmp_path / "b.mbox") == [("c", "a", "new")]
    again = [reply("c", "In-Reply-To: <b@example.org>\n", 4), *first]
    (tmp_path / "c.mbox").write_bytes(mbox(*again))
    assert {each[1:] for each in standings(published, tmp_path / "c.mbox")} == {("a", "known")}


def test_lines_of_a_text_that_begin_with_from(tmp_path: Path) -> None:
    body = "From Monday on I work in 2026.\n\nFrom here\n>From there\n>>From afar"
    for data in (mbox(mail(ROOT + DATE, body)), mbox(mail(ROOT + DATE, body), reply("b", "", 3))):
        found, _ = taken(tmp_path / "a.mbox", data)
        assert found[0]["content"] == (
            "Dinner\n\nFrom Monday on I work in 2026.\n\nFrom here\nFrom there"
        )
    assert len(found) == 2


@pytest.mark.parametrize(
    ("name", "speaker"),
    [
        ("=?utf-8?q?Ann_L=C3=A9e?= <a@b.c>", "Ann Lée"),
        ("=?iso-2022-jp?B?GyRCRURDZhsoQg==?= <a@b.c>", "田中"),
        ("=?windows-1251?B?wO3t4A==?=\n =?windows-1251?B?IMvoIA==?= <a@b.c>", "Анна Ли"),
        ("=?nonsense?q?Ann?= <a@b.c>", "Ann"),
        ("=?utf-8?b?broken", "=?utf-8?b?broken"),
        ('"Lee, Ann" <a@b.c>', "Lee, Ann"),
        ('"Ann: Lee" <a@b.c>', "Ann: Lee"),
        ("a@b.c", "a@b.c"),
        ("a@b.c (Ann Lee)", "Ann Lee"),
        ("Jürgen <a@b.c>", "Jürgen"),
        ("<>", "<>"),
    ],
)
def test_who_sent_it(tmp_path: Path, name: str, speaker: str) -> None:
    found, told = taken(tmp_path / "a.eml", mail(f"From: {name}\nSubject: x\n{DATE}", "Hello"))
    assert (found[0]["speaker"], told) == (speaker, "")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (f"{PLAIN}iso-8859-1\nContent-Transfer-Encoding: 8bit\n", b"\xfc"),
        (f"{PLAIN}nonsense\n", b"\xc3\xbc"),
        (f"{PLAIN}utf-8\n", b"\xfc"),
        (f"Content-Transfer-Encoding: quoted-printable\n{PLAIN}utf-8\n", b"=C3=BC"),
        (f"Content-Transfer-Encoding: base64\n{PLAIN}utf-8\n", b"w7w="),
        ("", b"\xfc"),
        ("", "ü".encode()),
    ],
)
def test_texts_in_any_encoding(tmp_path: Path, head: str, body: bytes) -> None:
    data = f"From: a@b.c\nSubject: Re: x\n{DATE}{head}\n".encode() + body
    found, told = taken(tmp_path / "a.eml", data)
    assert (found[0]["content"], told) == ("ü", "")


MIXED = b"""Content-Type: multipart/mixed; boundary=X

--X
Content-Type: multipart/alternative; boundary=Y

--Y
Content-Type: text/plain

I live in Graz.
--Y
Content-Type: text/html

<p>I live in <b>Graz</b>.</p>
--Y--
--X
Content-Type: image/png
Content-Disposition: attachment; filename=a.png

AAAA
--X
Content-Type: message/rfc822

From: x@y.z
Subject: inner

Inner
--X
Content-Type: text/calendar

BEGIN:VCALENDAR
--X--
"""


def test_parts_that_are_not_taken_are_counted(tmp_path: Path) -> None:
    data = f"From: a@b.c\nSubject: Re: x\n{DATE}".encode() + MIXED
    found, told = taken(tmp_path / "a.eml", data)
    assert [each["content"] for each in found] == ["I live in Graz."]
    assert "3 entries are left out" in told
    for kind in ("1 attachment", "1 attached mail", "1 part of type text/calendar"):
        assert kind in told


def test_a_mail_in_html_only(tmp_path: Path) -> None:
    page = "<style>p {}</style><p>I live<br>in Graz&amp;co.</p><blockquote>No</blockquote>"
    head = f"From: a@b.c\nSubject: Re: x\n{DATE}Content-Type: text/html\n"
    found, told = taken(tmp_path / "a.eml", mail(head, page))
    assert [each["content"] for each in found] == ["I live\nin Graz&co."]
    assert "1 mail in HTML only: its text is taken" in told
    assert "1 entry is left out: 1 quotation" in told


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("Hi<!-- x", "Hi<!-- x"),
        ("Hi<!-- x --> there", "Hi there"),
        ("a &lt; b", "a < b"),
        ('Yes<div class="gmail_quote"><div>On</div> it</div>Bye', "Yes\nBye"),
        ('Yes<hr><div id="divRplyFwdMsg">From</div>x', "Yes"),
        ('Yes<div class="gmail_signature">Ana</div>', "Yes"),
        ("<p>One<p>Two<script>x < y</script>", "One\nTwo"),
        ("<blockquote>never closed", ""),
    ],
)
def test_the_text_of_a_page(page: str, text: str) -> None:
    assert text_of_html(page)[0] == text


QUOTES = [
    "On Mon, 2 Mar 2026 at 09:00, Ana <ana@b.c> wrote:\n> x",
    "On Mon, 2 Mar 2026 at 09:00, Ana Maria Lee\n<ana@b.c> wrote:\n\n> x\n> y",
    "Am 02.03.2026 um 09:00 schrieb Ana:\n> x",
    "Le lun. 2 mars 2026 à 09:00, Ana <a@b.c> a écrit :\n> x",
    "El 2/3/2026 a las 9:00, Ana escribió:\n> x",
    "02.03.2026 09:00, Ana пишет:\n> x",
    "2026年3月2日 9:00 Ana <a@b.c>:\n> x",
    "> x\n>> y",
    "-----Original Message-----\nFrom: Ana\nSent: 2 March 2026\nx",
    "-----Ursprüngliche Nachricht-----\nVon: Ana\nGesendet: 2. März 2026\nx",
    "---------- Forwarded message ---------\nFrom: Ana <a@b.c>\nx",
    "________________________________\nFrom: Ana\nx",
    "From: Ana <a@b.c>\nSent: Monday, 2 March 2026 09:00\nTo: Ben\nSubject: x\n\nx",
    "De : Ana <a@b.c>\nEnvoyé : lundi 2 mars 2026 09:00\nÀ : Ben\nObjet : x\n\nx",
    "On Mon, 2 Mar 2026 at 09:00, Ana <a@b.c> wrote:\n\nwithout marks",
]


@pytest.mark.parametrize("quote", QUOTES)
def test_what_is_quoted_is_not_what_the_sender_wrote(quote: str) -> None:
    assert own_words(f"Yes.\n\n{quote}") == ("Yes.", ["quotations"])
    assert own_words(f"Yes.\r\n\r\n{quote}".replace("\n", "\r\n"))[0] == "Yes."


@pytest.mark.parametrize(
    "text",
    [
        "I need:\n- milk\n- bread",
        "Where: the cinema\nWhen: 19:30\nWho: all of us",
        "a -- b\n---\nc",
        "First\n--\n" + "\n".join(f"line {number}" for number in range(20)),
        "I was sent to Porto.\nSent it yesterday.",
    ],
)
def test_what_is_no_quotation_and_no_signature(text: str) -> None:
    assert own_words(text) == (text, [])


@pytest.mark.parametrize(
    "signature",
    ["-- \nAna\nPorto", "--\nAna", "Sent from my iPhone", "Von meinem iPhone gesendet",
     "Envoyé de mon iPhone", "Enviado desde mi iPad", "Отправлено с iPhone", "iPhoneから送信"],
)  # fmt: skip
def test_signatures_are_left_out(signature: str) -> None:
    assert own_words(f"Yes.\n\n{signature}\n") == ("Yes.", ["signatures"])


def test_answers_between_quotations_are_kept() -> None:
    text = "> When?\n\nAt seven.\n\n> Where?\nAt home."
    assert own_words(text) == ("At seven.\n\nAt home.", ["quotations", "quotations"])


def test_malformed_headers_hide_no_other(tmp_path: Path) -> None:
    head = f"From: a@b.c\nthis is none\nSubject: Re: x\n{DATE}Bad header: y\n"
    found, told = taken(tmp_path / "a.mbox", mbox(mail(head, "Hello")))
    assert [(each["content"], each["at"]) for each in found] == [("Hello", "2026-03-02T09:00:00Z")]
    assert "2 headers that cannot be read" in told


def test_ids_that_are_missing_or_there_twice(tmp_path: Path) -> None:
    without = f"From: a@b.c\nSubject: Re: x\n{DATE}"
    same, other = mail(ROOT + DATE, "One"), mail(ROOT + DATE.replace("10:", "11:"), "Two")
    data = mbox(same, same, other, mail(without, "Three"), mail(without, "Three"))
    found, told = taken(tmp_path / "a.mbox", data)
    texts = ["Dinner\n\nOne", "Three", "Three", "Dinner\n\nTwo"]
    assert [each["content"] for each in found] == texts
    assert len({each["turn_id"] for each in found}) == 4
    assert "1 repeated mail" in told
    again = taken(tmp_path / "b.mbox", data)[0]
    assert [each["turn_id"] for each in again] == [each["turn_id"] for each in found]


@pytest.mark.parametrize(
    ("date", "postmark", "at"),
    [
        ("", POSTMARK, "2026-03-02T09:00:00Z"),
        ("Date: nonsense\n", POSTMARK, "2026-03-02T09:00:00Z"),
        ("Received: by x; Tue, 3 Mar 2026 08:00:00 +0000\n", POSTMARK, "2026-03-03T08:00:00Z"),
        ("Date: Mon, 2 Mar 2026 25:00:00 +0000\n", "From x\n", "2026-03-01T12:00:00Z"),
        ("Date: Mon, 2 Mar 99999 10:00:00 +9999\n", "From x\n", "2026-03-01T12:00:00Z"),
        ("", "From x\n", "2026-03-01T12:00:00Z"),
    ],
)
def test_a_mail_without_a_date(tmp_path: Path, date: str, postmark: str, at: str) -> None:
    found, told = taken(tmp_path / "a.mbox", postmark.encode() + mail(ROOT + date, "Hello"))
    assert [each["at"] for each in found] == [at]
    assert ("tell no time" in told or "tells no time" in told) == (at == "2026-03-01T12:00:00Z")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\n\n"])
def test_line_ends_and_marks(tmp_path: Path, ending: str, mark: bytes) -> None:
    data = mbox(mail(ROOT + DATE, "One\n\nTwo"), reply("b", "In-Reply-To: <a@example.org>\n", 3))
    found, told = taken(tmp_path / "a.mbox", mark + data.replace(b"\n", ending.encode()))
    assert [each["content"] for each in found] == ["Dinner\n\nOne\n\nTwo", "This is b."]
    assert told == ""


def test_mails_in_a_folder_and_an_archive(tmp_path: Path) -> None:
    mails = {"b.eml": reply("b", "In-Reply-To: <a@example.org>\n", 3), "c.txt": b"x"}
    mails["x/a.eml"] = mail(ROOT + DATE, "One")
    mails["x/inbox.mbox"] = mbox(mails["x/a.eml"])
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, data in mails.items():
            taken_path = tmp_path / "folder" / name
            taken_path.parent.mkdir(parents=True, exist_ok=True)
            taken_path.write_bytes(data)
            archive.writestr(name, data)
    for source in ("folder", "a.zip"):
        found, told = from_source(tmp_path / source)
        assert [each["session_id"] for each in found] == ["a@example.org"] * 2
        assert "1 repeated mail" in told
        assert "1 other file in it is not read: c.txt" in told


@pytest.mark.parametrize(
    "data",
    [b"", b"\n\n", b"From me to you\nwith love\n", b"From: Ana\nTo: Ben\n\nHello", b"From \n"],
)
def test_what_is_no_mail(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(Unreadable):
        read(tmp_path / "a.txt")


def hostile() -> Sequence[bytes]:
    nested = "".join(
        f"Content-Type: multipart/mixed; boundary=b{number}\n\n--b{number}\n"
        for number in range(300)
    )
    head = f"From: a@b.c\nSubject: x\n{DATE}"
    return [
        (head + nested).encode(),
        mail(head + "Content-Type: multipart/mixed\n", "no boundary"),
        mail(head + "Content-Type: ;;;=\n", "x"),
        mail(head + "Content-Type: text/plain; charset*=x'y'%ZZ\n", "x"),
        mail(head + "Content-Disposition: =?q?\n", "x"),
        mail(head + "Content-Transfer-Encoding: base64\n", "!!!"),
        mail(head + "Message-ID: <" + "a" * 5000 + ">\n", "x"),
        mail(head + "References: " + "<a@b> " * 5000 + "\n", "x"),
        mail("From: " + "=?utf-8?q?" * 2000 + "\nSubject: x\n" + DATE, "x"),
        mail("From: " + "(" * 5000 + "\nSubject: x\n" + DATE, "x"),
        mail(head, "\0\0 \ud83d".encode("utf-8", "surrogatepass").decode("latin-1")),
    ]


@pytest.mark.parametrize("number", range(len(hostile())))
def test_malformed_mail_is_read_or_named(tmp_path: Path, number: int) -> None:
    (tmp_path / "a.mbox").write_bytes(mbox(hostile()[number], mail(ROOT + DATE, "Last")))
    found, told = from_source(tmp_path / "a.mbox")
    assert "Dinner\n\nLast" in [each["content"] for each in found]
    assert len(found) == 2 or "BAD" in told or "left out" in told

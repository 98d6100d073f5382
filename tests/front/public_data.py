"""Data for public programs whose own is not in their repositories: drawn, in the files' formats."""

import random
import shutil
from pathlib import Path

import numpy as np

CLASSES = (
    "Case_Based", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods",
    "Reinforcement_Learning", "Rule_Learning", "Theory",
)  # fmt: skip
WORDS = 200  # of each paper
LINES = {"train": 120, "valid": 20, "test": 20}


def corpus(folder: Path) -> None:
    """`train.txt`, `valid.txt` and `test.txt` of words that mean nothing."""
    draws = random.Random(0)
    words = ["".join(draws.choices("abcdefghij", k=draws.randint(2, 7))) for _ in range(60)]
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in LINES.items():
        lines = [f" {' '.join(draws.choices(words, k=12))} \n" for _ in range(count)]
        (folder / f"{part}.txt").write_text("".join(lines))


def cora(folder: Path) -> None:
    """`cora.content`: for each paper that `cora.cites` names, words and a class."""
    papers = sorted({int(x) for x in (folder / "cora.cites").read_text().split()})
    draws = np.random.default_rng(0)
    rows = [
        [str(paper), *map(str, (draws.random(WORDS) < 0.05).astype(int)), draws.choice(CLASSES)]
        for paper in papers
    ]
    (folder / "cora.content").write_text("".join("\t".join(row) + "\n" for row in rows))


def characters(folder: Path) -> None:
    """Files that nanoGPT's `prepare.py` writes for a text: `train.bin`, `val.bin`, `meta.pkl`."""
    import pickle

    text = "".join(random.Random(0).choices("abcdefghij \n", k=6000))
    letters = sorted(set(text))
    codes = np.array([letters.index(letter) for letter in text], np.uint16)
    codes[:5000].tofile(folder / "train.bin")
    codes[5000:].tofile(folder / "val.bin")
    tables = {"itos": dict(enumerate(letters)), "stoi": {x: i for i, x in enumerate(letters)}}
    meta = {"vocab_size": len(letters), **tables}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


MAKERS = {"corpus": corpus, "cora": cora, "characters": characters}


def copied(repository: Path, data: str, target: Path) -> Path:
    """A copy of a repository, with its data: `KIND:FOLDER`, or nothing."""
    shutil.copytree(repository, target, ignore=shutil.ignore_patterns(".git"))
    if data:
        kind, _, folder = data.partition(":")
        MAKERS[kind](target / folder)
    return target

"""Rust files import each other one way: no circle of files, a crate's folders on few floors."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast

ROOT = Path(__file__).resolve().parent.parent.parent
CRATES = sorted(path.parent.name for path in ROOT.glob("crates/*/src"))
FLOORS_MAX = 8
USE = re.compile(r"^\s*(pub(?:\([^)]*\))?\s+)?use\s+([\w:*{},\s]+);", re.MULTILINE)

Module = tuple[str, ...]  # () is the crate's root
Imports = dict[Module, set[Module]]


def modules(source: Path) -> dict[Module, str]:
    """Each module that is a file, without comments and tests."""
    texts = {}
    for path in sorted(source.rglob("*.rs")):
        name = path.relative_to(source).with_suffix("").parts
        if "tests" not in name:
            module = name[:-1] if name[-1] in ("mod", "lib", "main") else name
            text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
            texts[module] = text.split("#[cfg(test)]\nmod tests")[0]
    return texts


def used(tree: str, prefix: str = "") -> Iterator[str]:
    """Each path of a `use`: `a::{b, c::{d}}` has two."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield (prefix + tree).split(" as ")[0].strip()
        return
    depth, start, inner = 0, 0, rest[: rest.rindex("}")] + ","
    for place, letter in enumerate(inner):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if inner[start:place].strip():
                yield from used(inner[start:place].strip(), prefix + head.strip())
            start = place + 1


def absolute(path: str, module: Module, texts: dict[Module, str]) -> Module | None:
    """A path from the crate's root; None of what is another crate's."""
    names = [name.strip() for name in path.split("::")]
    if names[0] == "crate":
        return tuple(names[1:])
    if names[0] not in ("self", "super"):
        return (*module, *names) if (*module, names[0]) in texts else None
    while names and names[0] in ("self", "super"):
        module = module[:-1] if names.pop(0) == "super" else module
    return (*module, *names)


def file_of(path: Module, texts: dict[Module, str]) -> Module:
    """The file in which a path ends: where a module hands a name on, whom it has it from."""
    module = next(path[:end] for end in range(len(path), -1, -1) if path[:end] in texts)
    for is_public, tree in USE.findall(texts[module]):
        for handed_on in used(tree) if is_public else ():
            origin = absolute(handed_on, module, texts)
            if origin and path[len(module) :][:1] == origin[-1:] and origin[:-1] != module:
                return file_of(origin, texts)
    return module


def imports(texts: dict[Module, str]) -> Imports:
    """Whom each file names, but for the module that it is a part of."""
    named: Imports = {module: set() for module in texts}
    for module, text in texts.items():
        paths = [path for _, tree in USE.findall(text) for path in used(tree)]
        paths += re.findall(r"(?<![\w:])(?:crate|super|self)(?:::\w+)+", USE.sub("", text))
        for path in paths:
            whole = absolute(path, module, texts)
            target = module if whole is None else file_of(whole, texts)
            if target != module[: len(target)]:
                named[module].add(target)
    return named


def floors(named: Imports) -> list[set[Module]]:
    """From the ground up; what stands on none is on a circle, or above one."""
    standing: set[Module] = set()
    result = []
    while ready := {name for name in named if name not in standing and named[name] <= standing}:
        result.append(ready)
        standing |= ready
    return result


def by_folder(named: Imports, top: Module) -> Imports:
    """Imports at the top of a folder: those of each file, with the modules below it."""
    end = len(top) + 1
    inside = {name for name in named if name[: len(top)] == top and name != top}
    folders: Imports = {name[:end]: set() for name in inside}
    for name in inside:
        folders[name[:end]] |= {target[:end] for target in named[name] & inside} - {name[:end]}
    return folders


def circles(named: Imports) -> set[Module]:
    return set(named) - set[Module]().union(*floors(named))


@pytest.mark.parametrize("crate", CRATES)
def test_no_file_imports_what_imports_it(crate: str) -> None:
    texts = modules(ROOT / "crates" / crate / "src")
    named = imports(texts)
    assert not circles(named), {name: named[name] & circles(named) for name in circles(named)}


TOPS: list[tuple[str, Module]] = [(crate, ()) for crate in CRATES if crate != "python"]


@pytest.mark.parametrize(
    ("crate", "top"), [*TOPS, ("python", ("client",)), ("python", ("worker",))]
)
def test_folders_stand_on_few_floors(crate: str, top: Module) -> None:
    folders = by_folder(imports(modules(ROOT / "crates" / crate / "src")), top)
    assert not circles(folders), circles(folders)
    assert len(floors(folders)) <= FLOORS_MAX, floors(folders)


def test_circles_and_floors_are_found(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a;\nmod b;\npub use b::inner::Deep;",
        "a.rs": "use crate::{b::{Other, Thing as T}, std};",
        "b.rs": "pub mod inner;\npub(crate) use inner::{Deep, Thing};",
        "b/inner.rs": "use super::Other; // crate::a::A\n#[cfg(test)]\nmod tests { use crate::a; }",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    a, b, inner = ("a",), ("b",), ("b", "inner")
    named = imports(modules(tmp_path))
    assert named == {(): {inner}, a: {b, inner}, b: {inner}, inner: set()}
    assert floors(named) == [{inner}, {(), b}, {a}]
    (tmp_path / "b/inner.rs").write_text("fn f() { crate::a::g() }", encoding="utf-8")
    assert circles(imports(modules(tmp_path))) == {a, b, (), inner}

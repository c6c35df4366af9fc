"""The source of a suite's program as one file without Assay: only the definitions that it needs."""

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from math import isfinite
from pathlib import Path
from textwrap import dedent, indent
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, Final

_ASSAY: Final = "assay"
_STAND_INS: Final = ("Program", "Growth")
"""Records that a builder of programs makes. It reads nothing of them, so any record will do."""
_UNREAD: Final = ("values", "observe", "growth", "differentiated")
"""Arguments of a ``Program`` that compiling and running it do not need."""


class NotExtractable(Exception):
    """The program cannot be written as one file; the message says why."""


def extracted(builder: Callable[..., Any], name: str, roots: tuple[str, ...]) -> str:
    """The source of one module in which ``name`` is an equal of the builder.

    Definitions of modules below ``roots`` are copied, other modules are imported. Functions that
    were made inside others are made again with the values that they hold.

    Raises:
        NotExtractable: it holds a value that cannot be written, uses Assay or a private module, or
            two of its modules bind one name.
    """
    source = _Source(roots=roots)
    expression = source.expression(builder)
    lines = set(source.imports.values())
    imports = "\n".join(sorted(lines, key=lambda line: (line.startswith("from"), line)))
    parts = (imports, *source.parts, f"{name} = {expression}")
    return "from __future__ import annotations\n\n" + "\n\n\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What was copied so far: import lines by the name that they bind, and definitions in order."""

    roots: tuple[str, ...]
    imports: dict[str, str] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    _homes: dict[str, str] = field(default_factory=dict)

    def expression(self, value: Any) -> str:
        """An expression for the value; what it names is copied or imported."""
        if isinstance(value, partial):
            self._import("partial", "from functools import partial")
            text = self._call("partial", (value.func, *value.args), value.keywords)
        elif isinstance(value, Enum):
            text = f"{self.expression(type(value))}.{value.name}"
        elif isinstance(value, float) and not isfinite(value):
            text = f"float({str(value)!r})"
        elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
            text = repr(value)
        elif type(value) in (tuple, list):
            inside = ", ".join(map(self.expression, value))
            comma = "," if len(value) == 1 else ""
            text = f"[{inside}]" if type(value) is list else f"({inside}{comma})"
        elif type(value) in (dict, MappingProxyType):
            items = (f"{self.expression(k)}: {self.expression(v)}" for k, v in value.items())
            text = f"{{{', '.join(items)}}}"
        elif type(value).__name__ == "ShapeDtypeStruct" and value.sharding is None:
            self._import("ShapeDtypeStruct", "from jax import ShapeDtypeStruct")
            text = f"ShapeDtypeStruct({tuple(value.shape)!r}, {str(value.dtype)!r})"
        elif is_dataclass(value) and not isinstance(value, type):
            given = {
                each.name: getattr(value, each.name)
                for each in fields(value)
                if each.init and not _is(getattr(value, each.name), each.default)
            }
            text = self._call(self.expression(type(value)), (), given)
        else:
            text = self._named(value)
        return text

    def _call(self, function: str, values: tuple[Any, ...], named: Mapping[str, Any]) -> str:
        words = [self.expression(each) for each in values]
        words += [f"{name}={self.expression(each)}" for name, each in named.items()]
        return f"{function}({', '.join(words)})"

    def _named(self, value: Any) -> str:
        """A function or class by its name, or a function that is made again."""
        home = sys.modules.get(getattr(value, "__module__", None) or "")
        name = getattr(value, "__qualname__", "")
        if home is None or not name:
            raise NotExtractable(f"it holds a value of {type(value).__name__}")
        if vars(home).get(name) is value:
            if self._is_local(home):
                self._copy(home, name)
            else:
                self._import_from(home.__name__, name, name)
            return name
        if isinstance(value, FunctionType) and self._is_local(home):
            return self._made(value, home)
        raise NotExtractable(f"it holds {name} of {home.__name__}, which has no public name")

    def _made(self, function: FunctionType, home: ModuleType) -> str:
        """An expression that recreates a lambda, or a function defined inside another."""
        node = _node_of(function, home)
        names = function.__code__.co_freevars
        held = {
            name: cell.cell_contents
            for name, cell in zip(names, function.__closure__ or (), strict=True)
            if cell.cell_contents is not function
        }
        arguments = {name: self.expression(value) for name, value in held.items()}
        self._copy_used(node, home, without=names)
        maker, body = f"make_{len(self.parts)}", f"return ({_segment(home, node)})"
        if isinstance(node, ast.Lambda) and not arguments:
            return body.removeprefix("return ")
        if not isinstance(node, ast.Lambda):
            body = f"{dedent(_segment(home, node))}\nreturn {function.__name__}"
        head = f"def {maker}({', '.join(arguments)}):\n"
        self.parts.append(head + indent(body, "    "))
        return f"{maker}({', '.join(f'{name}={text}' for name, text in arguments.items())})"

    def _copy(self, home: ModuleType, name: str) -> None:
        """Copy what binds a name in a module, after all that it uses."""
        for node in _bindings(home, name):
            if isinstance(node, ast.Import):
                self._import(name, ast.unparse(_only(node, name)))
            elif isinstance(node, ast.ImportFrom):
                (alias,) = _only(node, name).names
                package = home.__name__.rpartition(".")[0] if node.level else None
                place = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                self._import_from(place, alias.name, name)
            elif self._is_new(name, home.__name__):
                self._copy_used(node, home)
                self.parts.append(_segment(home, node))

    def _copy_used(self, node: ast.AST, home: ModuleType, without: tuple[str, ...] = ()) -> None:
        left_out = {each for line in _left_out(home, node) for each in ast.walk(line)}
        nodes = (each for each in ast.walk(node) if each not in left_out)
        used = (each.id for each in nodes if isinstance(each, ast.Name))
        for name in dict.fromkeys(used):
            if name in vars(home) and name not in without:
                self._copy(home, name)

    def _import_from(self, place: str, name: str, bound: str) -> None:
        """The name of another module: copied from one of the suite's, else imported."""
        module = importlib.import_module(place)
        if self._is_local(module):
            if isinstance(vars(module).get(name), ModuleType):
                raise NotExtractable(f"it uses the module {place}.{name} by its name")
            self._copy(module, name)
            if bound != name and self._is_new(bound, place):
                self.parts.append(f"{bound} = {name}")
        elif _package(place) == _ASSAY:
            if name not in _STAND_INS:
                raise NotExtractable(f"it uses {name} of Assay")
            self._import(bound, f"from types import SimpleNamespace as {bound}")
        elif any(part.startswith("_") for part in place.split(".")):
            raise NotExtractable(f"it uses {name} of {place}, which is private")
        else:
            renamed = f" as {bound}" if bound != name else ""
            self._import(bound, f"from {place} import {name}{renamed}")

    def _import(self, bound: str, line: str) -> None:
        if self.imports.setdefault(bound, line) != line or bound in self._homes:
            raise NotExtractable(f"{bound} is bound by two of its modules")

    def _is_new(self, name: str, home: str) -> bool:
        """Whether the name was not copied yet; raises if it was, from another module."""
        if name in self.imports or self._homes.get(name, home) != home:
            raise NotExtractable(f"{name} is bound by two of its modules")
        is_new = name not in self._homes
        self._homes[name] = home
        return is_new

    def _is_local(self, module: ModuleType) -> bool:
        file = Path(getattr(module, "__file__", None) or "")
        is_installed = "site-packages" in file.parts or _package(module.__name__) == _ASSAY
        return not is_installed and any(file.is_relative_to(root) for root in self.roots)


def _is(held: Any, default: Any) -> bool:
    return default is not MISSING and (
        held is default or (type(held) is type(default) and held == default)
    )


@lru_cache(maxsize=64)
def _parsed(module: ModuleType) -> tuple[tuple[str, ...], ast.Module]:
    text = inspect.getsource(module)
    return tuple(text.splitlines()), ast.parse(text)


def _segment(home: ModuleType, node: Any) -> str:
    lines, _ = _parsed(home)
    if isinstance(node, ast.Lambda):
        return ast.get_source_segment("\n".join(lines), node) or ""
    unread = {
        number
        for each in _left_out(home, node)
        for number in range(each.lineno, (each.end_lineno or 0) + 1)
    }
    whole = range(_first_line(node), node.end_lineno + 1)
    return "\n".join(lines[number - 1] for number in whole if number not in unread)


def _left_out(home: ModuleType, node: ast.AST) -> Iterator[ast.keyword]:
    """Arguments of a ``Program`` that are not needed, where they have lines of their own."""
    lines, _ = _parsed(home)
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Program":
            for each in call.keywords:
                begins = lines[each.lineno - 1].lstrip().startswith(f"{each.arg}=")
                ends = lines[(each.end_lineno or 0) - 1][each.end_col_offset :].strip() == ","
                if each.arg in _UNREAD and begins and ends:
                    yield each


def _first_line(node: ast.Lambda | ast.stmt) -> int:
    """The first line of a statement, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _bindings(home: ModuleType, name: str) -> Iterator[ast.stmt]:
    """The statements of a module that bind the name."""
    found = [node for node in _parsed(home)[1].body if name in _bound(node)]
    if not found:
        raise NotExtractable(f"{name} is not bound by a statement of {home.__name__}")
    yield from found


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name.split(".")[0]
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _only(node: Any, name: str) -> Any:
    """The import statement with only the part that binds the name."""
    names = [each for each in node.names if (each.asname or each.name.split(".")[0]) == name]
    if isinstance(node, ast.Import):
        return ast.Import(names=names)
    return ast.ImportFrom(module=node.module, names=names, level=node.level)


def _node_of(function: FunctionType, home: ModuleType) -> Any:
    """The definition or lambda of a function, by its place and arguments: the innermost such."""
    code = function.__code__
    kind = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
    last = max((line, column) for line, _, column, _ in code.co_positions() if line and column)
    found: Any = None
    for node in ast.walk(_parsed(home)[1]):
        if isinstance(node, kind) and _first_line(node) == code.co_firstlineno:
            arguments = [*node.args.posonlyargs, *node.args.args]
            names = tuple(each.arg for each in arguments)
            start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
            if names == code.co_varnames[: code.co_argcount] and start <= last <= end:
                found = node
    if found is None:
        raise NotExtractable(f"the source of {function.__qualname__} is not found")
    return found


def _package(module: str) -> str:
    return module.partition(".")[0]

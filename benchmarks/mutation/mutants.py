"""Mutants: small changes to a source file that a test should notice.

Left alone is what no test should hold: type annotations, decorators, assertions, exported names,
f-strings and strings of several words (both are messages), and what is raised with an exception.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_OPERATIONS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SYMMETRIC: Final = {"hypot", "isclose", "max", "maximum", "min", "minimum"}
_MESSAGES: Final = {"reason", "advice", "remedy", "message", "help", "strict"}  # zip's asserts
_TYPING: Final = {"TypeVar", "NewType", "cast", "TypedDict"}


Key = tuple[str, str, str]
"""File, text of the line, mutation: the name of a mutant as long as its line stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change to one file.

    A test runs one of ``lines``, those of the statement; there are none if the import runs it.
    """

    path: str
    line: int
    text: str
    mutation: str
    lines: range
    mutated: str

    @property
    def key(self) -> Key:
        """Its name."""
        return self.path, self.text, self.mutation


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines; a key that occurs twice gets a number."""
    found: list[Mutant] = []
    seen: dict[Key, int] = {}
    data = source.encode()
    starts = [0]
    for each in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(each))
    tree = ast.parse(source)
    functions = [
        range(each.body[0].lineno, (each.end_lineno or 0) + 1)
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef)
    ]
    changes = sorted(_changes(tree), key=lambda change: change[1].lineno)
    for statement, node, new, mutation in changes:
        assert node.end_lineno is not None  # it comes from a file
        assert node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        text = source.splitlines()[node.lineno - 1].strip()
        count = seen[path, text, mutation] = seen.get((path, text, mutation), 0) + 1
        found.append(
            Mutant(
                path=path,
                line=node.lineno,
                text=text,
                mutation=mutation if count == 1 else f"{mutation} ({count})",
                lines=_header(statement, functions),
                mutated=(data[:begin] + new.encode() + data[end:]).decode(),
            )
        )
    return found


_Located = ast.expr | ast.stmt
_Change = tuple[_Located, str, str]
"""What is replaced, by which text, and how a reader is told."""


def _header(statement: ast.stmt, functions: Sequence[range]) -> range:
    """The lines of a statement in a function, without those of the statements in it."""
    if not any(statement.lineno in body for body in functions):
        return range(0)
    body = getattr(statement, "body", None)
    end = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    return range(statement.lineno, max(end, statement.lineno) + 1)


def _changes(tree: ast.Module) -> Iterator[tuple[ast.stmt, *_Change]]:
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.stmt) or isinstance(statement, ast.Assert):
            continue
        if not _is_docstring(statement):
            for change in _of_statement(statement):
                yield statement, *change
            for child in _parts(statement):
                for node, new, mutation in _of_expression(child):
                    yield statement, node, f"({new})", mutation


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and (isinstance(statement.value.value, str) or statement.value.value is ...)
    )


def _of_statement(statement: ast.stmt) -> Iterator[_Change]:
    match statement:
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield statement, "return None", "return None"
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            yield statement, "yield None", "yield None"
        case ast.Expr() | ast.AugAssign() | ast.Raise():
            yield statement, "pass", "statement removed"
        case ast.If(test=ast.expr() as test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield test, f"(not ({ast.unparse(test)}))", "condition negated"
        case ast.Continue():
            yield statement, "break", "continue → break"
        case ast.Break():
            yield statement, "continue", "break → continue"


def _parts(statement: ast.stmt) -> Iterator[ast.expr]:
    """The outermost expressions of a statement whose value is something else than a type."""
    match statement:
        case ast.FunctionDef():
            defaults = [*statement.args.defaults, *statement.args.kw_defaults]
            yield from (each for each in defaults if each is not None)
        case ast.ClassDef() | ast.Import() | ast.ImportFrom() | ast.Raise():
            return
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return
        case ast.AnnAssign():
            if statement.value is not None:
                yield statement.value
        case _:
            children = ast.iter_child_nodes(statement)
            yield from (each for each in children if isinstance(each, ast.expr))
            for item in getattr(statement, "items", ()):
                yield item.context_expr


def _of_expression(node: ast.expr) -> Iterator[_Change]:
    match node:
        case ast.JoinedStr():
            return
        case ast.Call(func=ast.Name(id=name)) if name in _TYPING or name.endswith("Error"):
            return
    yield from _conditions(node)
    yield from _operations(node)
    yield from _calls(node)
    yield from _constants(node)
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.keyword() if child.arg not in _MESSAGES:
                yield from _of_expression(child.value)
            case ast.comprehension():
                yield from _of_expression(child.iter)
                for test in child.ifs:
                    yield test, f"not ({ast.unparse(test)})", "condition negated"
                    yield from _of_expression(test)
            case ast.expr():
                yield from _of_expression(child)


def _conditions(node: ast.expr) -> Iterator[_Change]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            for other in _COMPARISONS[type(operator)]:
                changed = ast.Compare(left=left, ops=[other()], comparators=[right])
                yield _unparsed(node, changed)
        case ast.BoolOp(op=operator, values=values):
            other_word = ast.Or() if isinstance(operator, ast.And) else ast.And()
            exchanged = ast.BoolOp(op=other_word, values=values)
            yield node, ast.unparse(exchanged), "and, or exchanged"
            for index in range(len(values)):
                rest = values[:index] + values[index + 1 :]
                left_out = f"without {ast.unparse(values[index])}"
                yield node, ast.unparse(ast.BoolOp(op=operator, values=rest)), left_out
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield _unparsed(node, operand)
        case ast.IfExp(test=test):
            yield test, f"not ({ast.unparse(test)})", "condition negated"


def _operations(node: ast.expr) -> Iterator[_Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        texts = (ast.JoinedStr, ast.Constant)
        sides = [each for each in (node.left, node.right) if isinstance(each, texts)]
        if not any(isinstance(getattr(each, "value", ""), str) for each in sides):
            operator = _OPERATIONS[type(node.op)]()
            changed = ast.BinOp(left=node.left, op=operator, right=node.right)
            yield _unparsed(node, changed)


def _calls(node: ast.expr) -> Iterator[_Change]:
    if not isinstance(node, ast.Call):
        return
    name = ast.unparse(node.func).rpartition(".")[2]
    if isinstance(node.func, ast.Name) and name in _NAMES:
        yield node.func, _NAMES[name], f"{name} → {_NAMES[name]}"
    first = [] if name in _SYMMETRIC else node.args[:2]
    texts = {ast.unparse(each) for each in first}
    if len(texts) == 2 and not any(isinstance(each, ast.Starred) for each in first):  # noqa: PLR2004 # a pair
        swapped = [node.args[1], node.args[0], *node.args[2:]]
        changed = ast.Call(func=node.func, args=swapped, keywords=node.keywords)
        yield node, ast.unparse(changed), f"{ast.unparse(node.func)}: arguments swapped"
    for word in node.keywords:
        if word.arg is not None and word.arg not in _MESSAGES:
            rest = [each for each in node.keywords if each is not word]
            changed = ast.Call(func=node.func, args=node.args, keywords=rest)
            yield node, ast.unparse(changed), f"{ast.unparse(node.func)}: without {word.arg}="


def _constants(node: ast.expr) -> Iterator[_Change]:
    if not isinstance(node, ast.Constant):
        return
    others: list[str | bool | int | float] = []
    match node.value:
        case bool():
            others = [not node.value]
        case int():
            others = [node.value + 1, *([node.value - 1] if node.value else [])]
        case float():
            others = [node.value * 2 or 1.0]
        case str() if node.value and " " not in node.value:
            others = [""]
    for other in others:
        yield _unparsed(node, ast.Constant(value=other))


def _unparsed(old: ast.expr, new: ast.expr) -> _Change:
    text = ast.unparse(new)
    return old, text, f"{ast.unparse(old)} → {text}"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None

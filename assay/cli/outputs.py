"""The files that a command was asked to write: checked before any work, so that none is lost."""

from pathlib import Path

from assay.model.blame import WrongValue
from assay.store.files import folder_obstacle


def check_outputs(*subjects: str | Path, html: Path | None, bundle: Path | None = None) -> None:
    """Raise WrongValue for a page or a bundle that cannot be written, or would replace an input.

    ``subjects`` are what the command reads: files, each with or without ``:FUNCTION``.
    """
    try:
        read = [path for each in subjects for path in (Path(each), _file_of(str(each)))]
        files = [path.resolve() for path in read if path.is_file()]
        if html is not None:
            _check_page(html, files)
        if bundle is not None:
            _check_bundle(bundle, files)
    except OSError as error:  # Such as a name that is too long.
        raise WrongValue(
            f"got {error.filename} ({error.strerror}), wanted a path that can be used; name another"
        ) from None


def _file_of(subject: str) -> Path:
    return Path(subject.rpartition(":")[0])


def _check_page(html: Path, files: list[Path]) -> None:
    what = ""
    if html.resolve() in files:
        what = "the file that the command reads"
    elif html.suffix == ".py":
        what = "a Python file"
    elif html.is_dir():
        what = "a folder"
    elif html.exists() and not html.is_file():
        what = "a device or a pipe"
    if what:
        raise WrongValue(f"got --html={html}, {what}, wanted a file for a page, such as page.html")
    _check_folder("--html", html, html.parent)


def _check_bundle(bundle: Path, files: list[Path]) -> None:
    # A bundle has a ``repro.py`` and an ``issue.md``, which the program's folder may have too.
    if inside := [path for path in files if path.parent == bundle.resolve()]:
        raise WrongValue(
            f"got --bundle={bundle}, the folder of {inside[0].name}, wanted a folder of its own, "
            "such as bundle"
        )
    _check_folder("--bundle", bundle, bundle)


def _check_folder(option: str, path: Path, folder: Path) -> None:
    if why := folder_obstacle(folder):
        raise WrongValue(f"got {option}={path}, {why}")

"""``python -m assay.isolate TARGET… [--forks-for FRAMEWORK]``: an observer's child."""

import argparse

from assay.isolate.server import serve
from assay.model.target import TargetName

parser = argparse.ArgumentParser()
parser.add_argument("targets", nargs="*", type=TargetName.parse)
parser.add_argument("--forks-for", default="")
arguments = parser.parse_args()
serve(arguments.targets, arguments.forks_for)

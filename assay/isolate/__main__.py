"""``python -m assay.isolate TARGET… [--forks-for NAME] [--process JSON]``: an observer's child."""

import argparse

import msgspec

from assay.isolate.server import serve
from assay.model.process import Process
from assay.model.target import TargetName

parser = argparse.ArgumentParser()
parser.add_argument("targets", nargs="*", type=TargetName.parse)
parser.add_argument("--forks-for", default="")
parser.add_argument("--process", type=lambda text: msgspec.json.decode(text, type=Process))
arguments = parser.parse_args()
serve(arguments.targets, arguments.forks_for, arguments.process)

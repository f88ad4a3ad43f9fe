"""Settings shared by all tests."""

import os
import signal

from hypothesis import settings

# No test depends on how fast the machine is.
settings.register_profile("penstock", deadline=None)
# `make compare`: for tests that take their number of examples from the profile.
settings.register_profile("thorough", deadline=None, max_examples=3000)
settings.load_profile("penstock")

# Under nohup, and in the background of a script, these signals are ignored, and the programs
# that tests start inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tasks written in Python inherit it from the environment of the tests. With it, `print` writes its
# arguments one by one, which mixes the lines of tasks that share a file.
os.environ.pop("PYTHONUNBUFFERED", None)

"""Penstock's scheduler as a broker module of Flux.

`penstock flux module-path` prints the folder of this file, for FLUX_MODULE_PATH. The module runs
under the Python of Flux, 3.6 or newer, and needs nothing but Flux. The scheduler is a process below
it, `penstock sched`, with a connection of its own to the broker. That process has the Python in
which Penstock is installed, or else that of Flux, if that is 3.11 or newer.

Arguments are `KEY=VALUE`. The table `sched-penstock` of the configuration has the same keys; an
argument overrides the table:

- `policy`, `selection`, `overlong`, `annotate`: as in the table `penstock.scheduler` of an instance
  of Penstock; the table can have `queues`, too.
- `queue-depth`: the greatest number of outstanding alloc requests, or `unlimited`, the default.
- `log-level`: the least severity of the lines that go to the log of the broker, by default `info`.
  While debug flag 1 is set (`flux module debug --setbit 1 sched-penstock`), all lines go there.
- `python`: the interpreter of the scheduler.
"""

import ctypes
import errno
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys

from flux.brokermod import BrokerModule, request_handler
from flux.constants import FLUX_POLLERR, FLUX_POLLIN

SETTINGS = ("policy", "selection", "overlong", "annotate")
KEYS = (*SETTINGS, "queue-depth", "log-level", "python")
LOG_ALL = 1
ERROR_SEVERITY = 3
# The folder above the package: `site-packages`, or that of the sources.
SITE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PR_SET_PDEATHSIG = 1
END_TIMEOUT_S = 10


class SchedPenstock(BrokerModule):
    """Starts the scheduler, forwards its log, and ends it with the module."""

    def __init__(self, h, *args):
        super().__init__(h, *args)
        self._unread = b""
        try:
            self._arguments = parse_arguments(args)
            options = self._options(h.conf_get(self.name, default={}))
            self.log.level = options.get("log-level", "info")
            self._settings = settings_of(options)
            self._process = start(options, self._settings, h.attr_get("local-uri"))
        except ValueError as error:
            self.log.error(str(error))
            raise OSError(errno.EINVAL, str(error)) from None
        except OSError as error:
            self.log.error("{}: {}".format(error.filename, error.strerror))
            raise
        self._await_registration()
        os.set_blocking(self._process.stderr.fileno(), False)
        self._watcher = h.fd_watcher_create(
            self._process.stderr.fileno(), self._on_output, FLUX_POLLIN | FLUX_POLLERR
        )
        self._watcher.start()

    def run(self):
        """Serves until the module is removed or the scheduler has ended."""
        try:
            super().run()
        finally:
            self._end()

    def _options(self, table):
        options = dict(table, **self._arguments)
        unknown = sorted(set(options) - set(KEYS) - {"queues"})
        if unknown:
            raise ValueError(
                "unknown option `{}`: expected one of {}".format(unknown[0], ", ".join(KEYS))
            )
        return options

    def _await_registration(self):
        """Forwards the log until the scheduler has registered its services.

        It is ready later: the inventory may have to wait for brokers that wait for this module.

        Raises:
            OSError: the scheduler has ended before.
        """
        lines = []
        while True:
            data = os.read(self._process.stderr.fileno(), 65536)
            if not data:
                break
            new = self._forward(data)
            if "registered" in new:
                return
            lines += new
        code = self._process.wait()
        self._process.stderr.close()
        text = lines[-1] if lines else "penstock sched has ended with status {}".format(code)
        if not lines:
            self.log.error(text)
        if "another scheduler" in text:
            raise OSError(errno.EEXIST, text)
        # The command line rejects an option: its errors have no severity.
        is_usage = text.startswith("penstock sched: ")
        raise OSError(errno.EINVAL if is_usage else errno.ECANCELED, text)

    def _forward(self, data):
        """Writes lines of the scheduler to the log of the broker; returns their texts."""
        *lines, self._unread = (self._unread + data).split(b"\n")
        texts = []
        for line in lines:
            severity, text = severity_of(line.decode("utf-8", "replace"))
            if self.debug_test(LOG_ALL):
                self.handle.log(severity, text)
            else:
                self.log(severity, text)
            texts.append(text)
        return texts

    def _on_output(self, *_):
        try:
            data = os.read(self._process.stderr.fileno(), 65536)
        except BlockingIOError:
            return
        if data:
            self._forward(data)
            return
        self._watcher.stop()
        code = self._process.wait()
        self.log.error("penstock sched has ended with status {}".format(code))
        # A failed module ends the broker, and with it the running jobs, which need no scheduler.
        self.stop()

    def _end(self):
        """Lets the scheduler unregister its services and end."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                # The broker does not answer: its disconnect frees the services.
                self._process.kill()
        os.set_blocking(self._process.stderr.fileno(), True)
        for data in iter(lambda: os.read(self._process.stderr.fileno(), 65536), b""):
            self._forward(data)
        self._process.wait()
        self._process.stderr.close()

    @request_handler("stats-get")
    def stats(self, msg):
        """Responds with the statistics of the scheduler."""
        self._relay(msg, "sched.stats-get", None)

    @request_handler("config-reload")
    def reload(self, msg):
        """Applies a changed configuration; arguments still override it."""
        try:
            options = self._options(msg.payload.get(self.name, {}))
            self.log.level = options.get("log-level", "info")
        except ValueError as error:
            self.log.error(str(error))
            self.handle.flux_respond_error(msg.handle, errno.EINVAL, str(error))
            return
        settings = settings_of(options)
        if settings == self._settings:
            self.handle.respond(msg)
            return
        self._settings = settings
        self._relay(msg, "sched.config-reload", settings)

    def _relay(self, msg, topic, payload):
        """Sends a request to the scheduler, and its response to the sender of `msg`."""

        def respond(future):
            try:
                self.handle.respond(msg, future.get())
            except OSError as error:
                self.handle.flux_respond_error(msg.handle, error.errno, error.strerror or "")

        self.handle.rpc(topic, payload).then(respond)


def parse_arguments(args):
    """The arguments of the module by their keys."""
    options = {}
    for arg in args:
        key, separator, value = arg.partition("=")
        if not separator:
            raise ValueError("argument `{}`: expected KEY=VALUE".format(arg))
        if key not in KEYS:
            raise ValueError("unknown option `{}`: expected one of {}".format(key, ", ".join(KEYS)))
        options[key] = int(value) if key == "annotate" and value.isdigit() else value
    return options


def settings_of(options):
    """The settings of the scheduler, as `penstock sched --settings` takes them."""
    settings = {key: options[key] for key in (*SETTINGS, "queues") if key in options}
    # In Flux every user can list all jobs.
    settings["job-visibility"] = "all"
    return settings


def start(options, settings, uri):
    """Starts `penstock sched`, which ends with this process."""
    command, environment = interpreter(options.get("python"))
    # Without the working directory of Flux in the path.
    command += ["-P", "-m", "penstock", "sched", "--uri", uri, "--no-grow", "--severities"]
    command += ["--settings", json.dumps(settings)]
    depth = str(options.get("queue-depth", "unlimited"))
    if depth != "unlimited":
        command += ["--limit", depth]
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def end_with_parent():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(os.environ, **environment),
        preexec_fn=end_with_parent,  # the child has no threads yet
    )


def interpreter(chosen):
    """The Python that runs Penstock, as the first words of a command, and its environment."""
    if chosen:
        return [chosen], {}
    found = re.match(r"(.*)/lib(64)?/python[0-9.]+/(site|dist)-packages$", SITE)
    if found:
        for path in glob.glob(os.path.join(found.group(1), "bin", "python3")):
            if os.path.exists(os.path.join(found.group(1), "bin", "penstock")):
                return [path], {}
    if sys.version_info >= (3, 11):
        inherited = [path for path in [os.environ.get("PYTHONPATH")] if path]
        return [sys.executable], {"PYTHONPATH": os.pathsep.join([SITE, *inherited])}
    path = shutil.which("python3.11") or shutil.which("python3")
    raise ValueError(
        "Penstock needs Python 3.11 or newer, Flux has {}.{}: expected `python=PATH`, such as "
        "python={}".format(sys.version_info[0], sys.version_info[1], path)
    )


def severity_of(line):
    """The severity of a line of the log, such as `<6>ready`, and its text."""
    found = re.match(r"<([0-7])>(.*)$", line)
    return (int(found.group(1)), found.group(2)) if found else (ERROR_SEVERITY, line)

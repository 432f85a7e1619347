"""Processes of Python that have imported their modules when they begin, which takes seconds otherwise. job_case.Forked
starts them."""

import json
import os
import sys


def serve(main):
    """Forks ``main(*arguments)`` for each line of standard input, or says whether a process has ended."""
    for line in sys.stdin:
        call = json.loads(line)
        if isinstance(call, int):
            number, status = os.waitpid(call, os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if number else None
        elif (answer := os.fork()) == 0:
            for stream, path in enumerate((os.devnull, *call["outputs"])):
                os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), stream)
            os.environ.update(call["environment"])
            os.chdir(call["cwd"])
            sys.exit(main(*call["arguments"]))
        print(json.dumps(answer), flush=True)

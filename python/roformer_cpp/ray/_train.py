"""Pretraining in workers of ray.train, each with its part of every batch."""

import os
import tempfile
from pathlib import Path
from typing import Any

from .. import _checks
from . import _cluster

_WHERE = "train"
# Worker processes import torch before the package, which would set it otherwise (docs/pretraining.md).
_ENVIRONMENT = {"GOMP_SPINCOUNT": "10000"}


def train(
    run: str | os.PathLike | dict[str, Any],
    data: str | os.PathLike,
    output: str | os.PathLike,
    *,
    workers: int,
    cpus_per_worker: int = 1,
    resume: bool = False,
    restarts: int = 3,
    **options: Any,
) -> Any:
    """Pretrains in several processes: ``roformer_cpp.distributed.pretrain`` in each worker of a ``TorchTrainer`` of
    Ray, which has made the process group of torch.distributed (gloo).

    If a worker is killed, Ray starts all workers again, and they continue from the newest checkpoint.

    Args:
        run: the run file, or its keys as a dictionary.
        data: the directory of prepared data, at a path that all machines have.
        output: directory of the run, new or empty unless it is resumed, at a path that all machines have. Ray keeps its
            own state next to it, in ``<output>.ray-..``, until the call ends.
        workers: processes.
        cpus_per_worker: threads of each.
        resume: continue from the newest checkpoint, or start without one.
        restarts: how often the workers are started again after a failure.
        **options: further arguments of ``roformer_cpp.distributed.pretrain``.

    Returns:
        What ``roformer_cpp.distributed.pretrain`` returned in the first worker.

    Raises:
        ValueError, TypeError, FileNotFoundError, RuntimeError: as for :func:`roformer_cpp.pretrain`; the cluster has
            too few CPUs.
        ImportError: Ray or PyTorch is not installed.
    """
    ray = _cluster.load(_WHERE)
    given = dict(options, threads=_checks.integer(_WHERE, "cpus_per_worker", cpus_per_worker, 1, 1025))
    _checks.boolean(_WHERE, "resume", resume)
    _checks.integer(_WHERE, "restarts", restarts, -1)
    run = run if isinstance(run, dict) else os.path.abspath(_checks.path(_WHERE, "the run file", run))  # noqa: PTH100
    data = os.path.abspath(_checks.directory(_WHERE, data, "data"))  # noqa: PTH100
    final = Path(_checks.path(_WHERE, "the output", output)).absolute()
    if not resume:
        _cluster.check_new(_WHERE, final)
    number = _checks.integer(_WHERE, "workers", workers, 1)
    _cluster.processes(_WHERE, ray, "workers", number, given["threads"], 0)
    rule = f"[{_WHERE}] PyTorch and the packages of the extra ray must be installed"
    hint = ". Hint: pip install 'roformer-cpp[ray,torch]'"
    trainer_class = _checks.needed("ray.train.torch", rule, hint).TorchTrainer
    settings = ray.train
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=final.name + ".ray-", dir=final.parent, ignore_cleanup_errors=True
    ) as state:
        trainer = trainer_class(
            pretrain_in_worker,
            train_loop_config=dict(given, run=run, data=data, output=str(final)),
            scaling_config=settings.ScalingConfig(num_workers=number, resources_per_worker={"CPU": given["threads"]}),
            run_config=settings.RunConfig(
                name="pretrain",
                storage_path=state,
                failure_config=settings.FailureConfig(max_failures=restarts),
                worker_runtime_env={"env_vars": _ENVIRONMENT},
            ),
        )
        with _cluster.own_errors(settings.TrainingFailedError):
            return trainer.fit().return_value


def pretrain_in_worker(given: dict[str, Any]) -> Any:
    """The work of each worker. It always resumes: Ray calls it again after a failure. :func:`train` has looked whether
    there was a run before."""
    from .. import distributed

    given = dict(given)
    return distributed.pretrain(given.pop("run"), given.pop("data"), given.pop("output"), resume=True, **given)

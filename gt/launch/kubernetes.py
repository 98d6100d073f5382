"""Manifests for Kubernetes: a JobSet, a LeaderWorkerSet, or plain Jobs with a Service.

One pod is the head, with dispatcher and program; the others are workers, which call it. The token
is in a Secret, and a NetworkPolicy lets only the pods of the launch reach each other. Nothing here
talks to a cluster: `kubectl` takes the text.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

import yaml

from gt.launch.engine import EVERYWHERE, LaunchError, Plan, Submitted

# A part of a manifest.
Node = dict[str, object]

LABEL = "app.kubernetes.io/instance"
PART = "app.kubernetes.io/component"
QUEUE = "kueue.x-k8s.io/queue-name"  # Kueue admits the job when there is quota
WAIT_SECONDS = "600"  # time in which pods of one launch may start, while images are pulled
KEPT_SECONDS = 3600  # time for which an ended job is kept, so that its log can be read


def _text(plan: Plan) -> str:
    kinds: dict[str, Callable[[Plan], list[Node]]] = {
        "jobset": _job_set,
        "leaderworkerset": _leader_worker_set,
        "job": _jobs,
    }
    kind = plan.settings["kind"]
    if kind not in kinds:
        raise LaunchError(f"--set kind={kind}: expected one of {', '.join(kinds)}")
    if not plan.settings["image"]:
        raise LaunchError("--set image=IMAGE is missing: one with GT, see examples/deploy")
    documents = [_secret(plan), _network_policy(plan), *kinds[kind](plan)]
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """Writes repeated parts of a manifest in full, without anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _job_set(plan: Plan) -> list[Node]:
    """Names of pods are known in the whole network: the head is the first of its job."""
    head = _head_name(plan)
    jobs = [
        {"name": "head", "replicas": 1, "template": {"spec": _job(plan, 1, _head(plan), "head")}},
        {
            "name": "workers",
            "replicas": 1,
            "template": {"spec": _job(plan, _pods(plan), _worker(plan, head), "workers")},
        },
    ]
    specification: Node = {
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["head"]},
        "failurePolicy": {"maxRestarts": 0},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "replicatedJobs": jobs,
    }
    return [_object(plan, "jobset.x-k8s.io/v1alpha2", "JobSet", plan.name, specification)]


def _leader_worker_set(plan: Plan) -> list[Node]:
    """For a cluster that stays, with pods that are restarted; the leader has a worker too."""
    if plan.program:
        raise LaunchError("a LeaderWorkerSet stays: use gt up, or --set kind=jobset")
    leader, worker = _head(plan), _worker(plan, "$(LWS_LEADER_ADDRESS)")
    containers = [*_containers(leader), *_containers(worker)]
    group = {
        "size": _pods(plan),
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": _template(plan, {**worker, "containers": containers}, "head"),
        "workerTemplate": _template(plan, worker, "workers"),
    }
    specification: Node = {"replicas": 1, "leaderWorkerTemplate": group}
    version = "leaderworkerset.x-k8s.io/v1"
    return [_object(plan, version, "LeaderWorkerSet", plan.name, specification)]


def _jobs(plan: Plan) -> list[Node]:
    """Objects of plain Kubernetes: a name for the head, the head's job, and the workers' job."""
    head = _head_name(plan)
    service: Node = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {LABEL: plan.name, PART: "head"},
        "ports": [{"name": "dispatcher", "port": int(plan.port)}],
    }
    jobs = {
        "head": _job(plan, 1, _head(plan), "head"),
        "workers": _job(plan, _pods(plan), _worker(plan, head), "workers"),
    }
    lifetime: Node = {"ttlSecondsAfterFinished": KEPT_SECONDS}
    return [
        _object(plan, "v1", "Service", head, service),
        *(
            _object(plan, "batch/v1", "Job", f"{plan.name}-{part}", job | lifetime)
            for part, job in jobs.items()
        ),
    ]


def _head_name(plan: Plan) -> str:
    """Name of the head's pod for programs and pods of its namespace."""
    names = {
        "jobset": f"{plan.name}-head-0-0.{plan.name}",
        "leaderworkerset": f"{plan.name}-0.{plan.name}",
        "job": f"{plan.name}-head",
    }
    return names[plan.settings["kind"]]


def _secret(plan: Plan) -> Node:
    secret = _object(plan, "v1", "Secret", f"{plan.name}-token", {})
    del secret["spec"]
    return {**secret, "stringData": {"token": plan.token}}


def _network_policy(plan: Plan) -> Node:
    """Pods of the launch reach each other; programs in the namespace reach a cluster that stays."""
    own: Node = {"matchLabels": {LABEL: plan.name}}
    ingress: list[Node] = [{"from": [{"podSelector": own}]}]
    if not plan.program:
        port = {"protocol": "TCP", "port": int(plan.port)}
        ingress.append({"from": [{"podSelector": {}}], "ports": [port]})
    policy: Node = {"podSelector": own, "policyTypes": ["Ingress"], "ingress": ingress}
    return _object(plan, "networking.k8s.io/v1", "NetworkPolicy", plan.name, policy)


def _object(plan: Plan, version: str, kind: str, name: str, specification: Node) -> Node:
    labels = {LABEL: plan.name}
    if plan.settings["queue"] and kind in {"JobSet", "Job", "LeaderWorkerSet"}:
        labels[QUEUE] = plan.settings["queue"]
    metadata: Node = {"name": name, "labels": labels}
    if plan.settings["namespace"]:
        metadata["namespace"] = plan.settings["namespace"]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": specification}


def _job(plan: Plan, pods: int, pod: Node, part: str) -> Node:
    """A job of pods numbered from 0 that are not restarted: their tensors would be lost."""
    return {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": _template(plan, {"restartPolicy": "Never", **pod}, part),
    }


def _template(plan: Plan, pod: Node, part: str) -> Node:
    return {"metadata": {"labels": {LABEL: plan.name, PART: part}}, "spec": pod}


def _head(plan: Plan) -> Node:
    words = plan.launcher(
        "--on", "elsewhere", "-n", str(plan.workers), "--host", EVERYWHERE, "-p", plan.port
    )
    if not plan.program:
        words += ["--join-seconds", "0"]
    return {"containers": [_container(plan, "head", words)]}


def _worker(plan: Plan, head: str) -> Node:
    each = _workers_of_a_pod(plan)
    words = ["--launch", "auto", "--count", str(each), "--wait-seconds", WAIT_SECONDS]
    words += ["--host", head, "-p", plan.port]
    container = _container(plan, "worker", plan.worker(*words))
    if plan.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": each * plan.gpus}}
    # The default shared memory of containers is too small for NCCL and for data loaders.
    container["volumeMounts"] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]  # noqa: S108
    volume = {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
    return {"containers": [container], "volumes": [volume]}


def _container(plan: Plan, name: str, words: Sequence[str]) -> Node:
    secret = {"secretKeyRef": {"name": f"{plan.name}-token", "key": "token"}}
    variables: list[Node] = [{"name": "GT_TOKEN", "valueFrom": secret}]
    variables += [{"name": key, "value": value} for key, value in plan.environment.items()]
    image = plan.settings["image"]
    return {"name": name, "image": image, "command": list(words), "env": variables}


def _containers(pod: Node) -> list[object]:
    containers = pod["containers"]
    assert isinstance(containers, list), pod
    return containers


def _workers_of_a_pod(plan: Plan) -> int:
    word = plan.settings["workers-of-a-pod"]
    if not word.isdigit() or not int(word):
        raise LaunchError(f"--set workers-of-a-pod={word}: expected a number from 1 on")
    return int(word)


def _pods(plan: Plan) -> int:
    each = _workers_of_a_pod(plan)
    if plan.workers % each:
        raise LaunchError(f"-n {plan.workers}: no whole number of pods of {each} workers")
    return plan.workers // each


def _follow(plan: Plan, _job: str) -> list[str]:
    """Output of the head's pod, which may have to wait for a node, then its status."""
    pods = ["pod", "--selector", f"{LABEL}={plan.name},{PART}=head"]
    asked = shlex.join(["kubectl", "get", *_namespace(plan), *pods, "--output"])
    container = ".items[0].status.containerStatuses[0]"
    phase = f"{asked} 'jsonpath={{.items[*].status.phase}}'"
    code = f"{asked} 'jsonpath={{{container}.state.terminated.exitCode}}'"
    logs = ["kubectl", "logs", *_namespace(plan), *pods[1:], "--container=head"]
    steps = [
        f"until {phase} | grep -qE 'Running|Succeeded|Failed'; do sleep 1; done",
        shlex.join([*logs, "--follow", "--tail=-1"]),
        f'until code=$({code}) && test -n "$code"; do sleep 1; done',
        'exit "$code"',
    ]
    return ["sh", "-c", "\n".join(steps)]


def _cancel(plan: Plan, _job: str) -> list[str]:
    kinds = {
        "jobset": "jobsets.jobset.x-k8s.io",
        "leaderworkerset": "leaderworkersets.leaderworkerset.x-k8s.io",
        "job": "jobs.batch,services",
    }
    every = f"{kinds[plan.settings['kind']]},secrets,networkpolicies"
    return ["kubectl", "delete", *_namespace(plan), every, "--selector", f"{LABEL}={plan.name}"]


def _namespace(plan: Plan) -> list[str]:
    name = plan.settings["namespace"]
    return [f"--namespace={name}"] if name else []


ENGINE = Submitted(
    name="k8s",
    summary="pods of Kubernetes: a JobSet, a LeaderWorkerSet, or plain Jobs",
    needs=("kubectl",),
    python="python",
    settings={
        "kind": "jobset",
        "image": "",
        "namespace": "",
        "queue": "",
        "workers-of-a-pod": "1",
    },
    text=_text,
    submit=lambda _plan: ("kubectl", "apply", "--filename", "-"),
    follow=_follow,
    cancel=_cancel,
    address=lambda plan: f"{_head_name(plan)}:{plan.port}",
)

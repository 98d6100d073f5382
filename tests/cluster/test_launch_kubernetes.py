"""Manifests of `gt launch --on k8s`: fields of the published schemas, what they mean together, and
the launch by a played `kubectl`."""

import os
import re
import subprocess
import sys

import pytest
import yaml

from gt.launch import command
from gt.worker import __main__ as worker
from gt.worker import forks

# The part of the published schemas that manifests use: `field! type` is required, `{type}` is a map
# by name, `[type]` a list. Kubernetes 1.37, JobSet v1alpha2, LeaderWorkerSet v1.
SCHEMA = """
Metadata: name! str, namespace str, labels {str}
PodMetadata: labels {str}
Secret: apiVersion! str, kind! str, metadata! Metadata, stringData {str}
NetworkPolicy: apiVersion! str, kind! str, metadata! Metadata, spec! NetworkPolicySpec
NetworkPolicySpec: podSelector LabelSelector, policyTypes [str], ingress [NetworkPolicyIngress]
NetworkPolicyIngress: from [NetworkPolicyPeer], ports [NetworkPolicyPort]
NetworkPolicyPeer: podSelector LabelSelector
NetworkPolicyPort: protocol str, port int
LabelSelector: matchLabels {str}
Service: apiVersion! str, kind! str, metadata! Metadata, spec! ServiceSpec
ServiceSpec: clusterIP str, publishNotReadyAddresses bool, selector {str}, ports [ServicePort]
ServicePort: name str, port! int
Job: apiVersion! str, kind! str, metadata! Metadata, spec! JobSpec
JobSpec: parallelism int, completions int, completionMode str, backoffLimit int, template! PodTemplate, ttlSecondsAfterFinished int
PodTemplate: metadata PodMetadata, spec! PodSpec
PodSpec: restartPolicy str, containers! [Container], volumes [Volume]
Container: name! str, image str, command [str], env [EnvVar], resources Resources, volumeMounts [VolumeMount]
EnvVar: name! str, value str, valueFrom EnvVarSource
EnvVarSource: secretKeyRef SecretKey
SecretKey: name str, key! str
Resources: limits {int}
VolumeMount: name! str, mountPath! str
Volume: name! str, emptyDir EmptyDir
EmptyDir: medium str
JobSet: apiVersion! str, kind! str, metadata! Metadata, spec! JobSetSpec
JobSetSpec: successPolicy SuccessPolicy, failurePolicy FailurePolicy, network Network, ttlSecondsAfterFinished int, replicatedJobs [ReplicatedJob]
SuccessPolicy: operator! str, targetReplicatedJobs [str]
FailurePolicy: maxRestarts int
Network: enableDNSHostnames bool, publishNotReadyAddresses bool
ReplicatedJob: name! str, replicas int, template! JobTemplate
JobTemplate: spec JobSpec
LeaderWorkerSet: apiVersion! str, kind! str, metadata! Metadata, spec! LeaderWorkerSetSpec
LeaderWorkerSetSpec: replicas int, leaderWorkerTemplate! Group
Group: size int, restartPolicy str, leaderTemplate PodTemplate, workerTemplate! PodTemplate
"""  # noqa: E501
VERSIONS = {
    "Secret": "v1",
    "Service": "v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}
CHOICES = {
    "completionMode": {"Indexed", "NonIndexed"},
    "operator": {"All", "Any"},
    "medium": {"", "Memory"},
    "protocol": {"TCP", "UDP"},
}
FIELD = re.compile(r"(\w+)(!?) (\S+?)(?:, |$)")
TYPES = {
    name: {field: (kind, bool(must)) for field, must, kind in FIELD.findall(fields)}
    for name, _, fields in (line.partition(": ") for line in SCHEMA.split("\n") if line)
}
LAUNCHES = [
    "launch -n 8 --set kind=jobset",
    "launch -n 8 --set kind=jobset --set workers-of-a-pod=4 --set queue=team --set namespace=lab",
    "launch -n 1 --set kind=jobset --gpus 0 --env NOTE=3",
    "launch -n 6 --set kind=job --gpus 2 --set workers-of-a-pod=3 --name a-b",
    "launch -n 2 --set kind=job --gpus 0",
    "up -n 4 --set kind=jobset",
    "up -n 4 --set kind=job -p 7000",
    "up -n 8 --set kind=leaderworkerset --set workers-of-a-pod=4 --set queue=team",
    "up -n 3 --set kind=leaderworkerset --gpus 0",
]


def mistakes(value, kind, path):
    """Errors where a value does not have its type."""
    if kind in ("str", "int", "bool"):
        if type(value).__name__ != kind:
            yield f"{path} is {value!r}, no {kind}"
        elif value not in CHOICES.get(path.rpartition(".")[2], {value}):
            yield f"{path} is {value!r}"
    elif kind[0] in "{[":
        if not isinstance(value, dict if kind[0] == "{" else list):
            yield f"{path} is {value!r}, no {kind}"
            return
        for key, one in value.items() if kind[0] == "{" else enumerate(value):
            yield from mistakes(one, kind[1:-1], f"{path}[{key}]")
    else:
        fields = TYPES[kind]
        yield from (f"{path}.{key} is no field of {kind}" for key in value.keys() - fields.keys())
        yield from (
            f"{path}.{key} is missing"
            for key, (_, must) in fields.items()
            if must and key not in value
        )
        for key in value.keys() & fields.keys():
            yield from mistakes(value[key], fields[key][0], f"{path}.{key}")


def documents(line, capsys):
    name, *words = line.split()
    words = ["--on", "k8s", *words, "--set", "image=registry/gt:1", "--dry-run"]
    words += ["--", "python", "train.py"] if name == "launch" else []
    assert {"launch": command.launch, "up": command.up}[name](words) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def pods(document):
    """(how many, the variable that numbers them, template) of each kind of pod."""
    specification = document.get("spec")
    if document["kind"] == "Job":
        yield specification["parallelism"], "JOB_COMPLETION_INDEX", specification["template"]
    elif document["kind"] == "JobSet":
        for job in specification["replicatedJobs"]:
            own = job["template"]["spec"]
            assert own["parallelism"] == own["completions"]
            yield own["parallelism"] * job["replicas"], "JOB_COMPLETION_INDEX", own["template"]
    elif document["kind"] == "LeaderWorkerSet":
        group = specification["leaderWorkerTemplate"]
        yield 1, "LWS_WORKER_INDEX", group["leaderTemplate"]
        yield group["size"] - 1, "LWS_WORKER_INDEX", group["workerTemplate"]


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in list(os.environ):
        if name.startswith("GT_"):
            monkeypatch.delenv(name)


@pytest.mark.fast
@pytest.mark.parametrize("line", LAUNCHES)
def test_every_field_is_one_of_the_published_schemas(line, capsys):
    for document in documents(line, capsys):
        kind = document["kind"]
        assert document["apiVersion"] == VERSIONS[kind]
        assert list(mistakes(document, kind, kind)) == []


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"stringdata": {}}, "Secret.stringdata is no field of Secret"),
        ({"stringData": {"token": 1}}, "Secret.stringData[token] is 1, no str"),
        ({"stringData": []}, "Secret.stringData is [], no {str}"),
        ({"metadata": {}}, "Secret.metadata.name is missing"),
    ],
)
def test_the_check_itself(change, mistake):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    assert list(mistakes(secret, "Secret", "Secret")) == []
    assert list(mistakes(secret | change, "Secret", "Secret")) == [mistake]


@pytest.mark.fast
@pytest.mark.parametrize("line", LAUNCHES)
def test_pods_make_the_workers_that_were_asked_for(line, capsys, monkeypatch):
    """Each worker's command, with the variables that its pod would have."""
    for variable in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(variable, raising=False)
    started = []
    monkeypatch.setattr(
        forks, "run", lambda start, count, **_: started.extend(forks.starts(start, count)) or 0
    )
    every = documents(line, capsys)
    first = 0
    for document in every:
        for count, variable, template in pods(document):
            first = 0 if variable.startswith("JOB") else first
            containers = {one["name"]: one for one in template["spec"]["containers"]}
            for pod in range(first, first + count):
                if "worker" in containers:
                    monkeypatch.setenv(variable, str(pod))
                    words = containers["worker"]["command"]
                    assert words[:3] == ["python", "-m", "gt.worker"]
                    assert worker.main(words[3:]) == 0
            first += count
    wanted = int(re.search(r"-n (\d+)", line)[1])
    assert sorted(start.index for start in started) == list(range(wanted))
    assert {start.wait_seconds for start in started} == {600}
    each = wanted // len({start.index - start.gpu for start in started})
    assert {start.gpu for start in started} == set(range(each))


@pytest.mark.fast
@pytest.mark.parametrize("line", LAUNCHES)
def test_names_in_a_manifest_belong_together(line, capsys):
    every = documents(line, capsys)
    secret = next(one for one in every if one["kind"] == "Secret")
    policy = next(one for one in every if one["kind"] == "NetworkPolicy")
    service = next((one for one in every if one["kind"] == "Service"), None)
    templates = [template for one in every for _, _, template in pods(one)]
    own = policy["spec"]["podSelector"]["matchLabels"].items()
    heads = []
    for template in templates:
        assert own <= template["metadata"]["labels"].items()
        for container in template["spec"]["containers"]:
            token = next(one for one in container["env"] if one["name"] == "GT_TOKEN")
            reference = token["valueFrom"]["secretKeyRef"]
            assert reference["name"] == secret["metadata"]["name"]
            assert reference["key"] in secret["stringData"]
            assert secret["stringData"]["token"] not in " ".join(container["command"])
            heads += [template] if container["name"] == "head" else []
            mounts = {one["name"] for one in container.get("volumeMounts", [])}
            assert mounts <= {one["name"] for one in template["spec"].get("volumes", [])}
    (head,) = heads
    if service is not None:
        assert service["spec"]["selector"].items() <= head["metadata"]["labels"].items()
    called = {
        container["command"][container["command"].index("--host") + 1]
        for template in templates
        for container in template["spec"]["containers"]
        if container["name"] == "worker"
    }
    name = secret["metadata"]["name"].removesuffix("-token")
    expected = {
        "JobSet": f"{name}-head-0-0.{name}",
        "Job": f"{name}-head",
        "LeaderWorkerSet": "$(LWS_LEADER_ADDRESS)",
    }
    assert called == {expected[every[-1]["kind"]]}


@pytest.mark.slow
@pytest.mark.parametrize("line", LAUNCHES)
def test_manifests_hold_to_the_schemas_themselves(line, capsys):
    """Those of Kubernetes; the package is too large for every run."""
    validator = pytest.importorskip("kubernetes_validate")
    for document in documents(line, capsys):
        if document["apiVersion"] in ("v1", "batch/v1", "networking.k8s.io/v1"):
            validator.validate(document, "1.37.0", strict=True)


KUBECTL = """#!/bin/sh
echo "$@" >> {folder}/calls
case "$*" in
apply*) cat > {folder}/manifest; echo secret/gt-token created ;;
*phase*) test -e {folder}/asked && echo Running; touch {folder}/asked ;;
*exitCode*) echo 3 ;;
logs*) echo loss 0.5 ;;
esac
"""


def test_a_launch_follows_the_head_and_leaves_nothing(tmp_path):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(folder=tmp_path))
    kubectl.chmod(0o755)
    words = ["--on", "k8s", "-n", "2", "--set", "image=i", "--set", "namespace=lab"]
    done = subprocess.run(
        [sys.executable, "-m", "gt", "launch", *words, "--", "sh", "train.sh"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stdout) == (3, "loss 0.5\n"), done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == "apply --filename -"
    assert calls[-1].startswith("delete --namespace=lab jobsets.jobset.x-k8s.io,secrets,network")
    assert all("--namespace=lab" in call for call in calls[1:])
    kinds = [one["kind"] for one in yaml.safe_load_all((tmp_path / "manifest").read_text())]
    assert kinds == ["Secret", "NetworkPolicy", "JobSet"]


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("jobset", "lab-head-0-0.lab:12345"),
        ("job", "lab-head:12345"),
        ("leaderworkerset", "lab-0.lab:12345"),
    ],
)
def test_a_cluster_of_pods_stays(kind, address, tmp_path, monkeypatch, capsys):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(folder=tmp_path))
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path))
    words = ["--on", "k8s", "-n", "2", "--set", "image=i", "--set", f"kind={kind}", "--name", "lab"]
    assert command.up(words) == 0
    capsys.readouterr()
    assert command.up(["--name", "lab"]) == 0
    secret = next(yaml.safe_load_all((tmp_path / "manifest").read_text()))
    token = secret["stringData"]["token"]
    assert capsys.readouterr().out == f"export GT_ADDRESS={address}\nexport GT_TOKEN={token}\n"
    assert command.down(["lab"]) == 0
    assert (tmp_path / "calls").read_text().splitlines()[-1].startswith("delete ")
    assert list((tmp_path / "clusters").iterdir()) == []


def test_a_manifest_that_is_not_taken_is_told(tmp_path):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\necho no such kind JobSet >&2\nexit 1\n")
    kubectl.chmod(0o755)
    words = ["--on", "k8s", "-n", "2", "--set", "image=i"]
    done = subprocess.run(
        [sys.executable, "-m", "gt", "launch", *words, "--", "sh", "train.sh"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 1
    assert done.stderr == "gt launch: kubectl has ended with status 1: no such kind JobSet\n"

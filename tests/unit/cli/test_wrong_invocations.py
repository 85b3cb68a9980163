"""What people type wrong, over all verbs: each is answered with its exit code and with words that say what to do.

None of these is a fault of fleethpa (70), shows a traceback, writes anything, or ends in silence.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cli import Cli, Fleet
from tests.kit.documented import ROOT

FILES: dict[str, bytes] = {
    "empty.kubeconfig": b"kind: Config\nclusters: null\ncontexts: null\nusers: null\n",
    "hpa.yaml": (ROOT / "examples" / "checkout.yaml").read_bytes(),
    "binary.yaml": b"\xff\xfe\x00",
    "empty.yaml": b"",
    "keda.yaml": b"apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: web}\n",
    "vpa.yaml": b"apiVersion: autoscaling.k8s.io/v1\nkind: VerticalPodAutoscaler\nmetadata: {name: web}\n",
    "fleet.yaml": b"apiVersion: fleethpa.io/v1alpha1\nkind: FleetHPA\nmetadata: {name: web}\n",
    "other.yaml": b"apiVersion: apps/v1\nkind: Deployment\n---\napiVersion: v1\nkind: Widget\n",
    "tab.yaml": b"a:\n\t- b",
    "deep.json": b"[" * 700,
    "large.yaml": b"# " + b"x" * 10_500_000,
    "file": b"not a folder, not a key",
    "config.yaml": b"brokerz: a:1\n",
    "list.yaml": b"- brokers\n",
    "client.properties": b"security.protocol=NOPE\n",
}
"""What the commands read, in the working folder; beside it there is an empty folder `folder`."""

WRONG = (
    # Verbs and their parts.
    ("''", 2, "unknown verb ''"),
    ("gte", 2, "Did you mean `get`?"),
    ("audit verfy", 2, "Did you mean `verify`?"),
    ("run observr", 2, "Did you mean `observer`?"),
    ("run page", 2, "Next: fleethpa page --help"),
    ("export all", 2, "Known are"),
    ("demo dya", 2, "Did you mean `day`?"),
    ("admin topics ini", 2, "fleethpa admin topics init --help"),
    ("--bogus", 2, "No such option"),
    ("--version", 2, "fleethpa version"),
    ("help", 2, "fleethpa --help"),
    ("audit help", 2, "fleethpa audit --help"),
    ("scale east/shop/checkout --replicas 3", 2, "Did you mean `override`?"),
    ("logs", 2, "Did you mean `decisions`?"),
    ("list", 2, "Did you mean `get`?"),
    ("admin ingest chekc", 2, "Did you mean `check`?"),
    ("version --foo", 2, "Error: No such option: --foo\n  Next: fleethpa version --help"),
    # Connection and configuration.
    ("decisions -A --config nosuch.yaml", 2, "No such file or directory"),
    ("config view --config config.yaml", 2, "brokerz is no"),
    ("config view --config binary.yaml", 2, "It is not UTF-16-LE text: byte"),
    ("config view --config list.yaml", 2, "must be a mapping"),
    ("admin topics check --brokers 127.0.0.1:abc", 2, "a number from 1 to 65535, got 'abc' (from --brokers)"),
    ("admin topics check --brokers a:99999", 2, "a number from 1 to 65535"),
    ("admin topics check --brokers ''", 2, "--brokers is empty"),
    ("admin topics check --brokers PLAINTEXT://a:1", 2, "without one"),
    ("admin topics check --kafka-config client.properties", 2, "security.protocol must be one of"),
    ("admin topics check", 2, "no Kafka brokers are known"),
    ("get hpa -A --from ''", 2, "--from is empty"),
    ("audit verify --from nosuch", 2, "no such folder"),
    ("audit verify --from nosuch", 2, "This one is looked for in /"),
    ("pause east/shop/web --reason INC-42 --from folder", 2, "pause has no --from"),
    ("admin topics check --from folder", 2, "leave out --from, or fleethpa admin topics check --help"),
    ("export --from folder decisions", 2, "Next: fleethpa export decisions --from …"),
    ("admin topics --from folder check", 2, "fleethpa admin topics has no --from"),
    ("topics check", 2, "Next: fleethpa admin topics --help"),
    ("audit verify --from file", 2, "is a file, and not a bundle"),
    ("audit verify --from folder", 2, "archive.json"),
    ("get -A", 2, "The type comes before -A"),
    ("get --problem", 2, "Next: fleethpa get hpa"),
    ("get hpa -A --timeout 0s", 2, "leaves no time"),
    ("get hpa -A --timeout -5s", 2, "is not a duration"),
    ("get hpa -A --time noon", 2, "'noon' is not one of"),
    # Options that are none.
    ("get hpa --clusterz east", 2, "Did you mean --clusters?\n  Next: fleethpa get hpa --help"),
    ("settings east --price 0.04/h", 2, "price is a setting, not an option"),
    ("settings east --max_step=3", 2, "settings CLUSTER max-step=VALUE"),
    ("settings east --removal-budget.shop=30%/10m", 2, "settings CLUSTER removal-budget.shop=VALUE"),
    ("settings east cluster-uid=east", 2, "expected a UID such as 4f1c2e0a-"),
    ("settings east price 0.04", 2, "Write price=VALUE, without a space."),
    ("settings east --reson x", 2, "Did you mean --reason?"),
    # Names, namespaces, clusters, labels, times.
    ("get hpa east/shop/", 2, "[CLUSTER/][NAMESPACE/]NAME"),
    ("get hpa a/b/c/d", 2, "[CLUSTER/][NAMESPACE/]NAME"),
    ("get hpa east/shop/chekout", 4, "Did you mean east/shop/checkout?"),
    ("get hpa east/shop/checkout@2h", 4, "get and describe have --at TIME"),
    ("describe chekout -n shop", 4, "Did you mean east/shop/checkout?"),
    ("explain чекаут", 4, "no HPA чекаут in namespace default"),
    ("get hpa -n ''", 2, "-n is empty"),
    ("get hpa -A -C ''", 2, "-C is empty"),
    ("get hpa -A -n shop", 2, "exclude each other"),
    ("get hpa -n shop -l a=b=c", 2, "is not a label selector"),
    ("get hpa -n shop -l app=nope", 0, "with -l app=nope; 1 there have the labels app"),
    ("get hpa -A -C nosuch", 4, "no cluster matches 'nosuch'"),
    ("get hpa -A -C eats", 4, "Did you mean east? Known are east"),
    ("get hpa -A -C east,eats -o json", 4, "Did you mean east? Known are east"),
    ("get hpa checkout -n shop -C eats", 4, "Did you mean east? Known are east"),
    ("describe checkout -n shop -C eats", 4, "Did you mean east? Known are east"),
    ("decisions -A -C eats", 4, "Did you mean east? Known are east"),
    ("decisions -A -C eats --follow", 4, "Did you mean east? Known are east"),
    ("export decisions -A -C eats", 4, "Did you mean east? Known are east"),
    ("history checkout -n shop -C eats", 4, "Did you mean east? Known are east"),
    ("schedule list -A -C eats", 4, "Did you mean east? Known are east"),
    ("delete checkout -n shop -C eats", 4, "Did you mean east? Known are east"),
    ("delete -l app=checkout -n shop -C eats", 4, "Did you mean east? Known are east"),
    ("cost -A -C eats", 4, "Did you mean east? Known are east"),
    ("get clusters eats", 4, "Did you mean east?"),
    ("get hpa -A --at yesterday", 2, "2026-11-21T08:00:15Z"),
    ("get hpa -A -o jsonpath={.items}", 2, "-o json | jq -r '.items[].name'"),
    ("get hpa -A -o csv", 2, "`-o csv` is no longer there"),
    ("get hpa -A -o xml", 2, "'yaml', 'jsonl'\n"),
    ("explain", 2, "Error: Missing argument '[CLUSTER/][NAMESPACE/]NAME[@TIME] | ID'\n  Usage: "),
    ("explain", 2, " explain [OPTIONS] [CLUSTER/][NAMESPACE/]NAME[@TIME] | ID\n  Next: "),
    ("explain a b", 2, "Error: Got unexpected extra argument (b)\n  Usage: "),
    ("explain -o", 2, "Error: Option '-o' requires an argument\n  Next: fleethpa explain --help"),
    ("admin topics init --partitions", 2, "Next: fleethpa admin topics init --help"),
    ("--quiet explain b -o", 2, "Next: fleethpa explain --help"),
    (
        "--from folder decisions",
        2,
        "Error: fleethpa --from: a command comes first\n  Next: fleethpa decisions --from …",
    ),
    ("--from folder nosuch", 2, "Next: fleethpa get hpa --from …"),
    ("mode", 2, "Choose from: off, shadow, enforce\n"),
    ("explain east/shop/checkout@", 2, "east/shop/checkout@2h"),
    ("explain 0-99999-uid", 4, "no decision 0-99999-uid"),
    ("replay abc", 4, "no HPA abc"),
    ("decisions -A --since tomorrow", 2, "2026-11-21T08:00:15Z"),
    ("status nosuch", 4, "no HPA nosuch"),
    ("status -A -C nosuch", 4, "Next: fleethpa get clusters"),
    ("status -A -C eats", 4, "Did you mean east? Known are east"),
    ("shadow-report -A -C nosuch", 4, "no cluster matches 'nosuch'"),
    ("doctor --only foo", 2, "Known are kafka"),
    ("shadow-report --since x", 2, "2026-11-21T08:00:15Z"),
    ("export decisions -o xml", 2, "'xml' is not one of"),
    ("export bundle", 2, "Missing argument"),
    ("export bundle east/shop/checkout --since x", 2, "2026-11-21T08:00:15Z"),
    # Questions to the log.
    ("what-if east/shop/checkout", 2, "what-if what?"),
    ("what-if", 2, "Only --cluster-away goes without a name"),
    ("what-if --cluster-away eats", 4, "Did you mean east?"),
    ("what-if --cluster-away east --factor 0", 2, "--factor 0 is not a factor"),
    ("what-if east/shop/checkout --set foo=1", 2, "no such field or metric"),
    ("what-if east/shop/checkout --set maxReplica=30", 2, "Next: --set maxReplicas=30"),
    ("what-if east/shop/checkout --set cpus=70%", 2, "Next: --set cpu=70%"),
    ("what-if east/shop/checkout --set maxReplicas=1.5", 2, "takes a whole number"),
    ("what-if east/shop/checkout --metric cpu", 2, "--metric cpu=90%"),
    ("what-if east/shop/checkout -f empty.yaml", 2, "no HPA shop/checkout"),
    ("backtest", 2, "backtest what?"),
    ("backtest -f hpa.yaml --fail-if nonsense", 2, "worst_overload>1.5"),
    ("backtest -f hpa.yaml --html nosuch/x.html", 2, "Its folder does not exist"),
    ("backtest -f empty.yaml", 2, "no HorizontalPodAutoscaler or FleetHPA found"),
    ("backtest checkout --schedule nights", 2, "A rule has days, times and settings"),
    ("backtest checkout --schedule 'Mo 07:00-08:00 minReplicas=3'", 2, "'Mo' is not a day"),
    ("backtest checkout --schedule 'daily 07:00-08:00 minReplicas=3' --time-zone Mars", 2, "not a time zone"),
    ("backtest checkout --schedule 'daily 07:00-08:00 minReplicas=3' --model open", 2, "needs --model closed"),
    ("backtest checkout --forecast 7d", 2, "Next: fleethpa tune NAME"),
    ("backtest checkout --emit-schedule", 2, "Next: fleethpa backtest NAME --schedule RULE"),
    ("backtest east/shop/checkout --schedule 'daily 07:00-08:00 speed=3'", 2, "no such field or metric"),
    ("tune east/shop/checkout --objective fast", 2, "is not one of"),
    ("tune -A --price cheap", 2, "a number from 0 on"),
    ("cost -A --shard 8/8 --parts folder", 2, "the last 7/8"),
    ("savings -A --against main", 2, "is no revision"),
    ("cost --parts folder", 2, "has no parts"),
    ("upgrade-preview -A --to 1.26", 2, "the oldest known version is 1.27"),
    ("mcp --prot 7081", 2, "--port"),
    ("page --allowed-host http://x/ --from folder", 2, "--allowed-host 'http://x/' is not the name of a host"),
    ("page --host 0.0.0.0", 2, "is reached from other machines"),
    ("page --port 99999", 2, "Error: Invalid value for '--port': 99999 is not in the range 0<=x<=65535\n  Next: "),
    ("history nosuch", 4, "no HPA nosuch"),
    ("history east/shop/checkout a b", 2, "one HPA at a time"),
    ("history east/shop/checkout --revision 9", 4, "The log knows 1."),
    ("history east/shop/checkout --revision 1 -o jsonl", 2, "Use -o yaml or -o json"),
    ("rollout", 2, "no manifest is named"),
    ("rollout -f hpa.yaml", 2, "no cluster is named"),
    ("rollout -f hpa.yaml -C east --wave 0", 2, "is not a number of clusters"),
    ("rollout resume nosuch", 4, "no rollout nosuch"),
    ("hub", 2, "Usage"),
    ("hub release", 2, "OBJECT"),
    ("hub release CentralHPA/shop/web --yes", 4, "nothing in the log is stated by CentralHPA/shop/web"),
    ("hub release CentralHpa/shop/web --yes", 2, "Did you mean CentralHPA?"),
    ("hub release Deployment/shop/web --yes", 2, "Kinds are ClusterConfig, ClusterPause, CentralHPA"),
    ("hub release FleetAccess/shop --yes", 2, "'FleetAccess' is not a kind of object that hub release can give back"),
    ("hub release CentralHPA/web --yes", 2, "Next: fleethpa hub release CentralHPA/NAMESPACE/NAME"),
    ("hub release ClusterConfig/shop/east --yes", 2, "Next: fleethpa hub release ClusterConfig/NAME"),
    ("hub release web --yes", 2, "Next: fleethpa hub release CentralHPA/NAMESPACE/NAME"),
    ("hub apply", 2, "unknown command 'apply'"),
    ("export objects", 4, "nothing in the log could be stated by an object"),
    ("run hub --every 10ms", 2, "is too often"),
    ("run hub --context nosuch", 2, "no kubeconfig is named, which has the context nosuch"),
    ("run hub --context nosuch --kubeconfig empty.kubeconfig", 2, "empty.kubeconfig has no context 'nosuch'"),
    ("run hub --context nosuch --kubeconfig empty.kubeconfig", 2, "Next: name another context, or another file"),
    ("run observer --contexts nosuch --kubeconfig empty.kubeconfig --brokers a:1", 2, "Next: name another context, or"),
    ("rollout begin", 2, "unknown command 'begin'"),
    ("schedule create checkout", 2, "Missing option '--rule'"),
    ("schedule create east/shop/checkout --rule 'daily 07:00-08:00 minReplicas=3'", 1, "fleethpa adopt east"),
    ("schedule begin", 2, "unknown command 'begin'"),
    ("rollout undo east/shop/checkout", 1, "fleethpa history east/shop/checkout --revision N -o yaml | kubectl"),
    ("rollout undo nosuch", 4, "no HPA nosuch"),
    ("rollout undo east/shop/checkout --to-revision 0", 2, "not in the range"),
    # Manifests.
    ("import keda -f hpa.yaml", 2, "no ScaledObject found"),
    ("import heda", 2, "Did you mean `keda`?"),
    ("lint", 2, "lint -f FILE"),
    ("apply hpa.yaml -C east", 2, "apply -f hpa.yaml -C east"),
    ("diff hpa.yaml", 2, "diff -f hpa.yaml"),
    ("autoscale web --max 3", 2, "fleethpa autoscale deployment/web --max 10"),
    ("autoscale deployment/web", 2, "Missing option '--max'\n"),
    ("lint -f ''", 2, "-f is empty"),
    ("lint -f nosuch", 2, "No such file or directory"),
    ("lint -f folder", 2, "no manifests found"),
    ("lint -f binary.yaml", 2, "It is not UTF-16-LE text: byte"),
    ("lint -f tab.yaml", 2, "line 2, column 1"),
    ("lint -f deep.json", 2, "nested too deep"),
    ("lint -f large.yaml", 2, "is too large"),
    ("lint -f https://example.com/hpa.yaml", 2, "curl -fsSL https://example.com/hpa.yaml"),
    ("lint -f file:///etc/hosts", 2, "-f /etc/hosts"),
    ("lint -f hpa.yaml --validate maybe", 2, "'maybe' is not one of"),
    ("diff -f hpa.yaml -C nosuch", 4, "no cluster matches 'nosuch'"),
    ("apply -f -", 2, "The input is empty"),
    ("apply -f hpa.yaml -C ''", 2, "-C is empty"),
    ("apply -f hpa.yaml -n other", 2, "the namespaces do not match"),
    ("apply -f hpa.yaml --wait soon --dry-run", 2, "--wait 'soon' is not a duration"),
    ("apply -f hpa.yaml --dry-run=client", 2, "does not take a value"),
    # Changes.
    ("delete", 2, "delete what?"),
    ("apply -f keda.yaml", 2, "ScaledObject is KEDA's, which makes an HPA named keda-hpa-NAME"),
    ("apply -f keda.yaml", 2, "import keda -f keda.yaml makes an HPA of it"),
    ("diff -f vpa.yaml", 2, "Next: kubectl apply -f vpa.yaml for it, and an HPA on another metric"),
    ("apply -f fleet.yaml", 2, "and spec an object"),
    ("delete -f fleet.yaml", 2, "Next: fleethpa backtest -f fleet.yaml tries it"),
    ("lint -f other.yaml", 2, "It has objects of other kinds: Deployment, Widget."),
    ("delete -f other.yaml", 2, "kubectl apply -f other.yaml for these"),
    ("delete -f empty.yaml", 2, "no HorizontalPodAutoscaler found"),
    ("delete -l app=nope -n shop", 0, "with -l app=nope"),
    ("adopt east/", 2, "is not the name of an HPA"),
    ("adopt -C nosuch -A --kubeconfig nosuch", 2, "cannot be used"),
    ("release a/b/c/d", 2, "is not the name of an HPA"),
    ("release", 2, "release what?"),
    ("adopt -C east", 2, "adopt what?"),
    ("adopt shop/checkout", 2, "does not say in which cluster"),
    ("adopt south", 2, "all of a cluster south: fleethpa adopt -C south -A --dry-run"),
    ("adopt east/shop/checkout -C west", 2, "contradict each other"),
    ("release east/shop/checkout -A", 2, "leave out one of them"),
    ("release -C east -A --native-wait soon", 2, "--native-wait 'soon' is not a duration"),
    ("pause", 2, "pause what?"),
    ("pause east/shop/checkout --for -1h", 2, "is not a duration"),
    ("pause -n nosuch -C east", 4, "no namespace nosuch"),
    ("pause -C '' --for 1h", 2, "-C is empty"),
    ("override --replicas 3 --for 2h", 2, "an override is of HPAs that are named"),
    ("override -n shop --replicas 3 --for 2h", 2, "an override is of HPAs that are named"),
    ("override checkout", 2, "--replicas and --for belong together"),
    ("override checkout --replicas 3", 2, "--replicas and --for belong together"),
    ("override checkout --end --for 2h", 2, "--replicas and --for belong together"),
    ("override checkout --replicas 0 --for 2h", 2, "is not in the range"),
    ("override checkout --replicas 3 --for 0s", 2, "--for 0s cannot be used"),
    ("override nosuch -n shop -C east --end", 4, "no HPA"),
    ("resume -C eats", 4, "Did you mean east?"),
    ("mode enfroce east/shop/checkout", 2, "'enfroce' is not one of"),
    ("mode enforce", 2, "mode what?"),
    ("settings east =5s", 2, "'=5s' is not a setting"),
    ("settings east sync-period=5", 2, "30s, 5m, 2h or 1h30m"),
    ("settings east namespace=off", 2, "namespace.shop=off"),
    ("settings east source.Foo=api", 2, "source.External"),
    ("settings east rules=1.26", 2, "the oldest known version is 1.27"),
    ("settings east gates=Nope=true", 2, "write NAME=true or NAME=false of HPAConfigurableTolerance"),
    # Processes and their tools.
    ("admin clusters rbac --namespace 'A B'", 2, "--namespace 'A B' is not a name"),
    ("admin clusters check --kubeconfig empty.kubeconfig", 4, "no cluster to check"),
    ("admin clusters check --kubeconfig nosuch", 2, "kubeconfig nosuch cannot be used"),
    ("admin clusters check --kubeconfig-secrets ns", 2, "--kubeconfig-secrets ns is looked for in the cluster of this"),
    ("admin clusters check --argocd-clusters ns", 2, "Next: add --inventory-context NAME and --kubeconfig FILE"),
    ("admin archive --to folder --key file --brokers a:1", 2, "is not a private key in PEM form"),
    ("admin archive --to folder --segment-size 0", 2, "not in the range"),
    ("audit verify --jobs 0", 2, "not in the range"),
    ("admin ingest reset nosuch 0", 2, "add --yes"),
    ("admin ingest check nosuch.json", 2, "No such file or directory"),
    ("admin ingest check --header foo", 2, "is not NAME=VALUE"),
    ("admin topics init --partitions 0", 2, "not in the range"),
    ("admin topics engine 99999", 2, "run a newer release"),
    ("guardrails lint rules.yaml", 2, "Next: fleethpa settings CLUSTER removal-budget=30%/10m"),
    (
        "run breaker -f rules.yaml",
        2,
        "a removal budget bounds what decisions remove, and pauses removals with then=hold",
    ),
    ("resume -C east --guardrails", 2, "Next: fleethpa settings CLUSTER removal-budget=30%/10m"),
    ("run resume --guardrails", 2, "unknown command 'resume'"),
    ("replay", 2, "Next: fleethpa replay NAME, or replay -A"),
    ("rollback web", 2, "Next: fleethpa rollout undo NAME"),
    ("audit verify --hpa east/shop/web", 2, "Next: fleethpa replay NAME"),
    ("audit verify 0-9-uid", 2, "Next: fleethpa replay 0-9-uid"),
    ("audit verify east/shop/web --since 1h", 2, "Next: fleethpa replay east/shop/web"),
    ("replay web -A", 2, "name what to derive again"),
    ("capacity test -f group.yaml", 2, "Next: fleethpa limits test -f FILE"),
    ("capacity descibe x", 2, "Did you mean `describe`?"),
    ("limits tset", 2, "Did you mean `test`?"),
    ("limits test", 2, "Next: fleethpa limits test removal-budget=30%/10m"),
    ("limits test sync-period=5s", 2, "syncPeriodMs does not limit writes"),
    ("settings east sync-period=soon --reason x", 2, "Next: fleethpa settings --help"),
    ("decisions -A --since 5x", 2, "Next: fleethpa decisions --help"),
    ("get hpa -A --timeout 5x", 2, "Next: fleethpa get hpa --help"),
    ("get hpa -A --at 5x", 2, "Next: fleethpa get hpa --help"),
    ("lint -f folder", 2, "Next: name a file, or the folder that has them"),
    ("limits test addition-budget=30%/10m,then=hold", 2, "only a removal budget may say then=hold"),
    ("limits test max-step=0", 2, "expected a whole number from 1"),
    ("limits test max-step=5 -C nosuch", 4, "no cluster matches 'nosuch'"),
    ("limits test max-step=5 -f group.yaml", 2, "group.yaml"),
    ("capacity describe nosuch", 4, "no CapacityGroup 'nosuch'"),
    ("capacity delete", 2, "NAME"),
    ("capacity delete nosuch --yes", 4, "fleethpa get capacitygroups"),
    ("get capacitygroups nosuch", 4, "no CapacityGroup 'nosuch'"),
    ("limits test -f nosuch.yaml", 2, "nosuch.yaml"),
    ("limits test -f hpa.yaml", 2, "no CapacityGroup found"),
    ("limits test -f hpa.yaml --fail-if cost>1", 2, "Measures are held, time_held"),
    ("metrics tri", 2, "Did you mean `try`?"),
    ("metrics try queue", 2, "--prometheus is not given"),
    ("metrics try 'sum(up)'", 2, "fleethpa metrics try 'sum(up)' --prometheus FILE"),
    ("metrics try queue --prometheus nosuch.yaml", 2, "No such file or directory"),
    ("metrics try queue --prometheus list.yaml", 2, "Expected `object`, got `array`"),
    ("run observer --brokers a:1 --in-cluster east --prometheus nosuch.yaml", 2, "No such file or directory"),
    ("run agent --brokers a:1 --in-cluster east --incarnation 1 --prometheus list.yaml", 2, "Expected `object`"),
    ("run decider --web-port 99999", 2, "not in the range"),
    ("run ingest --mapping nosuch", 2, "--mapping nosuch cannot be read"),
    ("dev --control-port -1", 2, "not in the range"),
    ("dev --context nosuch --kubeconfig nosuch", 2, "cannot be used"),
    ("completion powershell", 2, "'powershell' is not one of"),
)
"""(what is typed, exit code, what standard error says)."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wrong")
    (made / "folder").mkdir()
    for name, content in FILES.items():
        (made / name).write_bytes(content)
    return made


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    made = Fleet()
    made.settle()
    made.checkpoint()
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, fleet: Fleet, folder: Path, tmp_path: Path) -> Cli:
    @asynccontextmanager
    async def opened(config: Any) -> AsyncIterator[None]:
        raise AssertionError("a wrong command must not write")
        yield

    monkeypatch.chdir(folder)
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("fleethpa.frame.writer.open_writer", opened)
    # The fleet's past has fixed times, and some windows end at the present.
    monkeypatch.setattr("fleethpa.frame.session.Session.now_ms", lambda session: fleet.now_ms)
    return Cli(monkeypatch, fleet)


@pytest.mark.parametrize(("line", "code", "stated"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_command_is_answered_with_what_to_do(run: Cli, line: str, code: int, stated: str) -> None:
    result = run(*shlex.split(line), stdin="")
    assert (result.exit_code, stated in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr
    if code in (2, 4) and line != "hub":  # which prints its help
        assert "Next: " in result.stderr, result.stderr
    if code == 2:
        assert result.stdout == ""


def test_the_table_covers_every_verb_that_can_be_called_wrongly() -> None:
    from fleethpa.cli.main import verbs

    typed = {shlex.split(line)[0] for line, _, _ in WRONG}
    assert set(verbs()) - typed == set()
    assert len(WRONG) >= 60


# --- as a process -----------------------------------------------------------------------------------------------------


def _process(
    arguments: list[str],
    folder: Path,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    preexec_fn: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FLEETHPA_")}
    environ |= {"FLEETHPA_RUNTIME_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "fleethpa", *arguments],
        cwd=folder,
        env=environ,
        timeout=60,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        preexec_fn=preexec_fn,
    )


def test_a_reader_that_has_gone_is_not_an_error(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = _process(["--help"], folder, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_closed_streams_leave_the_exit_code(folder: Path) -> None:
    done = _process(["lint", "-f", "nosuch"], folder, stdin=None, stdout=None, stderr=None, preexec_fn=_close_streams)
    assert done.returncode == 2


def _close_streams() -> None:
    for descriptor in (0, 1, 2):
        os.close(descriptor)


def test_brokers_that_do_not_answer_are_exit_3_within_the_time_limit(folder: Path) -> None:
    done = _process(["get", "hpa", "-A", "--brokers", "127.0.0.1:1", "--timeout", "30s"], folder)
    assert done.returncode == 3
    assert b"cannot talk to Kafka at 127.0.0.1:1: 127.0.0.1:1 refuses the connection" in done.stderr
    assert b"Traceback" not in done.stderr


SILENCED = (
    ["admin", "topics", "check"],
    ["get", "hpa", "-A"],
    ["pause", "east/shop/web", "--reason", "INC-42"],
    ["replay", "-A"],
    ["replay", "0-2-8a4d8f"],
    ["audit", "verify"],
)
"""One verb that asks for topics, one that reads the fleet, one that writes, and those that derive decisions again."""


def test_brokers_that_accept_and_stay_silent_are_named_with_the_next_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as pool:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        runs = [[*verb, "--brokers", address] for verb in SILENCED]
        begun = [pool.submit(_process, run, folder) for run in runs]
        monkeypatch.chdir(folder)
        cli = Cli(monkeypatch)
        for run in runs:
            limited = cli(*run, "--timeout", "1s")
            assert limited.exit_code == 124
            assert f"Error: no answer from Kafka at {address} within --timeout 1s" in limited.stderr
            assert "The broker hangs" in limited.stderr
            assert "Next: check that Kafka runs" in limited.stderr
            assert "Traceback" not in limited.stderr
        for each in begun:
            done = each.result()
            assert done.returncode == 3
            assert f"Error: Kafka at {address} has not answered for 10s".encode() in done.stderr, done.stderr
            assert b"Next: check that Kafka runs" in done.stderr
            assert b"Traceback" not in done.stderr


def test_a_time_limit_ends_the_process(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = _process(["get", "hpa", "-A", "--brokers", address, "--timeout", "1s"], folder)
    assert done.returncode == 124
    assert b"Traceback" not in done.stderr

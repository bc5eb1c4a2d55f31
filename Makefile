# `make help` lists the targets. Everything runs from a clean clone; see scripts/bootstrap.
.DEFAULT_GOAL := help
.PHONY: help setup learn learn-cluster demo demo-clean demo-cluster test test-slow fuzz soak league test-harnesses test-cluster chaos crash-equal test-sglang test-trainers test-wheel test-prometheus docs lint format generate shots lock stats helm chart sbom release-check
PYTHON ?= python3
BIN := .venv/bin
# Where it is set, every start of Python would compile all that it imports: 2 seconds for a job.
export PYTHONDONTWRITEBYTECODE :=

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  %-14s %s\n", $$1, $$2}'

setup: ## the locked environment in .venv
	@PYTHON=$(PYTHON) scripts/bootstrap

demo: setup ## real tasks, a scripted policy, local sandboxes; no GPU, no cluster, no account
	@scripts/demo local

demo-clean: ## delete the demo's trajectories
	rm -rf runs/demo runs/demo-cluster

demo-cluster: setup ## the same with pods on the dev cluster; its first build takes 7 to 30 minutes
	@scripts/demo cluster

SEEDS ?= 0,1,2
learn: setup ## a tiny policy improves by GRPO on real episodes: TRL, SGLang on CPU, local sandboxes; SEEDS=0 for one
	scripts/sglang-cpu setup
	scripts/trainers trl
	.trainers/trl/bin/python examples/07-learn/learn.py --seeds $(SEEDS)

learn-cluster: setup ## the same with pods on the dev cluster: one seed, STEPS=8
	scripts/sglang-cpu setup
	scripts/trainers trl
	examples/07-learn/cluster

# Long files first, as they are listed. Three processes for two cores: end-to-end tests often wait.
SIDE_BY_SIDE := --numprocesses=3 --dist=loadfile --no-loadscope-reorder
test: setup ## unit, contract and local end-to-end tests, lint, types, layers; SHUFFLE=1 in another order
	@$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest tests $(SIDE_BY_SIDE) $(if $(SHUFFLE),--shuffle $(SHUFFLE))

test-slow: setup ## the slow tests of the same kinds, which `make test` and CI leave out
	$(BIN)/python -m pytest tests $(SIDE_BY_SIDE) -m "slow and not cluster and not sglang"

test-cluster: setup ## contract suite and end-to-end job with pods, on the dev cluster and a real S3; QUICK=1 without the slow ones
	scripts/test-cluster $(if $(QUICK),-m "cluster and not slow")

test-sglang: setup ## whole jobs with a real SGLang on CPU (5 GB once) or at SGLANG_URL, and with its PyTorch in process; QUICK=1 without the slow ones
	$(if $(SGLANG_URL),,scripts/sglang-cpu setup)
	$(BIN)/python -m pytest tests/sglang -m "sglang$(if $(QUICK), and not slow)" --durations=15

chaos: setup ## faults on the dev cluster: one at a time (ONLY="store-slow worker-killed" for some), then kills at random in a whole job
	scripts/with-dev-cluster scripts/conformance chaos $(if $(ONLY),--only $(ONLY))
	$(if $(ONLY),,scripts/with-dev-cluster scripts/conformance crash_equal --pods --episodes 8 --turns 12 --parallelism 4)

crash-equal: setup ## 64 episodes of 20 turns in pods, a SIGKILL every 5 seconds, against a run left alone (an hour); HARNESS=1: 24 of a harness (10 minutes); SEED=1
	scripts/with-dev-cluster scripts/conformance crash_equal --pods --seed $(or $(SEED),0) $(if $(HARNESS),--harness --episodes 24 --turns 16 --workers 2 --parallelism 6 --every 4,--workers 4 --parallelism 12)

INPUTS ?= 10000
fuzz: setup ## every surface that reads untrusted input, INPUTS=10000 each (20 minutes); SEED=0; findings are kept as tests
	scripts/fuzz --inputs $(INPUTS) --seed $(or $(SEED),0)

MINUTES ?= 30
soak: setup ## scripted episodes in local sandboxes for MINUTES=30; slopes of memory, descriptors, processes, store objects
	scripts/conformance soak --minutes $(MINUTES)

test-harnesses: setup ## Codex, Claude Code, opencode and others, unchanged, in sandboxes; installs them; PODS=1 in pods too, SGLANG=1 with a real SGLang too
	scripts/conformance harnesses
	$(if $(PODS),scripts/with-dev-cluster sh -c "scripts/build-images --load >/dev/null && scripts/conformance harnesses --pods")
	$(if $(SGLANG),$(if $(SGLANG_URL),,scripts/sglang-cpu setup))
	$(if $(SGLANG),$(BIN)/python -m pytest tests/sglang/test_harness.py -m sglang --durations=15)

league: setup ## every policy of the attack league against every way to grade; writes its page
	scripts/conformance attacks --league --guess 40 --parallel 2 --write $(if $(SWEBENCH),--swebench $(SWEBENCH))

test-trainers: setup ## the adapters of trainers, each beside the real one; TRAINERS="trl verl" for some
	scripts/trainers test $(TRAINERS)

test-wheel: setup ## wheel and sdist, each installed alone on Python 3.11, 3.12 and 3.13, play the demo job
	$(BIN)/python -m pytest tests/wheel -m wheel

test-prometheus: setup ## the dashboard's and the docs' queries against a real Prometheus that scrapes a real run
	@scripts/prometheus >/dev/null
	$(BIN)/python -m pytest tests/prometheus -m prometheus

docs: setup ## the documentation as a site in build/site; a warning is an error
	scripts/docs

lint: setup ## ruff, mypy, import-linter, and the budget of lines in budget.toml
	$(BIN)/ruff check && $(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m rollout_dev.stats --check

format: setup ## reformat the code with ruff
	$(BIN)/ruff check --fix && $(BIN)/ruff format

generate: setup ## manifests and reference pages from the models
	scripts/generate

shots: setup ## pictures of the viewer for the docs, from a real run; needs Chromium (JOB=runs/demo: of that run)
	scripts/shots $(if $(JOB),--job $(JOB))

helm: setup ## Helm 4 and 3, with which the chart is tested, built from source once (6 minutes)
	@scripts/helm version --short
	@HELM_MAJOR=3 scripts/helm version --short

chart: setup ## check the Helm chart and pack it in build/chart
	scripts/helm lint --strict charts/swe-rollout
	scripts/helm package charts/swe-rollout --destination build/chart

sbom: setup ## what a release contains, with licences: build/sbom (CycloneDX)
	scripts/sbom

release-check: setup ## whether this checkout can be released: docs/how-to/release.md
	scripts/release-check

lock: setup ## compile requirements/ with hashes
	scripts/lock

stats: setup ## sizes of the code beside the limits in budget.toml; ARGS=--write lowers these
	@$(BIN)/python -m rollout_dev.stats $(ARGS)

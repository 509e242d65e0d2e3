# trimtab: build, check, test, install. `make help` lists the targets.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PREFIX     ?= /usr/local
DESTDIR    ?=
BINDIR     ?= $(PREFIX)/bin
SYSCONFDIR ?= /etc
UNITDIR    ?= /lib/systemd/system
SYSUSERSDIR ?= /usr/lib/sysusers.d
TMPFILESDIR ?= /usr/lib/tmpfiles.d
DATADIR    ?= $(PREFIX)/share
INSTALL_ARGS = '$(DESTDIR)' '$(BINDIR)' '$(SYSCONFDIR)' '$(UNITDIR)' '$(SYSUSERSDIR)' '$(TMPFILESDIR)' '$(DATADIR)'

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.stampedVersion=$(VERSION)

# One linter, one version: staticcheck finds bugs that vet does not, with next to
# no configuration. Without ST1005: our errors may begin with a name (Docker, GPU).
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
STATICCHECK_FLAGS := -checks inherit,-ST1005

PKGS ?= ./...

# How many packages are tested at once; they share one Docker and, on small machines,
# two CPUs. test/demo and test/e2e come last, each alone: they judge jobs by what they get of those.
# Nothing is taken from the test cache: it does not know the kernel and Docker.
TEST_P     ?= 2
TEST_FLAGS ?=
TEST_TIMEOUT ?= 45m
# What failed runs once more when all is done, by itself; where more than three failed, nothing
# does. On a machine that others share, a test that tells what a job gets of two CPUs can fail by
# what others took. The summary names each that passed only then, with what it said at first.
GOTESTSUM := gotest.tools/gotestsum@v1.13.0
GOTEST := .cache/gotestsum --format none --hide-summary all --jsonfile /dev/stdout --rerun-fails=1 --rerun-fails-run-root-test --rerun-fails-max-failures 3

export CGO_ENABLED ?= 0

# The one package that needs a C compiler, for NVIDIA's bindings; scripts/build-nvml.sh builds it.
NVML_CHILD = ./cmd/trimtab-nvml
WITH_CGO   = CGO_ENABLED=1 CGO_CFLAGS='-O1 -Wno-deprecated-declarations'

##@ Build

.PHONY: build
build: ## Build bin/trimtab, with the version from git, and bin/trimtab-nvml, which needs gcc.
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/trimtab ./cmd/trimtab
	@scripts/build-nvml.sh bin/trimtab-nvml || [ $$? -eq 3 ]

.PHONY: generate
generate: ## Regenerate the BPF objects (needs clang-14), docs/metrics.md, docs/config.md, pictures, Grafana's pages and the API's description.
	go generate ./probes/...
	go run ./tools/metricsdoc -o docs/metrics.md
	go run ./tools/configdoc -o docs/config.md
	go run ./tools/dashboards -o packaging/grafana
	go run ./tools/openapi -o tuner/api/openapi.json
	go run ./tools/pictures -o docs

.PHONY: image
image: ## Build the training image from Debian packages (real PyTorch), if it is not there.
	test/image/build.sh

.PHONY: vgpu
vgpu: ## Build the virtual GPU's libraries (needs gcc) into test/vgpu/build.
	@mkdir -p test/vgpu/build && flock test/vgpu/build/.lock $(MAKE) --no-print-directory -s -C test/vgpu

.PHONY: clean
clean: ## Remove what the build made.
	rm -rf bin dist .cache test/vgpu/build

##@ Try

.PHONY: demo
demo: setup build image ## Starve a real training job beside a neighbour; watch trimtab find and fix it. Sets itself up.
	go run ./test/demo

.PHONY: bench
bench: setup build image ## Measure what trimtab costs and what it gains, as a table. Sets itself up.
	go run ./test/bench

.PHONY: bench-regret
bench-regret: setup build image ## Hold policies and rivals against the best static allocation, on eight mixes of real jobs. REGRET_FLAGS="-only uneven".
	go build -o .cache/optimality ./test/optimality && .cache/optimality $(REGRET_FLAGS)

.PHONY: bench-fairness
bench-fairness: setup build image ## Hold loans to the rights of their neighbours, in twelve situations (3 hours). FAIRNESS_FLAGS="-only 'another slice' -runs 3".
	go build -o .cache/fairness ./test/fairness && .cache/fairness $(FAIRNESS_FLAGS)

.PHONY: bench-known
bench-known: setup build zoo-image ## Start 20 real programs again: how soon each has the CPU it settled to, and whether that was right (75 minutes). KNOWN_FLAGS="-only forest -starts 2".
	go build -o .cache/known ./test/known && .cache/known $(KNOWN_FLAGS)

.PHONY: zoo
zoo: setup build zoo-image ## Run 40 programs, 30 of them others', starved, free and tuned; judge what is said of them (8 hours). ZOO=xgboost,ring; ZOO_FLAGS="-runs 1" (55 minutes).
	go build -o .cache/zoo ./test/zoo && .cache/zoo $(ZOO_FLAGS)

.PHONY: zoo-third
zoo-third: setup build zoo-image ## Ten of these programs, once each: classes, rates, and that each is helped (15 minutes). Single runs are too noisy for more.
	go build -o .cache/zoo ./test/zoo && .cache/zoo -runs 1 -reached 0.6 -only forest,go,pipeline,weka,lammps,rforest,vision,perlfann,pool,notebook

.PHONY: zoo-image
zoo-image: setup-dev
	test/zoo/image.sh
	gcc -O2 -fopenmp -static -o test/zoo/programs/omp test/zoo/programs/omp.c
	mpicc.mpich -O2 -o test/zoo/programs/sgd test/zoo/programs/sgd.c -lm
	CGO_ENABLED=0 go build -o test/zoo/programs/hash-bin ./test/zoo/programs/hash
	cd test/zoo/programs/godeep && CGO_ENABLED=0 go build -o ../godeep-bin .
	mkdir -p .cache/zoo-npm && cp test/zoo/programs/npm/* .cache/zoo-npm && cd .cache/zoo-npm && npm ci --ignore-scripts --no-audit --no-fund

.PHONY: accuracy
accuracy: setup build image ## Run jobs whose bottleneck is known and say how often the verdict is right (45 minutes).
	go run ./test/accuracy

.PHONY: sensitivity
sensitivity: ## Print what doubling and halving each constant does to all recordings, simulated mixes and simulated trials (10 minutes).
	@mkdir -p .cache/sensitivity
	@SENSITIVITY_OUT='$(CURDIR)/.cache/sensitivity/mixes.json' go test -count=1 -timeout 30m -tags sensitivity -run 'TestSensitivity$$' ./tuner/control >&2
	@SENSITIVITY_OUT='$(CURDIR)/.cache/sensitivity/trials.json' go test -count=1 -timeout 30m -tags sensitivity -run 'TestSensitivity$$' ./tuner/trial >&2
	@go run ./test/accuracy -replay test/accuracy/testdata/recordings -sensitivity .cache/sensitivity/recordings.json
	@go run ./test/sensitivity .cache/sensitivity

##@ NVIDIA's own libraries

USERLAND ?= .cache/userland

.PHONY: test-cuda-userland
test-cuda-userland: ## Probes on NVIDIA's own libraries of three generations, from Debian's non-free part: names, calls counted (root, network).
	@scripts/cuda-userland.sh '$(USERLAND)'
	@go build -o .cache/testsummary ./tools/testsummary
	@TRIMTAB_USERLAND='$(abspath $(USERLAND))' go test -json -count=1 -p 1 -run 'Real|Seen' $(TEST_FLAGS) ./probes/cuda ./probes/nccl ./probes/nvml ./test/gpucheck 2>&1 | .cache/testsummary -each -wants

##@ Real GPU

# What the check runs as: packed elsewhere, or made here where it is not.
GPU_CHECK       ?= dist/gpu-check/gpucheck
GPU_CHECK_FLAGS ?= -report dist/gpu-check-report.md

.PHONY: gpu-check
gpu-check: ## Hold trimtab against a real NVIDIA device (root, driver, PyTorch; no network). GPU_CHECK_FLAGS=-virtual without one.
	@[ -x '$(GPU_CHECK)' ] || { command -v go >/dev/null && $(MAKE) --no-print-directory gpu-bundle; } || \
	  { echo "gpu-check: $(GPU_CHECK) is not there, and there is no Go to build it: run make gpu-bundle elsewhere and unpack its archive in dist"; exit 3; }
	@'$(GPU_CHECK)' $(GPU_CHECK_FLAGS)

.PHONY: gpu-bundle
gpu-bundle: ## Pack what gpu-check needs on a machine without Go and network into dist/gpu-check.tar.zst (needs gcc).
	@test/gpucheck/bundle.sh

##@ Check

.PHONY: fuzz
fuzz: setup-dev ## Feed every reader of foreign bytes with what a fuzzer makes up (9 minutes). FUZZ_TIME=20s for each.
	scripts/fuzz.sh $(or $(FUZZ_TIME),20s)

.PHONY: check
check: setup-dev check-format check-vet check-arm64 check-lint check-deps check-generated check-prose ## Format, vet, arm64, lint, import rules, generated files up to date, short sentences.

.PHONY: check-format
check-format: ## Fail where gofmt would change a file.
	@out=$$(gofmt -l .); \
	if [ -n "$$out" ]; then echo "gofmt would change (run gofmt -w):"; echo "$$out"; exit 1; fi

.PHONY: check-vet
check-vet: ## go vet.
	go vet -tags sensitivity,man,seededrace $(PKGS)
	$(WITH_CGO) go vet $(NVML_CHILD)

.PHONY: check-arm64
check-arm64: ## It builds for arm64 too, where nobody has run it.
	GOARCH=arm64 go build -trimpath -o /dev/null ./cmd/trimtab # as packages are built: their test finds it compiled
	GOARCH=arm64 scripts/build-nvml.sh /dev/null

.PHONY: check-lint
check-lint: ## staticcheck, at the version named above.
	GOBIN='$(abspath .cache)' go install $(STATICCHECK)
	.cache/staticcheck $(STATICCHECK_FLAGS) $(PKGS)
	$(WITH_CGO) .cache/staticcheck $(STATICCHECK_FLAGS) $(NVML_CHILD)

.PHONY: check-deps
check-deps: ## Imports point one way; pure packages reach no clock, network or files; no package-level state.
	go run ./tools/deps

.PHONY: check-prose
check-prose: ## Print how long each page's sentences are; fail above a median of 12 words, or where more than a tenth have above 22.
	go run ./tools/prose -median 12 -p90 22 README.md CONTRIBUTING.md SECURITY.md 'docs/*.md' docs/examples/README.md docs/examples/place/README.md bpf/README.md test/vgpu/README.md test/lab/tables/data/README.md

.PHONY: check-generated
check-generated: ## Regenerate what is generated; fail if anything changed.
	@before=$$(mktemp); trap 'rm -f "$$before"' EXIT; \
	find probes docs/metrics.md docs/config.md docs/*.svg packaging/grafana tuner/api/openapi.json -type f | sort | xargs sha256sum >"$$before"; \
	$(MAKE) --no-print-directory generate; \
	if ! find probes docs/metrics.md docs/config.md docs/*.svg packaging/grafana tuner/api/openapi.json -type f | sort | xargs sha256sum | diff "$$before" -; then \
	  echo "generated files were not up to date; they are now: look at them with git diff and commit them"; exit 1; fi

##@ Test

.PHONY: test
test: setup-dev build image ## Everything this machine can run: unit, property, replay, real Docker, real kernel. Sets itself up.
	@go build -o .cache/testsummary ./tools/testsummary
	@GOBIN='$(abspath .cache)' go install $(GOTESTSUM)
	@alone=$$(go list $(PKGS) | grep -E '/test/(demo|e2e)$$' || true); others=$$(go list $(PKGS) | grep -vE '/test/(demo|e2e)$$' || true); \
	run() { [ -z "$${1:-}" ] || $(GOTEST) --packages "$$1" -- -count=1 -p $(TEST_P) -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) "$${@:2}" 2>&1 | sed -u "/^DONE /d; /Failed to sync JSON/d; /^$$/d"; }; \
	{ rc=0; run "$$others" || rc=1; $(WITH_CGO) run $(NVML_CHILD) || rc=1; run ./cmd/trimtab -tags man -run Manual || rc=1; for p in $$alone; do run "$$p" || rc=1; done; exit $$rc; } | .cache/testsummary

.PHONY: race
race: setup-dev ## Tests that need neither Docker nor a daemon and in which goroutines run, under the race detector, which first must find a race made on purpose (7 minutes).
	@$(WITH_CGO) scripts/race.sh $(TEST_P)

# Where current runtimes are built; ignored by git, kept between runs.
RUNTIMES ?= .cache/runtimes

.PHONY: test-runtimes
test-runtimes: setup-dev ## Engines against this host's runtimes and current ones, built from their modules; prints the conformance table.
	@scripts/build-runtimes.sh $(RUNTIMES)
	@rm -f $(abspath $(RUNTIMES))/table
	TRIMTAB_TEST_RUNTIMES=$(abspath $(RUNTIMES))/bin TRIMTAB_TEST_TABLE=$(abspath $(RUNTIMES))/table \
	  go test -count=1 -p 1 -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./test/runtimetest ./runtime/docker ./runtime/containerd
	@{ printf 'WRITE PATH\tVERSIONS\tDRIVER\tCGROUPS\tPASSED\tNOT HERE\n'; sort -u $(abspath $(RUNTIMES))/table; } | column -t -s "$$(printf '\t')"

# The guest's disk, kept between runs; console and journal of the last run beside it.
VM_CACHE ?= $(abspath .cache/vm)
VM_TIMEOUT ?= 40m
# The Debian suite that the guest's kernel comes from: bookworm (6.1), bookworm-backports (6.12), sid (the newest).
VM_KERNEL ?= bookworm
VM_TEST = TRIMTAB_VM_KERNEL='$(VM_KERNEL)' TRIMTAB_VM_CACHE='$(VM_CACHE)' TRIMTAB_VM_LOGS='$(VM_CACHE)/logs' go test -json -count=1 -timeout $(VM_TIMEOUT)
VM_SUMMARY = .cache/testsummary -each || { echo "the guest's journal and console are in $(VM_CACHE)/logs"; exit 1; }

.PHONY: test-vm
test-vm: setup-vm vgpu ## The installed package on real systemd and cgroup v2, in a virtual machine (emulated where KVM does not work). VM_KERNEL=sid for the newest kernel.
	@go build -o .cache/testsummary ./tools/testsummary
	@run() { $(VM_TEST) -run TestMachine $(TEST_FLAGS) ./test/vm 2>&1 | tee .cache/vm-said.json | { $(VM_SUMMARY); }; }; \
	run || { grep -Eq 'the guest (does not answer|has not answered)' .cache/vm-said.json && echo "the guest hung, as some do under emulation (docs/vm.md): once more, with another" && run; }

.PHONY: test-vm-engines
test-vm-engines: VM_TIMEOUT = 150m
test-vm-engines: setup-vm vgpu ## The engines' conformance suite in such machines: both drivers, cgroup v2 and v1 (long, where emulated).
	@go build -o .cache/testsummary ./tools/testsummary
	@scripts/build-runtimes.sh $(RUNTIMES)
	@TRIMTAB_VM_ENGINES=1 TRIMTAB_VM_RUNTIMES=$(abspath $(RUNTIMES))/bin $(VM_TEST) -run TestEngines $(TEST_FLAGS) ./test/vm 2>&1 | $(VM_SUMMARY)

# How many; and how long it may take, emulated.
KILLS ?= 1000

.PHONY: test-vm-kills
test-vm-kills: VM_TIMEOUT = 150m
test-vm-kills: setup-vm vgpu ## A thousand kills in that machine: every original back (KILLS=n; an hour or more, where emulated).
	@go build -o .cache/testsummary ./tools/testsummary
	@TRIMTAB_VM_KILLS=$(KILLS) $(VM_TEST) -run TestKills $(TEST_FLAGS) ./test/vm 2>&1 | $(VM_SUMMARY)

.PHONY: chaos
chaos: setup build image ## Break what trimtab works with, a fault every few seconds, and hold it to its laws (an hour, an engine of its own). CHAOS_FLAGS="-for 10m -seed 7".
	@mkdir -p .cache && go build -o .cache/chaos-bin ./test/chaos
	@.cache/chaos-bin -train "$$(ls .cache/image/train-*.tar 2>/dev/null | head -1)" $(CHAOS_FLAGS)

.PHONY: chaos-short
chaos-short: CHAOS_FLAGS = -each -seed 125 -for 6m
chaos-short: chaos ## The same for 6 minutes, each fault at least once, in an order that stays.

.PHONY: chaos-part
chaos-part: CHAOS_FLAGS = -each -seed 125 -for 1s -jobs 2 -train= -only 'disk,shim,kill dockerd,kill containerd,and containerd,fork bomb'
chaos-part: chaos ## Of these faults those that no other test makes, once each (some minutes).

.PHONY: soak
soak: setup build image ## The same with nothing broken: 200 containers an hour come and go; what the daemon holds, as a table with slopes (8 hours). SOAK_FLAGS="-for 1h".
	@mkdir -p .cache && go build -o .cache/chaos-bin ./test/chaos
	@.cache/chaos-bin -churn 200 -for 8h $(SOAK_FLAGS)

##@ Machine

.PHONY: setup
setup: ## Install what a run needs and start Docker if none runs (Debian, as root).
	scripts/setup-host.sh

.PHONY: setup-dev
setup-dev: ## The same, and what checks and tests need: clang-14, busybox, lintian, rpm, Chromium, …
	scripts/setup-host.sh --dev
	@scripts/npm.sh || : # without it the tests that need it skip, and say so

.PHONY: setup-vm
setup-vm: ## The same, and an emulator with what a guest is made of.
	scripts/setup-host.sh --vm

##@ Install

.PHONY: install
install: build ## Install binary, unit, default config, groups, completions (DESTDIR, PREFIX).
	install -D -m 0755 bin/trimtab $(DESTDIR)$(BINDIR)/trimtab
	packaging/install.sh install $(INSTALL_ARGS)

.PHONY: uninstall
uninstall: ## Restore every container's original limits, then remove trimtab. Config and history stay.
	packaging/install.sh uninstall $(INSTALL_ARGS)

.PHONY: purge
purge: ## uninstall, then remove config, history and groups.
	packaging/install.sh purge $(INSTALL_ARGS)

PACKAGES ?= dist
PACKAGE_ARCHS ?= amd64 arm64

.PHONY: packages
packages: ## Build a .deb, an .rpm, a tarball and a bill of materials for amd64 and arm64 into dist (fetches nfpm by its module).
	scripts/package.sh '$(PACKAGES)' $(PACKAGE_ARCHS)

##@ Help

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z][a-z-]*:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

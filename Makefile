# Everything that is built lands in bin/ (and .cache/, which only saves time).

GO      ?= go
BIN     := $(CURDIR)/bin
CACHE   := $(CURDIR)/.cache
MODULES := internal/bundle/modules
PLUGINS := github.com/containernetworking/plugins/plugins
CNI     := $(addprefix $(BIN)/cni/,bridge host-local portmap loopback)
SHIM    := $(BIN)/containerd-shim-monopod-v2
BUNDLED := $(BIN)/monopod $(SHIM) $(CACHE)/runc $(CNI)

# The linter is kept for all clones of this user.
LINT    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/monopod/golangci-lint-$(shell { cat .ci/modules/lint.mod .ci/modules/lint.sum; $(GO) version; } | sha256sum | cut -c1-16)
LINK    := -trimpath -ldflags "-s -w"
STATIC  := CGO_ENABLED=0 $(GO) build $(LINK)
# Tracing in gRPC draws in html/template, and with it every method of every type: 7 MB.
TAGS    := grpcnotrace
# `monopod version`: the tag of the commit, if it has one, the commit, and the runc in the bundle.
COMMIT  := $(shell git describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null)
RELEASE := $(shell git describe --exact-match --tags --dirty 2>/dev/null | grep -v dirty)
STAMP   := -X monopod/internal/version.release=$(RELEASE) -X monopod/internal/version.commit=$(COMMIT) \
	-X monopod/internal/version.runc=$(shell awk '/opencontainers\/runc / {print $$2}' $(MODULES)/runc.mod | head -1)
# Functions are inlined only where much data goes through them, and aligned to 8 bytes. Of the standard library that is all but what deals with connections
# and text. With everything inlined the daemon takes 2 MiB more (of 33 and 44), and a command 2 ms more to start (of 9), since more of the program is
# read; what the daemon does is no quicker. The bundle, which is compressed, would be 1.3 MB larger.
# What generic functions cost is paid for each type: 25 KB for slices.SortFunc of values that are no pointers, nothing for sort.Slice.
LEAN    := -gcflags=all=-l $(addprefix -gcflags=,std= github.com/klauspost/...= go.etcd.io/...=) \
	$(patsubst %,-gcflags=%=-l,crypto/tls crypto/x509 debug/... log/... math/big mime/... net/... os/... text/... vendor/...) \
	-ldflags "-s -w -funcalign=8 $(STAMP)"
# Programs that mostly wait for the kernel: 0.7 MB less in the bundle.
SMALL   := -gcflags=all=-l -ldflags "-s -w -funcalign=16"

# End-to-end tests in the configuration that the gate compiles. Those that measure, or are in a virtual machine, have no race detector.
E2E     := $(GO) test -race -trimpath -vet=off -tags $(TAGS),e2e
STILL   := CGO_ENABLED=0 $(GO) test -trimpath -vet=off -tags $(TAGS),e2e
# Those of ./e2e are two programs for all stages, which run programs that are made before: a test must not compile in its own time.
TESTS   := -test.paniconexit0 -test.v -test.timeout
BUILT   := MONOPOD_E2E_BIN=$(BIN)/e2e MONOPOD_E2E_PATIENCE=$${MONOPOD_E2E_PATIENCE:-2m}
RUN     := $(BUILT) $(CACHE)/e2e/e2e.test $(TESTS)
MEASURE := $(BUILT) $(CACHE)/e2e/still.test $(TESTS)

.PHONY: build bundle tools cross monopod shim cni

## build: the plain binary, with its shim and CNI plugins beside it; runc is the system's
build: monopod shim cni

## bundle: one file that holds all of it and runc, compressed, and unpacks them when it runs; needs gcc and libseccomp-dev
bundle: monopod shim $(CACHE)/runc $(CNI)
	$(GO) run ./internal/bundle/pack internal/bundle $(BUNDLED)
	$(STATIC) -tags bundle -o $(BIN)/monopod-bundle ./cmd/launcher
	@ls -l $(BIN)/monopod-bundle | awk '{ printf "monopod-bundle: %.1f MB\n", $$5 / 1e6; if ($$5 > 35e6) { print "more than 35 MB"; exit 1 } }'

## tools: what only tests need: an ordinary containerd daemon
tools: $(BIN)/tools/containerd

## cross: what users run compiles for the other architectures
cross:
	for arch in arm64 arm riscv64; do \
		echo $$arch && CGO_ENABLED=0 GOOS=linux GOARCH=$$arch GOARM=7 $(GO) build -trimpath -tags $(TAGS) ./cmd/... ./fixture/... || exit 1; \
	done

monopod:
	$(STATIC) $(LEAN) -tags $(TAGS) -o $(BIN)/monopod ./cmd/monopod

## shim: without gRPC, which it does not speak: half the size, and a third of the start time
shim:
	$(STATIC) $(SMALL) -tags no_grpc -o $(SHIM) ./cmd/containerd-shim-monopod-v2

cni: $(CNI)

# Programs of other projects come from modules that are pinned apart from ours.
$(BIN)/cni/bridge $(BIN)/cni/loopback: CNI_KIND := main
$(BIN)/cni/host-local: CNI_KIND := ipam
$(BIN)/cni/portmap: CNI_KIND := meta
$(CNI): $(MODULES)/cni.mod $(MODULES)/cni.sum
	$(STATIC) $(SMALL) -modfile=$(MODULES)/cni.mod -o $@ $(PLUGINS)/$(CNI_KIND)/$(@F)

$(CACHE)/runc: $(MODULES)/runc.mod $(MODULES)/runc.sum
	CGO_ENABLED=1 $(GO) build -modfile=$(MODULES)/runc.mod -trimpath -gcflags=all=-l \
		-tags "seccomp netgo osusergo runc_nocriu" -ldflags '-s -w -funcalign=16 -linkmode external -extldflags "-static"' -o $@ github.com/opencontainers/runc

$(BIN)/tools/containerd: $(MODULES)/containerd.mod $(MODULES)/containerd.sum
	$(STATIC) -modfile=$(MODULES)/containerd.mod -tags "no_cri no_devmapper no_tracing" -o $@ \
		github.com/containerd/containerd/v2/cmd/containerd

# The API server that tests run is a real one. etcd is of the version that this Kubernetes is made for.
KUBERNETES := $(CACHE)/kubernetes
PEERS      := $(BIN)/peers
KUBE_MOD   := .ci/modules/kubernetes.mod
KUBE_PROGRAMS := kube-apiserver kube-controller-manager kube-scheduler kubectl
KUBE_LINK  := $(addprefix -X k8s.io/component-base/version.,gitVersion=v1.37.2 gitMajor=1 gitMinor=37 gitTreeState=clean)

.PHONY: kubernetes test-apiserver

## kubernetes: the programs of a control plane, and kubectl, for tests; some minutes, once
kubernetes: $(addprefix $(KUBERNETES)/,etcd $(KUBE_PROGRAMS))

$(KUBERNETES)/etcd: $(KUBE_MOD)
	$(STATIC) -modfile=$< -o $@ go.etcd.io/etcd/server/v3

# What takes longest to compile comes first: the others share most of it.
$(addprefix $(KUBERNETES)/,$(KUBE_PROGRAMS)) $(PEERS)/kubelet: $(KUBE_MOD)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w $(KUBE_LINK)" -modfile=$< -o $@ k8s.io/kubernetes/cmd/$(@F)

## test-apiserver: the add-on against a real kube-apiserver and etcd, and a short soak, for which that comes and goes
test-apiserver: kubernetes e2e-tests
	$(BUILT) $(E2E) -count=1 -v -timeout 10m ./node/apiserver/...
	cd e2e && $(RUN) 25m -test.run 'APIServer|Kubectl|^TestSoak$$'

# Unmodified clients of the Kubernetes API, each from its own modules, and programs built with their libraries. Their modules have
# the versions of ours where they can, and there is no -trimpath: what tests compile is not compiled again.
CLIENTS  := $(CACHE)/clients
OLD_LINK := $(addprefix -X k8s.io/component-base/version.,gitVersion=v1.35.4 gitMajor=1 gitMinor=35 gitTreeState=clean)
CLIENT   := $(GO) build -p 1 -ldflags "-s -w $(OLD_LINK)"
# These two also run in images without a C library. Without cgo, all that imports net would be compiled again.
IN_PODS  := $(GO) build -p 1 -ldflags "-s -w -linkmode external -extldflags -static"

.PHONY: clients test-clients
clients: $(addprefix $(CLIENTS)/,discover operator helm3 helm4 kubectl-1.35 k9s)

$(CLIENTS)/helm%: .ci/modules/helm.mod
	$(CLIENT) -modfile=$< -o $@ helm.sh/helm/v$*/cmd/helm

$(CLIENTS)/kubectl-1.35: .ci/modules/kubectl.mod
	$(CLIENT) -modfile=$< -o $@ k8s.io/kubernetes/cmd/kubectl

# k9s pins other versions of most of its 2,200 packages, so it shares little with the other programs: some minutes, once.
$(CLIENTS)/k9s: .ci/modules/k9s.mod
	CGO_ENABLED=0 $(GO) build -p 2 -trimpath -ldflags "-s -w -X github.com/derailed/k9s/cmd.version=v0.50.16" -modfile=$< -o $@ github.com/derailed/k9s

$(CLIENTS)/discover: .ci/modules/prometheus.mod $(wildcard e2e/testdata/clients/discover/*.go)
	$(IN_PODS) -modfile=$< -o $@ ./e2e/testdata/clients/discover

$(CLIENTS)/operator: .ci/modules/operator.mod $(wildcard e2e/testdata/clients/operator/*.go)
	$(IN_PODS) -modfile=$< -o $@ ./e2e/testdata/clients/operator

## test-clients: Helm, k9s, Prometheus' discovery, client-go, controller-runtime and kubectl of two minor versions ago against a real daemon
test-clients: kubernetes clients e2e-tests
	cd e2e && $(RUN) 40m -test.run '^TestClient'

## golden: the same requests to a real kube-apiserver and to monopod; allowed differences are in e2e/testdata/golden/allowed.yaml
.PHONY: golden
golden: kubernetes e2e-tests
	cd e2e && $(RUN) 10m -test.run '^TestGoldenAPIServer$$'

# The suite of Kubernetes that a node has to pass, and what its images run.
CONFORMANCE := $(CACHE)/conformance

.PHONY: conformance conformance-control-plane conformance-programs
conformance-programs: $(addprefix $(CONFORMANCE)/,e2e.test agnhost nnp localhost.crt localhost.key) kubernetes
	$(STATIC) -o $(CONFORMANCE)/suite ./e2e/suite

$(CONFORMANCE)/e2e.test: $(KUBE_MOD)
	CGO_ENABLED=0 $(GO) test -c -trimpath -ldflags "-s -w" -modfile=$< -o $@ k8s.io/kubernetes/test/e2e

$(CONFORMANCE)/agnhost: $(KUBE_MOD)
	$(STATIC) -modfile=$< -o $@ k8s.io/kubernetes/test/images/agnhost

$(CONFORMANCE)/nnp: $(KUBE_MOD)
	$(STATIC) -modfile=$< -o $@ k8s.io/kubernetes/test/images/nonewprivs

$(CONFORMANCE)/localhost.%: $(KUBE_MOD)
	install -m 644 "$$($(GO) list -m -modfile=$< -f '{{.Dir}}' k8s.io/kubernetes)/test/images/agnhost/porter/$(@F)" $@

CONFORM := cd e2e && MONOPOD_CONFORMANCE='$(or $(CONFORMANCE_SPECS),all)' $(RUN) 90m

## conformance: Kubernetes' own specs for nodes, against monopod alone (CONFORMANCE_SPECS=all, 1/3 as CI does, or a regular expression)
conformance: conformance-programs e2e-tests
	$(CONFORM) -test.run '^TestConformanceAlone$$'

## conformance-control-plane: the same with monopod as the node of a real control plane
conformance-control-plane: conformance-programs e2e-tests
	$(CONFORM) -test.run '^TestConformance$$'

# ---- running and testing -------------------------------------------------------------------------------------

.PHONY: run test test-all unit random attack e2e e2e-binaries e2e-tests still-tests soak soak-api figures-api vm-test vm-powercut vm-systemd-test lint fmt format generate bench bench-scale bench-peers clean

## run: the hello example on this machine; Ctrl-C removes it
run:
	@.ci/install
	@$(MAKE) --no-print-directory build $(CACHE)/hello/images/hello.tar
	@examples/hello/run.sh

$(CACHE)/hello/images/hello.tar: $(wildcard examples/hello/program/*.go examples/mkimage/*.go)
	$(STATIC) -o $(CACHE)/hello/bin/hello ./examples/hello/program
	$(GO) run ./examples/mkimage -o $@ -name monopod.dev/hello:1 $(CACHE)/hello/bin/hello

## test: the gate, as CI runs it: about 15 minutes, more with empty caches; installs what is missing, needs root for the end-to-end tests
test:
	@.ci/run

## test-all: the gate and everything else: all end-to-end tests, VMs, the programs of Kubernetes, conformance; continues where it was stopped
test-all:
	@.ci/all

## unit: tests that need no root, no network and no containerd, with the race detector
unit:
	@GO="$(GO)" .ci/unit

## random: random tests run 10,000 random scenarios each, different ones each time; CI runs the same few
random:
	@GO="$(GO)" .ci/random

## e2e: the binary and the packages on real containerd, runc and CNI, as root
e2e: build bundle tools
	@GO="$(GO)" .ci/e2e

## attack: the tests named TestAttack in their large variant, as root: hostile manifests, sources, archives and clients, damaged files, kills
attack: build tools e2e-binaries
	MONOPOD_ATTACK=1 $(BUILT) $(STILL) -count=1 -p 1 -timeout 3h -v -run '^TestAttack' \
		$$(grep -rl --include='*_test.go' '^func TestAttack' . | xargs -n1 dirname | sort -u)

# The agent under test has the race detector; clients have not, they would take a second to start.
e2e-binaries: monopod shim $(CNI) $(CACHE)/runc $(BIN)/tools/containerd
	$(GO) build -race -trimpath -tags $(TAGS) -o $(BIN)/e2e/monopod ./cmd/monopod
	$(STATIC) -tags $(TAGS) -o $(BIN)/e2e/probed ./e2e/probed
	$(STATIC) -o $(BIN)/e2e/apiclient ./e2e/apiclient
	$(STATIC) -o $(BIN)/e2e/ ./e2e/standin ./examples/mkimage
	cp -a --remove-destination $(BIN)/monopod $(BIN)/e2e/monopod-client
	cp -a --remove-destination $(SHIM) $(BIN)/e2e/
	mkdir -p $(BIN)/e2e/cni $(BIN)/e2e/tools
	cp -a --remove-destination $(CNI) $(BIN)/e2e/cni/
	cp -a --remove-destination $(CACHE)/runc $(BIN)/e2e/
	cp -a --remove-destination $(BIN)/tools/containerd $(BIN)/e2e/tools/

## soak: a hundred pods in trouble of all kinds for half an hour (MONOPOD_SOAK=5m: for five minutes)
soak: build kubernetes e2e-tests
	cd e2e && MONOPOD_SOAK=$${MONOPOD_SOAK:-30m} $(RUN) 3h -test.run '^TestSoak$$'

## soak-api: clients of the Kubernetes API change everything at random while the agent is killed, for half an hour (MONOPOD_SOAK=4m: four minutes)
soak-api: build e2e-tests
	cd e2e && MONOPOD_SOAK=$${MONOPOD_SOAK:-30m} $(RUN) 3h -test.run '^TestSoakAPI$$'

## figures-api: memory, apply of a Deployment, lists and watches of the Kubernetes API; fails above their limits (quiet machine, 15 minutes)
figures-api: build e2e-binaries kubernetes still-tests
	cd e2e && MONOPOD_FIGURES=1 $(MEASURE) 40m -test.run '^TestFigureAPI'
	$(GO) test -run '^$$' -bench 'List100Pods|FiftyWatches|Objects' ./node/kubeapi ./internal/daemon/kubeview

e2e-tests: e2e-binaries
	$(E2E) -c -o $(CACHE)/e2e/e2e.test ./e2e

still-tests:
	$(STILL) -c -o $(CACHE)/e2e/still.test ./e2e

## vm-test: end-to-end tests in a small VM with pure cgroup v2 (software emulation, some minutes)
vm-test: bundle
	.ci/vm
	.ci/vm -selinux
	.ci/vm -reboot

## vm-powercut: the power of the VM is cut at ten moments around the import of an image (five minutes; CI has two)
vm-powercut: bundle
	.ci/vm -powercut 10

## vm-systemd-test: the same with systemd: the service, its watchdog, an orderly shutdown, and its cgroup driver
vm-systemd-test: bundle
	.ci/vm-systemd

## lint: golangci-lint with the version pinned in .ci/modules, modules tidy, generated files fresh
lint: $(LINT)
	GOFLAGS="$$GOFLAGS -trimpath" $(LINT) run
	$(GO) mod tidy -diff
	bash -n .ci/run .ci/all .ci/failed .ci/unit .ci/random .ci/e2e .ci/vm .ci/vm-kernel .ci/vm-systemd .ci/install examples/hello/run.sh
	for script in examples/control-plane/*.sh; do bash -n $$script || exit 1; done
	if command -v shellcheck >/dev/null; then cd examples/control-plane && shellcheck -x *.sh; fi

fmt: $(LINT)
	$(LINT) fmt

## format: shows what `make fmt` would change, and fails if that is anything
format: $(LINT)
	$(LINT) fmt --diff

$(LINT):
	$(GO) build -modfile=.ci/modules/lint.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

## generate: golden files and documents that are made from code
generate:
	$(GO) test ./cmd/monopod ./e2e ./internal/cli/attach ./internal/cli/change ./internal/cli/check ./internal/cli/describe ./internal/cli/view ./internal/config ./internal/daemon ./internal/trial ./manifests/decode ./manifests/fates ./manifests/validate ./node/kubeapi/managed ./node/kubeapi/openapi ./node/metrics ./node/why ./runner/plan ./runner/spec/build ./watcher/file -update

## bench: what users feel, against the floor of the same run; then the Go benchmarks (BENCH=-everything: with nearly everything configured)
bench: build $(CACHE)/bench/images/stamp.tar
	$(GO) build -o $(BIN)/tools/bench ./e2e/bench
	$(BIN)/tools/bench -bin $(BIN) -images $(CACHE)/bench/images -o $(CACHE)/bench.json $(BENCH)
	$(GO) test -run '^$$' -bench . -benchtime 200ms ./manifests/decode ./watcher/file ./node/events ./runner/...

# What people use today, from its own modules. The kubelet is built like the other programs of Kubernetes.
$(PEERS)/containerd $(PEERS)/containerd-shim-runc-v2: $(MODULES)/containerd.mod $(MODULES)/containerd.sum
	$(STATIC) -modfile=$(MODULES)/containerd.mod -o $@ github.com/containerd/containerd/v2/cmd/$(@F)

$(PEERS)/pause.tar: $(KUBE_MOD)
	mkdir -p $(PEERS)
	gcc -Os -static -s -DVERSION=bench -o $(PEERS)/pause "$$($(GO) list -m -modfile=$< -f '{{.Dir}}' k8s.io/kubernetes)/build/pause/linux/pause.c"
	$(GO) run ./examples/mkimage -o $@ -name monopod.dev/pause:1 $(PEERS)/pause

## bench-peers: the same pods on a kubelet with containerd, on podman, and on monopod, each alone: the table of README (half an hour)
bench-peers: build $(CACHE)/bench/images/stamp.tar $(addprefix $(PEERS)/,kubelet containerd containerd-shim-runc-v2 pause.tar)
	.ci/install peers
	$(GO) build -o $(BIN)/tools/bench ./e2e/bench
	$(BIN)/tools/bench -peers -reps 5 -rounds 3 -bin $(BIN) -images $(CACHE)/bench/images -o $(CACHE)/bench-peers.json

## bench-scale: 1,000 to 10,000 pods: the whole daemon from real files to a runtime in memory, and the parts of it
bench-scale:
	$(GO) test -run '^$$' -bench '^BenchmarkScale(Cold|Idle|Memory)' -benchtime 1x -timeout 30m ./cmd/monopod
	$(GO) test -run '^$$' -bench '^BenchmarkScale(Edit|Exit)' -benchtime 30x -timeout 30m ./cmd/monopod
	$(GO) test -run '^$$' -bench '^(BenchmarkColdRead|BenchmarkIdleLook|BenchmarkSeen|BenchmarkConverge|BenchmarkStart|BenchmarkEdit)$$' -benchtime 3x ./watcher/file ./runner/pool ./runner/rollout

$(CACHE)/bench/images/stamp.tar: $(wildcard e2e/bench/stamp/*.go examples/mkimage/*.go)
	$(STATIC) -o $(CACHE)/bench/bin/stamp ./e2e/bench/stamp
	$(GO) run ./examples/mkimage -o $@ -name monopod.dev/stamp:1 $(CACHE)/bench/bin/stamp

clean:
	rm -rf $(BIN) $(CACHE)

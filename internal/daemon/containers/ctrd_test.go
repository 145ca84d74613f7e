package containers

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/testfiles"
	"monopod/runner/spec"
)

// executable makes a program and returns its path.
func executable(t *testing.T, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	testfiles.Write(t, path, "#!/bin/sh\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheShimIsOursBeforeAnybodyElses(t *testing.T) {
	dir := t.TempDir()
	inPath := executable(t, dir, "path", ShimName)
	t.Setenv("PATH", filepath.Join(dir, "path"))
	f := finder{beside: filepath.Join(dir, "beside")}
	check := func(configured, want string) {
		t.Helper()
		if got, err := f.shim(configured); got != want || err != nil {
			t.Errorf("shim(%q) is %q, %v, want %q", configured, got, err, want)
		}
	}
	check("", inPath)
	beside := executable(t, dir, "beside", ShimName)
	check("", beside)
	other := executable(t, dir, "other")
	check(other, other)
	if _, err := f.shim(filepath.Join(dir, "missing")); err == nil || !strings.HasPrefix(err.Error(), "shimPath "+dir+"/missing: ") {
		t.Errorf("a configured shim that is missing: %v", err)
	}
}

func TestTheSystemsOCIRuntimeComesBeforeTheShippedOne(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", filepath.Join(dir, "path"))
	f := finder{beside: filepath.Join(dir, "beside")}
	// No system has this one.
	if got, err := f.ociRuntime("no-such-runtime"); err == nil || !strings.Contains(err.Error(), "apt install no-such-runtime") {
		t.Errorf("missing: %q %v", got, err)
	}
	beside := executable(t, dir, "beside", "no-such-runtime")
	if got, err := f.ociRuntime("no-such-runtime"); got != beside || err != nil {
		t.Errorf("only shipped: %q %v", got, err)
	}
	system := executable(t, dir, "path", "no-such-runtime")
	if got, err := f.ociRuntime("no-such-runtime"); got != system || err != nil {
		t.Errorf("both: %q %v", got, err)
	}
	runc := executable(t, dir, "path", "runc")
	if got, err := f.ociRuntime(""); got != runc || err != nil {
		t.Errorf("by default: %q %v", got, err)
	}
	if got, err := f.ociRuntime(beside); got != beside || err != nil {
		t.Errorf("by path: %q %v", got, err)
	}
	testfiles.Write(t, filepath.Join(dir, "not-executable"), "")
	if got, err := f.ociRuntime(filepath.Join(dir, "not-executable")); err == nil {
		t.Errorf("not executable: %q", got)
	}
}

func TestHandlersOfRuntimeClassesAreFound(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", filepath.Join(dir, "path"))
	f := finder{beside: filepath.Join(dir, "beside")}
	nvidia, mine := executable(t, dir, "path", "nvidia-container-runtime"), executable(t, dir, "mine")
	runc := executable(t, dir, "beside", "runc")
	configured := map[string]string{"wasm": mine, "byname": "no-such-runtime", "gone": filepath.Join(dir, "gone")}
	for handler, want := range map[string]string{"wasm": mine, "nvidia": nvidia} {
		if got, err := f.handler(configured, handler); got != want || err != nil {
			t.Errorf("%s: %q %v", handler, got, err)
		}
	}
	for handler, want := range map[string]string{
		"kata":   `there is no OCI runtime for handler "kata"; set runtimeHandlers: {kata: /path/of/runtime}`,
		"byname": `the OCI runtime no-such-runtime for handler "byname" is not in PATH; install it or set runtimeHandlers: {byname: /path/of/runtime}`,
		"gone":   "runtimeHandlers: gone: " + filepath.Join(dir, "gone") + ": file does not exist",
	} {
		if got, err := f.handler(configured, handler); err == nil || err.Error() != want {
			t.Errorf("%s: %q %v, want %s", handler, got, err, want)
		}
	}
	if got := f.shippedRuntime("/usr/sbin/runc"); got != runc {
		t.Errorf("beside the system's: %q", got)
	}
	if got := f.shippedRuntime(runc); got != "" {
		t.Errorf("when it is the usual one: %q", got)
	}
}

func TestCNIPluginsAreOursUnlessConfigured(t *testing.T) {
	f := finder{beside: "/beside"}
	if got := f.cniDirs(nil); !slices.Equal(got, []string{"/beside", "/beside/cni", "/opt/cni/bin", "/usr/lib/cni"}) {
		t.Errorf("%v", got)
	}
	if got := f.cniDirs([]string{"/x"}); !slices.Equal(got, []string{"/x"}) {
		t.Errorf("%v", got)
	}
}

func TestEachConfigurationKeyReachesTheRuntime(t *testing.T) {
	dir := t.TempDir()
	shim, oci := executable(t, dir, "shim"), executable(t, dir, "crun")
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), `rootDirectory: root
stateDirectory: /run/x
podLogsDir: logs/pods
nodeName: n
containerRuntimeEndpoint: unix:///c.sock
ociRuntime: ./crun
runtimeHandlers: {mine: ./crun}
seccompDefault: true
shimPath: shim
snapshotter: zfs
cgroupRoot: /cg
cgroupDriver: systemd
cpuManagerPolicy: static
reservedSystemCPUs: "0"
preloadDirectories: [images]
registryConfig: auth.json
podCIDR: 10.1.2.0/24
bridgeName: br
cniConfDir: net.d
cniBinDirs: [plugins]
clusterDNS: [10.0.0.1]
clusterDomain: a.b
resolvConf: resolv
podPidsLimit: 9
objectFilesMemory: 32Mi
cpuCFSQuota: false
cpuCFSQuotaPeriod: 10ms
memorySwap: {swapBehavior: LimitedSwap}
memoryThrottlingFactor: 0.8
memoryReservationPolicy: TieredReservation
singleProcessOOMKill: true
`)
	cfg, err := daemontest.LoadIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := CtrdConfig(cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for what, pair := range map[string][2]string{
		"root":        {c.RootDirectory, in("root")},
		"state":       {c.StateDirectory, "/run/x"},
		"logs":        {c.PodLogsDir, in("logs/pods")},
		"links":       {c.ContainerLogsDir, in("logs/containers")},
		"endpoint":    {c.Endpoint, "unix:///c.sock"},
		"oci":         {c.OCIRuntime, oci},
		"shim":        {c.ShimPath, shim},
		"snapshotter": {c.Snapshotter + c.Image.Snapshotter, "zfszfs"},
		"cpus":        {c.ReservedCPUs, "0"},
		"cgroup":      {c.CgroupParent + " " + string(c.CgroupDriver), "/cg systemd"},
		"node":        {c.NodeName, "n"},
		"preload":     {strings.Join(c.Image.PreloadDirs, " "), in("images")},
		"auth":        {c.Image.AuthFile, in("auth.json")},
		"cidr":        {c.Network.PodCIDR, "10.1.2.0/24"},
		"bridge":      {c.Network.Bridge, "br"},
		"cni":         {c.Network.ConfDir + " " + strings.Join(c.Network.BinDirs, " "), in("net.d") + " " + in("plugins")},
		"dns":         {strings.Join(c.ClusterDNS, " ") + " " + c.ClusterDomain, "10.0.0.1 a.b"},
		"resolv":      {c.ResolvConf, in("resolv")},
		"objects":     {strconv.FormatInt(c.ObjectFilesMemory, 10), "33554432"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q, want %q", what, pair[0], pair[1])
		}
	}
	want := spec.Enforcement{
		NoCPUQuota: true, CPUPeriod: 10_000, LimitedSwap: true, SingleProcessOOMKill: true,
		MemoryThrottling: 0.8, ReserveMemory: true, StaticCPUs: true, PodPidsLimit: 9,
	}
	if c.Enforce != want {
		t.Errorf("enforcement: %+v", c.Enforce)
	}
}

func TestWhereTheFirewallLetsPodsReachTheAPI(t *testing.T) {
	for address, want := range map[string]string{
		"": "invalid AddrPort", "127.0.0.1:6443": "0.0.0.0:6443", "[::1]:6443": "0.0.0.0:6443", "localhost:6443": "0.0.0.0:6443", ":6443": "0.0.0.0:6443",
		"[::]:6443": "[::]:6443", "192.0.2.7:6443": "192.0.2.7:6443", "host.example:6443": "invalid AddrPort",
	} {
		if got := apiForPods(address).String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

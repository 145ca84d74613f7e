package network

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
)

func TestRuntimeConfHasWhatContainerdGives(t *testing.T) {
	p := Pod{SandboxID: "s", NetNS: "/ns", Namespace: "n", Name: "p", UID: "u", PortMappings: []PortMapping{
		{HostPort: 80, ContainerPort: 8080, Protocol: "TCP", HostIP: "::1"}, {ContainerPort: 9}, {HostPort: 53, ContainerPort: 53},
	}}
	rt := runtimeConf(p, p.NetNS)
	want := [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "n"}, {"K8S_POD_NAME", "p"}, {"K8S_POD_INFRA_CONTAINER_ID", "s"}, {"K8S_POD_UID", "u"}}
	if d := cmp.Diff(want, rt.Args); d != "" {
		t.Error(d)
	}
	ports := []portMapEntry{{80, 8080, "tcp", "::1"}, {53, 53, "tcp", ""}}
	if d := cmp.Diff(map[string]any{"portMappings": ports}, rt.CapabilityArgs); d != "" {
		t.Error(d)
	}
	if rt := runtimeConf(Pod{SandboxID: "s"}, ""); rt.CapabilityArgs != nil || rt.NetNS != "" {
		t.Errorf("%+v", rt)
	}
}

func TestAddresses(t *testing.T) {
	ip := func(s string, index int) *types100.IPConfig {
		c := &types100.IPConfig{Address: net.IPNet{IP: net.ParseIP(s), Mask: net.CIDRMask(24, 32)}}
		if index >= 0 {
			c.Interface = &index
		}
		return c
	}
	ifaces := []*types100.Interface{{Name: "br"}, {Name: "eth0", Sandbox: "/ns"}}
	tests := []struct {
		name string
		ips  []*types100.IPConfig
		want string
	}{
		{"IPv4 first", []*types100.IPConfig{ip("fd00::2", 1), ip("10.0.0.2", 1)}, "10.0.0.2 fd00::2"},
		{"not those of the bridge", []*types100.IPConfig{ip("10.0.0.1", 0), ip("10.0.0.2", 1)}, "10.0.0.2"},
		{"one without an interface is the pod's", []*types100.IPConfig{ip("10.0.0.2", -1)}, "10.0.0.2"},
		{"an index too large", []*types100.IPConfig{ip("10.0.0.2", 9)}, ""},
		{"none", nil, ""},
	}
	for _, tt := range tests {
		got, err := addresses(&types100.Result{CNIVersion: "1.0.0", Interfaces: ifaces, IPs: tt.ips})
		if strings.Join(got, " ") != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

func TestAlreadyGone(t *testing.T) {
	tests := []struct {
		text, netns string
		want        bool
	}{
		{"Link not found", "/ns", true},
		{"open /proc/1/ns: no such file or directory", "", true},
		{"open /proc/1/ns: no such file or directory", "/ns", false},
		{`exec: "iptables": executable file not found in $PATH`, "", false},
		{"permission denied", "", false},
	}
	for _, tt := range tests {
		if got := alreadyGone(errors.New(tt.text), tt.netns); got != tt.want {
			t.Errorf("%q in %q: %v", tt.text, tt.netns, got)
		}
	}
}

func TestBeforeInitSetupFailsAndTeardownHasNothingToDo(t *testing.T) {
	n := New(Config{DataDir: t.TempDir(), OwnConfDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if _, err := n.Setup(t.Context(), Pod{SandboxID: "s", Namespace: "n", Name: "p"}); err == nil || !strings.Contains(err.Error(), "pod n/p") {
		t.Error(err)
	}
	for _, err := range []error{n.Teardown(t.Context(), Pod{SandboxID: "s"}), n.Repair(t.Context()), n.Destroy(t.Context())} {
		if err != nil {
			t.Error(err)
		}
	}
}

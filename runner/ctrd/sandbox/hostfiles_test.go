package sandbox

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/record"
)

// testFiles writes for a node with one resolver, and returns the record of a pod web with address 10.0.0.2.
func testFiles(t *testing.T, edit func(*corev1.PodSpec)) (*Files, *record.Sandbox) {
	t.Helper()
	resolvConf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolvConf, []byte("nameserver 192.0.2.1\nsearch lan\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault}}
	edit(&pod.Spec)
	f := &Files{
		Dirs: layout.Dirs{Root: "/root", State: "/state"}, NodeName: "node", NodeIPs: func() []string { return []string{"192.0.2.9"} },
		ClusterDomain: "cluster.local", ResolvConf: resolvConf, Log: slog.New(slog.DiscardHandler),
	}
	rec := &record.Sandbox{
		ID: "sb", Pod: &manifests.Pod{Object: pod}, Network: record.NetworkResult{Ready: true, IPs: []string{"10.0.0.2"}},
		Meta: record.SandboxMeta{UID: "uid", Cgroup: "/monopod/poduid"},
	}
	return f, rec
}

func TestSharedFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		edit                        func(*corev1.PodSpec)
		resolver                    []string
		hostname, hosts, resolvConf string
	}{
		"of a plain pod": {func(*corev1.PodSpec) {}, nil, "web\n", "10.0.0.2\tweb\n", "nameserver 192.0.2.1\n"},
		"with aliases": {
			func(s *corev1.PodSpec) {
				s.HostAliases = []corev1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"db"}}}
			}, nil, "web\n", "192.0.2.7\tdb\n", "nameserver 192.0.2.1\n",
		},
		"of the node's network":  {func(s *corev1.PodSpec) { s.HostNetwork = true }, nil, "node\n", "", "nameserver 192.0.2.1\n"},
		"with a name of its own": {func(s *corev1.PodSpec) { s.Hostname = "other" }, nil, "other\n", "10.0.0.2\tother\n", "nameserver 192.0.2.1\n"},
		"with cluster DNS": {
			func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSClusterFirst }, []string{"169.254.1.1"}, "web\n", "10.0.0.2\tweb\n", "nameserver 169.254.1.1\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, rec := testFiles(t, tt.edit)
			f.Resolver = func() []string { return tt.resolver }
			got, _, err := f.fileTexts(rec)
			if err != nil {
				t.Fatal(err)
			}
			if got.Hostname != tt.hostname || !strings.Contains(got.Hosts, tt.hosts) || !strings.Contains(got.ResolvConf, tt.resolvConf) {
				t.Errorf("hostname %q\nhosts %q\nresolv.conf %q", got.Hostname, got.Hosts, got.ResolvConf)
			}
		})
	}
}

func TestConfiguredResolversComeFirst(t *testing.T) {
	f, _ := testFiles(t, func(*corev1.PodSpec) {})
	f.Nameservers, f.Resolver = []string{"192.0.2.53"}, func() []string { return []string{"169.254.1.1"} }
	if got := f.clusterDNS(); len(got) != 1 || got[0] != "192.0.2.53" {
		t.Errorf("got %v", got)
	}
	f.Nameservers, f.Resolver = nil, nil
	if got := f.clusterDNS(); len(got) != 0 {
		t.Errorf("without any: %v", got)
	}
	f.ResolvConf = ""
	if got := f.hostResolvConf(); got != nil {
		t.Errorf("without a file: %q", *got)
	}
}

// TestWhatContainersShare: a namespace of the host has no path in the specs.
func TestWhatContainersShare(t *testing.T) {
	for name, tt := range map[string]struct {
		edit                     func(*corev1.PodSpec)
		net, uts, ipc, pid, user bool
	}{
		"by default":         {edit: func(*corev1.PodSpec) {}, net: true, uts: true, ipc: true},
		"of the network":     {edit: func(s *corev1.PodSpec) { s.HostNetwork = true }, ipc: true},
		"of IPC":             {edit: func(s *corev1.PodSpec) { s.HostIPC = true }, net: true, uts: true},
		"with one processes": {edit: func(s *corev1.PodSpec) { s.ShareProcessNamespace = new(true) }, net: true, uts: true, ipc: true, pid: true},
		"with its own users": {edit: func(s *corev1.PodSpec) { s.HostUsers = new(false) }, net: true, uts: true, ipc: true, user: true},
	} {
		t.Run(name, func(t *testing.T) {
			f, rec := testFiles(t, tt.edit)
			if tt.user {
				rec.Meta.FirstID = 65536
			}
			s, err := f.SpecSandbox(rec.Pod.Object, rec)
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]bool{s.NetNS: tt.net, s.UTSNS: tt.uts, s.IPCNS: tt.ipc, s.PIDNS: tt.pid, s.UserNS: tt.user} {
				if path != "" && (!want || !strings.HasPrefix(path, "/state/ns/sb/")) {
					t.Errorf("namespace %s is wanted: %t", path, want)
				}
			}
			if s.ID != "sb" || s.Cgroup != "/monopod/poduid" || s.FirstID != rec.Meta.FirstID || (s.ShmPath != "") != tt.ipc || (s.NetNS != "") != tt.net || (s.PIDNS != "") != tt.pid {
				t.Errorf("got %+v", s)
			}
			if got := NamespacesOf(rec.Pod.Object); got.Net != tt.net || got.UTS != tt.uts || got.IPC != tt.ipc {
				t.Errorf("namespaces %+v", got)
			}
		})
	}
}

package network

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestOwnConfiguration(t *testing.T) {
	c := ownConf{bridge: "monopod0", cidrs: prefixes("10.88.0.0/16", "fd00::/64"), mtu: 1400, dataDir: "/data"}
	raw, err := c.list()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/own.conflist")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.TrimSpace(string(want)), string(raw)); d != "" {
		t.Error(d)
	}
	if got := storedBridge(raw, c.cidrs); got != "monopod0" {
		t.Errorf("stored bridge %q", got)
	}
	for name, conf := range map[string]string{"another subnet": strings.Replace(string(raw), "10.88", "10.89", 1), "cut short": string(raw[:50]), "nothing": ""} {
		if got := storedBridge([]byte(conf), c.cidrs); got != "" {
			t.Errorf("%s: stored bridge %q", name, got)
		}
	}
}

func TestWriteFileReplacesOnlyWhatDiffers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "x")
	var before, after unix.Stat_t
	for i, s := range []string{"one", "one", "two"} {
		if err := writeFile(path, []byte(s)); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(path); string(b) != s {
			t.Errorf("content %q", b)
		}
		before = after
		if err := unix.Stat(path, &after); err != nil {
			t.Fatal(err)
		}
		if same := before.Ino == after.Ino; i > 0 && same != (i == 1) {
			t.Errorf("write %d: replaced %v", i, !same)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestSysctlSettings(t *testing.T) {
	all := Namespaces{Net: true, IPC: true}
	tests := []struct {
		name    string
		ns      Namespaces
		sysctls map[string]string
		want    string
		err     string
	}{
		{name: "containerd's two are added", ns: all, want: "net/ipv4/ip_unprivileged_port_start=0 net/ipv4/ping_group_range=0 2147483647"},
		{
			name: "unless given, in either spelling", ns: all, sysctls: map[string]string{"net.ipv4.ip_unprivileged_port_start": "1", "net/ipv4/ping_group_range": "1 0"},
			want: "net/ipv4/ip_unprivileged_port_start=1 net/ipv4/ping_group_range=1 0",
		},
		{name: "none for host-network pods", ns: Namespaces{IPC: true}, sysctls: map[string]string{"kernel.shmmax": "1", "fs.mqueue.msg_max": "9"}, want: "fs/mqueue/msg_max=9 kernel/shmmax=1"},
		{
			name: "a device with a dot", ns: all, sysctls: map[string]string{"net/ipv4/conf/eth0.1/forwarding": "1"},
			want: "net/ipv4/conf/eth0.1/forwarding=1 net/ipv4/ip_unprivileged_port_start=0 net/ipv4/ping_group_range=0 2147483647",
		},
		{name: "one of the host", ns: all, sysctls: map[string]string{"vm.swappiness": "1"}, err: "vm/swappiness is not part"},
		{name: "the host name is no sysctl", ns: all, sysctls: map[string]string{"kernel.hostname": "x"}, err: "not part"},
		{name: "a way out", ns: all, sysctls: map[string]string{"net/../vm/swappiness": "1"}, err: "not part"},
		{name: "net without a namespace", ns: Namespaces{IPC: true}, sysctls: map[string]string{"net.ipv4.tcp_syncookies": "1"}, err: "needs a network namespace"},
		{name: "ipc without a namespace", ns: Namespaces{Net: true}, sysctls: map[string]string{"kernel.sem": "1"}, err: "needs an ipc namespace"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.ns.Sysctls = tt.sysctls
			got, err := sysctlSettings(tt.ns)
			var lines []string
			for _, s := range got {
				lines = append(lines, s.path+"="+s.value)
			}
			if strings.Join(lines, " ") != tt.want {
				t.Errorf("got %q, want %q", lines, tt.want)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestPinRefusesSysctlsOfTheHostBeforeAnythingElse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if err := Pin(dir, Namespaces{Net: true, Sysctls: map[string]string{"vm.swappiness": "1"}}); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
	if Pinned(dir, Namespaces{Net: true}) {
		t.Error("pinned")
	}
	if err := Unpin(dir); err != nil {
		t.Error(err)
	}
}

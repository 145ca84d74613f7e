package linuxns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/cause"
)

func TestSysctlSettings(t *testing.T) {
	all := Set{Net: true, IPC: true}
	tests := []struct {
		name    string
		ns      Set
		sysctls map[string]string
		want    string
		err     string
	}{
		{name: "containerd's two are added", ns: all, want: "net/ipv4/ip_unprivileged_port_start=0 net/ipv4/ping_group_range=0 2147483647"},
		{
			name: "unless given, in either spelling", ns: all, sysctls: map[string]string{"net.ipv4.ip_unprivileged_port_start": "1", "net/ipv4/ping_group_range": "1 0"},
			want: "net/ipv4/ip_unprivileged_port_start=1 net/ipv4/ping_group_range=1 0",
		},
		{name: "none for host-network pods", ns: Set{IPC: true}, sysctls: map[string]string{"kernel.shmmax": "1", "fs.mqueue.msg_max": "9"}, want: "fs/mqueue/msg_max=9 kernel/shmmax=1"},
		{
			name: "a device with a dot", ns: all, sysctls: map[string]string{"net/ipv4/conf/eth0.1/forwarding": "1"},
			want: "net/ipv4/conf/eth0.1/forwarding=1 net/ipv4/ip_unprivileged_port_start=0 net/ipv4/ping_group_range=0 2147483647",
		},
		{name: "one of the host", ns: all, sysctls: map[string]string{"vm.swappiness": "1"}, err: "vm/swappiness is not part"},
		{name: "the host name is no sysctl", ns: all, sysctls: map[string]string{"kernel.hostname": "x"}, err: "not part"},
		{name: "a way out", ns: all, sysctls: map[string]string{"net/../vm/swappiness": "1"}, err: "not part"},
		{name: "net without a namespace", ns: Set{IPC: true}, sysctls: map[string]string{"net.ipv4.tcp_syncookies": "1"}, err: "requires a network namespace"},
		{name: "ipc without a namespace", ns: Set{Net: true}, sysctls: map[string]string{"kernel.sem": "1"}, err: "requires an ipc namespace"},
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
			if c := cause.Of(err); err != nil && (c.Kind != cause.Sandbox || c.Fault != cause.Sysctl) {
				t.Errorf("cause %+v", c)
			}
		})
	}
}

func TestPinRejectsHostSysctls(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if err := Pin(dir, Set{Net: true, Sysctls: map[string]string{"vm.swappiness": "1"}}); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was created")
	}
	if Pinned(dir, Set{Net: true}) {
		t.Error("pinned")
	}
	if err := Unpin(dir); err != nil {
		t.Error(err)
	}
}

package netinfo_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/testfiles"
	"monopod/node/netinfo"
)

// proc writes files of /proc; those of fd are links.
func proc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if filepath.Base(filepath.Dir(name)) != "fd" {
			testfiles.Write(t, path, text)
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(text, path); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSocketsAreThoseThatWait(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	line := func(addr, state, inode string) string {
		return "   0: " + addr + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000     0        0 " + inode + " 1 0000000000000000 100 0 0 10 0\n"
	}
	dir := proc(t, map[string]string{
		"self/net/tcp": head + line("0100007F:1F90", "0A", "11") + line("0100007F:1F90", "01", "12") + line("bad", "0A", "13") + "short 0A\n",
		"self/net/udp": head + line("00000000:0035", "07", "14") + line("00000000:0035", "01", "15"),
		"9/net/tcp6":   head + line("00000000000000000000000000000000:1F90", "0A", "16"),
		"7/fd/0":       "/dev/null",
		"7/fd/3":       "socket:[11]",
		"7/comm":       "web\n",
		"7/cgroup":     "0::/pods/abc\n",
		"8/fd/3":       "socket:[11]", // of a child that has inherited it
		"8/fd/4":       "socket:[99]",
		"9/cgroup":     "0::/pods/def\n",
		"irq/fd/3":     "socket:[14]",
		"10/cgroup":    "",
		"sys/cgroup":   "0::/pods/def\n",
	})
	for _, tt := range []struct {
		pid  int
		port int
		want string
	}{
		{0, 8080, "TCP 127.0.0.1:8080 7 web in 0::/pods/abc"}, {0, 53, "UDP 0.0.0.0:53 0  in "}, {0, 80, ""}, {9, 8080, "TCP [::]:8080 0  in "},
	} {
		all, err := netinfo.Listeners(dir, tt.pid, func(p int) bool { return p == tt.port })
		var texts []string
		for _, l := range all {
			texts = append(texts, l.String()+" in "+l.Cgroup)
		}
		if got := strings.Join(texts, ", "); err != nil || got != tt.want {
			t.Errorf("port %d of process %d: %q, %v", tt.port, tt.pid, got, err)
		}
	}
	for word, want := range map[string]int{"abc": 7, "def": 9, "none": 0} {
		if pid := netinfo.ProcessIn(dir, word); pid != want {
			t.Errorf("process %d is in %s, want %d", pid, word, want)
		}
	}
	broken := proc(t, map[string]string{"self/net/tcp/x": ""})
	if _, err := netinfo.Listeners(broken, 0, func(int) bool { return true }); err == nil || !strings.HasPrefix(err.Error(), "list sockets: ") {
		t.Errorf("a table that cannot be read: %v", err)
	}
}

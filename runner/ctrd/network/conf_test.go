package network

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestOwnConfiguration(t *testing.T) {
	c := ownConf{bridge: "monopod0", cidrs: []netip.Prefix{netip.MustParsePrefix("10.88.0.0/16"), netip.MustParsePrefix("fd00::/64")}, mtu: 1400, dataDir: "/data"}
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

package nat

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// fakeTools puts an iptables and an ip6tables into PATH that record how they are called. Each answers with the shell commands.
func fakeTools(t *testing.T, answer string) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		for program, script := range map[string]string{
			name:              "echo \"${0##*/} $*\" >>" + dir + "/calls; " + answer,
			name + "-restore": "echo \"${0##*/}\" >>" + dir + "/calls; cat >>" + dir + "/calls",
		} {
			if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		b, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(dir, "calls"))
		return string(b)
	}
}

func TestOnlyTheFamilyOfAPortChanges(t *testing.T) {
	calls := fakeTools(t, "true")
	b := NewIPTables(config())
	one, two := port(TCP, "", 80, "10.1.0.2:80"), port(UDP, "::1", 53, "[fd00::2]:53")
	if err := b.Change(t.Context(), []Port{one}, nil, []Port{one, two}); err != nil {
		t.Fatal(err)
	}
	if got := calls(); strings.Count(got, "-restore") != 1 || !strings.HasPrefix(got, "iptables-restore\n") || !strings.Contains(got, "-p tcp --dport 80 ") || strings.Contains(got, "fd00::2") {
		t.Errorf("a port of IPv4 was added by\n%s", got)
	}
	if err := b.Change(t.Context(), nil, []Port{two}, []Port{one}); err != nil {
		t.Fatal(err)
	}
	if got := calls(); strings.Count(got, "-restore") != 1 || !strings.HasPrefix(got, "ip6tables-restore\n") || strings.Contains(got, "DNAT --to-destination") {
		t.Errorf("a port of IPv6 was deleted by\n%s", got)
	}
	if err := b.Change(t.Context(), nil, nil, []Port{one}); err != nil || calls() != "" {
		t.Errorf("nothing changes: %v", err)
	}
	if err := b.Replace(t.Context(), []Port{one, two}); err != nil {
		t.Fatal(err)
	}
	if got := calls(); !strings.Contains(got, "--to-destination 10.1.0.2:80\n") || !strings.Contains(got, "-d ::1 --dport 53 -j DNAT --to-destination [fd00::2]:53\n") {
		t.Errorf("all was set by\n%s", got)
	}
}

func TestMissingRulesAreNoticedAndAMissingToolHasNone(t *testing.T) {
	fakeTools(t, "exit 3")
	b := NewIPTables(config())
	if ok, err := b.Intact(t.Context(), nil); ok || err != nil {
		t.Errorf("rules of a tool that does not work: %t, %v", ok, err)
	}
	if err := b.Remove(t.Context()); err != nil {
		t.Errorf("nothing is to be removed: %v", err)
	}
	if err := b.Replace(t.Context(), nil); err == nil {
		t.Error("rules were set by a tool that does not work")
	}
}

func TestPortsInErrors(t *testing.T) {
	for want, p := range map[string]Port{
		"tcp/*:80 -> 10.1.0.2:8080":         port(TCP, "", 80, "10.1.0.2:8080"),
		"udp/127.0.0.1:53 -> [fd00::2]:53":  port(UDP, "127.0.0.1", 53, "[fd00::2]:53"),
		"sctp/2001:db8::2:1 -> [fd00::2]:2": port(SCTP, "2001:db8::2", 1, "[fd00::2]:2"),
	} {
		if got := p.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestADumpThatAChangeInterruptsIsRepeated(t *testing.T) {
	for name, tt := range map[string]struct{ interrupted, calls int }{"at once": {0, 1}, "after two": {2, 3}, "again and again": {100, dumpTries}} {
		calls := 0
		_, err := dump(func() ([]int, error) {
			if calls++; calls <= tt.interrupted {
				return nil, errors.New("conn.Receive: netlink receive: interrupted system call")
			}
			return nil, nil
		})
		if calls != tt.calls || (err != nil) != (tt.interrupted >= dumpTries) {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
	}
	if _, err := dump(func() ([]int, error) { return nil, unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Errorf("another error: %v", err)
	}
}

// TestElementsAreComparedWithThoseOfTheKernel, which may omit the padding of the last word.
func TestElementsAreComparedWithThoseOfTheKernel(t *testing.T) {
	b := &NFT{cfg: config()}
	p := b.layout(netip.MustParsePrefix("10.1.0.0/16"))
	all := p.elements([]Port{port(TCP, "", 80, "10.1.0.2:8080"), port(TCP, "127.0.0.1", 80, "10.1.0.3:8080"), port(UDP, "", 80, "10.1.0.2:8080")})
	if len(all[p.ports]) != 2 || len(all[p.addressed]) != 1 {
		t.Fatalf("%d ports, %d of one address", len(all[p.ports]), len(all[p.addressed]))
	}
	kernels := all[p.addressed][0]
	kernels = nftables.SetElement{Key: kernels.Key, Val: padded(kernels.Val[:6])}
	if got, want := index([]nftables.SetElement{kernels}), index(all[p.addressed]); len(got) != 1 || got[string(kernels.Key)] != want[string(kernels.Key)] {
		t.Errorf("%q, want %q", got, want)
	}
	var parts []int
	many := map[*nftables.Set][]nftables.SetElement{p.ports: make([]nftables.SetElement, 2*chunk+1)}
	if err := each(many, func(_ *nftables.Set, part []nftables.SetElement) error { parts = append(parts, len(part)); return nil }); err != nil || len(parts) != 3 || parts[2] != 1 {
		t.Errorf("messages of %v elements, %v", parts, err)
	}
}

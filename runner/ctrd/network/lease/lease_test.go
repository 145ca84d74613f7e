package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLeasesAreFilesOfHostLocal(t *testing.T) {
	dir := t.TempDir()
	s := New(dir, "eth0")
	got, err := s.Acquire("sandbox", prefixes("10.1.0.0/24", "fd00::/64"))
	if err != nil || fmt.Sprint(got) != "[10.1.0.2/24 fd00::2/64]" {
		t.Fatalf("%v, %v", got, err)
	}
	for name, want := range map[string]string{
		"10.1.0.2": "sandbox\r\neth0", "fd00::2": "sandbox\r\neth0", "last_reserved_ip.0": "10.1.0.2", "last_reserved_ip.1": "fd00::2",
	} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v; host-local writes %q", name, b, err, want)
		}
	}
	again, err := New(dir, "eth0").Acquire("sandbox", prefixes("10.1.0.0/24", "fd00::/64"))
	if err != nil || fmt.Sprint(again) != fmt.Sprint(got) {
		t.Errorf("another process gave the same sandbox %v, %v", again, err)
	}
	for range 2 {
		if err := s.Release("sandbox"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "10.1.0.2")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a released lease is still on disk")
	}
}

func TestLeasesOfHostLocalAreHonoured(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "10.1.0.3", "old\r\neth0")
	write(t, dir, "10.1.0.4", "older") // as early versions wrote it
	write(t, dir, "10.1.0.5", "other\r\nnet1")
	write(t, dir, "last_reserved_ip.0", "10.1.0.2")
	write(t, dir, "lock", "")
	s := New(dir, "eth0")
	for id, want := range map[string]string{"old": "[10.1.0.3]", "older": "[10.1.0.4]", "other": "[]"} {
		if got, err := s.Of(id); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s has %v, want %s; %v", id, got, want, err)
		}
	}
	if got, err := s.Acquire("new", prefixes("10.1.0.0/24")); err != nil || got[0].Addr().String() != "10.1.0.6" {
		t.Errorf("the next free address is %v, %v", got, err)
	}
	if err := s.Release("older"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "10.1.0.4")); err == nil {
		t.Error("a lease of an early version is not released")
	}
}

func TestASubnetIsUsedToItsEndAndThenFromItsStart(t *testing.T) {
	tests := []struct {
		subnet string
		want   []string
	}{
		{"10.1.0.0/30", []string{"10.1.0.2"}},
		{"10.1.0.0/29", []string{"10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"}},
		{"fd00::/126", []string{"fd00::2", "fd00::3"}},
	}
	for _, tt := range tests {
		t.Run(tt.subnet, func(t *testing.T) {
			s := New(t.TempDir(), "eth0")
			for i, want := range tt.want {
				got, err := s.Acquire(fmt.Sprint(i), prefixes(tt.subnet))
				if err != nil || got[0].Addr().String() != want {
					t.Fatalf("%v, %v; want %s", got, err, want)
				}
			}
			if _, err := s.Acquire("more", prefixes(tt.subnet)); !errors.Is(err, ErrExhausted) {
				t.Fatalf("one more: %v", err)
			}
			if err := s.Release("0"); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Acquire("more", prefixes(tt.subnet)); err != nil || got[0].Addr().String() != tt.want[0] {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestAFailedLeaseOfOneFamilyLeavesNoneOfTheOther(t *testing.T) {
	dir := t.TempDir()
	s := New(dir, "eth0")
	write(t, dir, "fd00::2", "x\r\neth0")
	write(t, dir, "fd00::3", "x\r\neth0")
	if _, err := s.Acquire("b", prefixes("10.1.0.0/24", "fd00::/126")); !errors.Is(err, ErrExhausted) {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "10.1.0.2")); err == nil {
		t.Error("the IPv4 address is still held")
	}
}

func TestDamagedFilesCostNothing(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10.1.0.2": "", "10.1.0.3": "\x00\x00\x00", "last_reserved_ip.0": "nonsense", "10.1.0.9.tmp": "x", "10.1.0.4": string(make([]byte, 1<<16)),
	} {
		write(t, dir, name, text)
	}
	if err := os.Mkdir(filepath.Join(dir, "10.1.0.7"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := New(dir, "eth0")
	if err := s.DropEmpty(); err != nil {
		t.Fatal(err)
	}
	got, err := s.Acquire("a", prefixes("10.1.0.0/24"))
	if err != nil || got[0].Addr().String() != "10.1.0.2" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestConcurrentLeasesDiffer(t *testing.T) {
	dir := t.TempDir()
	stores := []*Store{New(dir, "eth0"), New(dir, "eth0")} // two processes
	var mu sync.Mutex
	seen := map[netip.Addr]bool{}
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			got, err := stores[i%2].Acquire(fmt.Sprint(i), prefixes("10.1.0.0/24"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[got[0].Addr()] {
				t.Errorf("%v, %v", got, err)
				return
			}
			seen[got[0].Addr()] = true
		})
	}
	wg.Wait()
}

package hostports

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const alive = "/proc/self/ns/net"

func claim(pod, pin string, ports ...Port) Claim {
	return Claim{Pod: "default/" + pod, Sandbox: pod, Pin: pin, Ports: ports}
}

var tcp80 = Port{Protocol: "tcp", Port: 80}

func TestAPortOfAnotherMonopodIsRefused(t *testing.T) {
	dir := t.TempDir()
	one, two := New(dir, "/one", nil), New(dir, "/two", nil)
	if err := one.Take(claim("web", alive, tcp80), true); err != nil {
		t.Fatal(err)
	}
	err := two.Take(claim("other", alive, tcp80), true)
	if held := new(HeldError); !errors.As(err, &held) || held.Pod != "default/web" || held.Owner != "/one" {
		t.Fatalf("%v", err)
	}
	if want := "host port 80/TCP is taken by pod default/web of another monopod (/one)"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if err := one.Take(claim("next", alive, tcp80), true); err != nil {
		t.Errorf("the admission of the same monopod decides about its own pods: %v", err)
	}
	if err := errors.Join(one.Drop("web"), one.Drop("web"), one.Drop("next")); err != nil {
		t.Fatal(err)
	}
	if err := two.Take(claim("other", alive, tcp80), true); err != nil {
		t.Errorf("the port was given up: %v", err)
	}
}

func TestAClaimLastsAsLongAsItsPod(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(t.TempDir(), "net")
	if err := os.WriteFile(gone, nil, 0o600); err != nil { // what a pin is after a reboot, or once it is unpinned
		t.Fatal(err)
	}
	if err := New(dir, "/killed", nil).Take(claim("web", gone, tcp80), true); err != nil {
		t.Fatal(err)
	}
	if err := New(dir, "/two", nil).Take(claim("other", alive, tcp80), true); err != nil {
		t.Errorf("the claim of a pod that is gone still holds: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "web.json")); err == nil {
		t.Error("the file of a pod that is gone stays")
	}
}

func TestDamagedClaimsAreNone(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.json": "", "b.json": "{", "c.json": strings.Repeat("x", maxClaim+1), "d.json.new": "{}", "e": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "f.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := New(dir, "/one", nil).Take(claim("web", alive, tcp80), true); err != nil {
		t.Error(err)
	}
}

func TestAPortOnWhichAProcessListensIsRefused(t *testing.T) {
	listeners := func(wanted func(int) bool) ([]Process, error) {
		if !wanted(80) || wanted(81) {
			t.Error("asked for other ports than the pod's")
		}
		return []Process{{Port: Port{Protocol: "tcp", IP: netip.MustParseAddr("127.0.0.1"), Port: 80}, Name: "nginx", PID: 7}}, nil
	}
	s := New(t.TempDir(), "/one", listeners)
	err := s.Take(claim("web", alive, tcp80), true)
	if want := "host port 80/TCP is taken by process nginx (pid 7) of this machine, which listens on 127.0.0.1:80/TCP"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	for _, p := range []Port{{Protocol: "udp", Port: 80}, {Protocol: "tcp", IP: netip.MustParseAddr("10.0.0.1"), Port: 80}} {
		if err := s.Take(claim("web", alive, p), true); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	if err := s.Take(claim("web", alive, tcp80), false); err != nil {
		t.Errorf("a pod on the host's network may share its port: %v", err)
	}
}

func TestOverlaps(t *testing.T) {
	ip := netip.MustParseAddr
	tests := []struct {
		a, b Port
		want bool
	}{
		{tcp80, tcp80, true},
		{tcp80, Port{Protocol: "udp", Port: 80}, false},
		{tcp80, Port{Protocol: "tcp", Port: 81}, false},
		{tcp80, Port{Protocol: "tcp", Port: 80, IP: ip("127.0.0.1")}, true},
		{Port{Protocol: "tcp", Port: 80, IP: ip("0.0.0.0")}, Port{Protocol: "tcp", Port: 80, IP: ip("127.0.0.1")}, true},
		{Port{Protocol: "tcp", Port: 80, IP: ip("10.0.0.1")}, Port{Protocol: "tcp", Port: 80, IP: ip("127.0.0.1")}, false},
	}
	for _, tt := range tests {
		if tt.a.Overlaps(tt.b) != tt.want || tt.b.Overlaps(tt.a) != tt.want {
			t.Errorf("%s and %s: want %v", tt.a, tt.b, tt.want)
		}
	}
}

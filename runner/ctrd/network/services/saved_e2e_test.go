//go:build e2e

package services_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network/services"
)

// TestASavedRulesetLoadsAgain: a firewall service saves all tables and loads them at boot. A table that does not load would leave the machine
// without any of them.
func TestASavedRulesetLoadsAgain(t *testing.T) {
	r := start(t, "10.199.69.0/24", "fd99:69::/64")
	to, to6 := []string{"10.199.69.2:8080", "10.199.69.3:9090"}, []string{"[fd99:69::2]:8080", "[fd99:69::3]:9090"}
	sticky, sticky6, node := port("tcp", cluster, 443, to...), port("udp", "fd96::10", 53, to6...), port("tcp", "0.0.0.0", 30081, to...)
	sticky.Sticky, sticky6.Sticky, node.Sticky = time.Minute, 3*time.Hour, time.Hour
	full := table(
		port("tcp", cluster, 80, to...), port("udp", cluster, 53, to...), port("tcp", other, 80), sticky, node,
		port("tcp", "0.0.0.0", 30080, to...), port("udp", "0.0.0.0", 30053, to[0]), port("tcp", "0.0.0.0", 30082),
		port("tcp", "fd96::10", 80, to6...), port("tcp", "fd96::11", 80), sticky6, port("tcp", "::", 30080, to6...), port("tcp", "::", 30082))
	full.Ranges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112")}
	apply(t, r, full)
	file := filepath.Join(t.TempDir(), "ruleset")
	saved := netbed.Tool(t, "nft", "list", "ruleset")
	if !strings.Contains(saved, "table ip6 "+services.TableName(t.Name())) {
		t.Fatalf("not there:\n%s", saved)
	}
	if err := os.WriteFile(file, []byte("flush ruleset\n"+saved), 0o600); err != nil {
		t.Fatal(err)
	}
	netbed.Tool(t, "nft", "-f", file)
	if again := netbed.Tool(t, "nft", "list", "ruleset"); again != saved {
		t.Errorf("saved:\n%s\nloaded:\n%s", saved, again)
	}
	// What was loaded is what it was: it is not repaired, and can be changed.
	if damaged, err := r.Repair(t.Context()); damaged || err != nil {
		t.Errorf("%t, %v", damaged, err)
	}
	apply(t, r, table(port("tcp", cluster, 80, append(to, "10.199.69.4:80", "10.199.69.5:80")...), port("tcp", "fd96::10", 80, to6[0])))
	for _, tt := range []struct {
		family, has, hasNot string
	}{{"ip", "map endpoints-3", "node-endpoints-0"}, {"ip6", "map endpoints-0", "endpoints-1"}} {
		got := netbed.Tool(t, "nft", "list", "table", tt.family, services.TableName(t.Name()))
		if !strings.Contains(got, tt.has) || strings.Contains(got, tt.hasNot) || strings.Contains(got, "map to-") {
			t.Errorf("%+v:\n%s", tt, got)
		}
	}
	if damaged, err := r.Repair(t.Context()); damaged || err != nil {
		t.Errorf("after a change: %t, %v", damaged, err)
	}
}

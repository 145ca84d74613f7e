package filter

import (
	"net/netip"
	"strings"
	"testing"
)

// TestPodsReachTheAPIThroughTheFirewall: the policy of INPUT may be DROP.
func TestPodsReachTheAPIThroughTheFirewall(t *testing.T) {
	four, six := netip.MustParsePrefix("10.88.0.0/16"), netip.MustParsePrefix("fd00::/64")
	for _, c := range []struct{ api, four, six string }{
		{"", "", ""},
		{"0.0.0.0:6443", "-i monopod0 -s 10.88.0.0/16 -d 10.88.0.1 -p tcp -m tcp --dport 6443 -j ACCEPT", "-i monopod0 -s fd00::/64 -d fd00::1 -p tcp -m tcp --dport 6443 -j ACCEPT"},
		{"192.0.2.7:6443", "-i monopod0 -s 10.88.0.0/16 -d 192.0.2.7 -p tcp -m tcp --dport 6443 -j ACCEPT", ""},
	} {
		cfg := Config{Bridge: "monopod0", CIDRs: []netip.Prefix{four, six}}
		cfg.API, _ = netip.ParseAddrPort(c.api)
		for p, want := range map[netip.Prefix]string{four: c.four, six: c.six} {
			if got := strings.Join(cfg.set(p).Chains[1].Rules, "; "); got != want {
				t.Errorf("%s in %s: %s", c.api, p, got)
			}
		}
	}
}

func TestFirewallRulesNameOnlyOurChains(t *testing.T) {
	c := Config{Bridge: "monopod0", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.88.0.0/16"), netip.MustParsePrefix("fd00::/64")}, Resolver: true, Loopback: true}
	for _, p := range c.CIDRs {
		s := c.set(p)
		for line := range strings.Lines(s.Restore()) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "-A ") && !strings.HasPrefix(line, "-A MONOPOD-") || strings.HasPrefix(line, ":") && !strings.HasPrefix(line, ":MONOPOD-") {
				t.Errorf("%q touches a chain that is not ours", line)
			}
		}
		for _, j := range s.Jumps {
			if len(j.To) > 28 {
				t.Errorf("chain %s is too long", j.To)
			}
		}
	}
}

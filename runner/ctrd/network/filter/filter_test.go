package filter

import (
	"net/netip"
	"strings"
	"testing"
)

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

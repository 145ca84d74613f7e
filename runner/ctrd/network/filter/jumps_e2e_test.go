//go:build e2e

package filter_test

import (
	"strings"
	"testing"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network/filter"
)

// TestAJumpThatIsThereTwiceBecomesOne: two programs can have added it at the same time.
func TestAJumpThatIsThereTwiceBecomesOne(t *testing.T) {
	b := netbed.New(t, "10.199.127.0/24").Start(t)
	o := b.Parts()
	for from, chain := range map[string]string{"FORWARD": filter.ForwardChain(o.Bridge.CIDRs), "INPUT": filter.InputChain(o.Bridge.CIDRs)} {
		netbed.Sh(t, "", "iptables -A "+from+" -j "+chain)
		for range 2 {
			if err := o.Filter.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s := netbed.Tool(t, "iptables", "-S"); strings.Count(s, " -j "+chain+"\n") != 1 {
			t.Errorf("%s\n%s", chain, s)
		}
	}
}

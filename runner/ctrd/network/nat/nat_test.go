package nat

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables/expr"
)

func port(protocol, ip string, n uint16, to string) Port {
	p := Port{Protocol: protocol, HostPort: n, To: netip.MustParseAddrPort(to)}
	if ip != "" {
		p.HostIP = netip.MustParseAddr(ip)
	}
	return p
}

func config() Config {
	return Config{Bridge: "monopod0", ID: "abc", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/64")}}
}

func TestElementsHaveEachPartInAWordOfItsOwn(t *testing.T) {
	tests := []struct {
		name     string
		port     Port
		key, val []byte
	}{
		{"tcp", port(TCP, "", 8080, "10.1.0.2:80"), []byte{6, 0, 0, 0, 0x1f, 0x90, 0, 0}, []byte{10, 1, 0, 2, 0, 80, 0, 0}},
		{"udp on one address", port(UDP, "127.0.0.1", 53, "10.1.0.2:5353"), []byte{127, 0, 0, 1, 17, 0, 0, 0, 0, 53, 0, 0}, []byte{10, 1, 0, 2, 0x14, 0xe9, 0, 0}},
		{
			"sctp of IPv6",
			port(SCTP, "", 1, "[fd00::2]:2"),
			[]byte{132, 0, 0, 0, 0, 1, 0, 0},
			[]byte{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 0},
		},
	}
	for _, tt := range tests {
		e := element(tt.port)
		if !slices.Equal(e.Key, tt.key) || !slices.Equal(e.Val, tt.val) {
			t.Errorf("%s: %v: %v", tt.name, e.Key, e.Val)
		}
		if !leadsTo(e, []netip.Addr{tt.port.To.Addr()}) || leadsTo(e, []netip.Addr{netip.MustParseAddr("10.1.0.3"), netip.MustParseAddr("fd00::3")}) {
			t.Errorf("%s: whose element it is, is not seen", tt.name)
		}
	}
}

func TestAPortThatIsThereTwiceStaysTheFirstOnes(t *testing.T) {
	one, two := port(TCP, "", 80, "10.1.0.2:80"), port(TCP, "", 80, "10.1.0.3:80")
	others := []Port{port(UDP, "", 80, "10.1.0.3:80"), port(TCP, "", 80, "[fd00::3]:80"), port(TCP, "10.0.0.1", 80, "10.1.0.3:80")}
	got := unique(append([]Port{one, two}, others...))
	if want := append([]Port{one}, others...); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTheTableOfEachFamily(t *testing.T) {
	b := &NFT{cfg: config()}
	for _, c := range b.cfg.CIDRs {
		p := b.layout(c)
		chains, drops := map[string]int{}, 0
		for _, r := range p.rules {
			chains[r.Chain.Name]++
			if !strings.Contains(string(r.UserData), "monopod0") {
				t.Errorf("a rule of %s does not say which bridge it is for", r.Chain.Name)
			}
			for _, e := range r.Exprs {
				if v, ok := e.(*expr.Verdict); ok && v.Kind == expr.VerdictDrop {
					drops++
				}
			}
		}
		v4 := c.Addr().Is4()
		if v4 != (chains["raw"] == 1) || v4 != (drops == 1) || chains["open"] != 2 || chains["prerouting"] != 1 || chains["output"] != 1 {
			t.Errorf("%s: %v, %d drop", c, chains, drops)
		}
	}
}

func TestRulesOfIPTables(t *testing.T) {
	b := &IPTables{cfg: config()}
	ports := []Port{port(TCP, "127.0.0.1", 8080, "10.1.0.2:80"), port(UDP, "", 53, "[fd00::2]:5353")}
	for i, want := range []string{
		"-A MONOPOD-PORT-abc -p tcp -d 127.0.0.1 --dport 8080 -j DNAT --to-destination 10.1.0.2:80\n",
		"-A MONOPOD-PORT-abc -p udp --dport 53 -j DNAT --to-destination [fd00::2]:5353\n",
	} {
		s := b.set(b.cfg.CIDRs[i], ports)
		text := s.Restore()
		if !strings.Contains(text, want) || strings.Count(text, "DNAT --to-destination") != 1 {
			t.Errorf("%s: %q is not in\n%s", s.Tool, want, text)
		}
		if (i == 0) != strings.Contains(text, "127.0.0.0/8 -o monopod0") {
			t.Errorf("%s: localhost\n%s", s.Tool, text)
		}
		for _, j := range s.Jumps {
			if len(j.To) > 28 {
				t.Errorf("chain %s is too long", j.To)
			}
		}
	}
}

func TestAPortThatIsHandedOverStaysOpen(t *testing.T) {
	former, next, other := port(TCP, "", 80, "10.1.0.2:80"), port(TCP, "", 80, "10.1.0.3:80"), port(TCP, "", 81, "10.1.0.3:81")
	if gone, replaced := change(nil, []Port{next, former, other}); len(gone) > 0 || !replaced {
		t.Errorf("the next one comes: %v, %v", gone, replaced)
	}
	if gone, replaced := change([]Port{former}, []Port{next, other}); len(gone) > 0 || replaced {
		t.Errorf("the former one goes: %v, %v", gone, replaced)
	}
	if gone, replaced := change([]Port{next}, []Port{other}); !slices.Equal(gone, []Port{next}) || replaced {
		t.Errorf("the next one goes, too: %v, %v", gone, replaced)
	}
}

package bridge

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"monopod/internal/cause"
)

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestParsePodCIDR(t *testing.T) {
	tests := []struct{ in, want, err string }{
		{in: "10.88.0.0/16", want: "[10.88.0.0/16]"},
		{in: "fd00:1::/64, 10.88.0.0/16", want: "[10.88.0.0/16 fd00:1::/64]"},
		{in: "fd00:1::/64", want: "[fd00:1::/64]"},
		{in: "10.0.0.0/30", want: "[10.0.0.0/30]"},
		{in: "", err: "is not a subnet"},
		{in: "10.88.0.0", err: "is not a subnet"},
		{in: "10.88.0.0/33", err: "is not a subnet"},
		{in: "10.88.3.0/16", err: "did you mean 10.88.0.0/16"},
		{in: "10.0.0.0/31", err: "too small"},
		{in: "fd00::/127", err: "too small"},
		{in: "127.0.0.0/8", err: "cannot be used"},
		{in: "169.254.0.0/16", err: "cannot be used"},
		{in: "224.0.0.0/8", err: "cannot be used"},
		{in: "0.0.0.0/0", err: "cannot be used"},
		{in: "::ffff:10.0.0.0/112", err: "IPv4"},
		{in: "10.1.0.0/16,10.2.0.0/16", err: "at most one"},
	}
	for _, tt := range tests {
		got, err := ParsePodCIDR(tt.in)
		switch {
		case tt.err == "" && (err != nil || strings.Join(strs(got), " ") != strings.Trim(tt.want, "[]")):
			t.Errorf("%q: %v, %v", tt.in, got, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "podCIDR")):
			t.Errorf("%q: error %v, want %q", tt.in, err, tt.err)
		}
	}
}

func strs(ps []netip.Prefix) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}

const me, other = AliasPrefix + "/var/lib/monopod/cni", AliasPrefix + "/srv/other"

func bridge(name, alias string, ports int, addrs ...string) device {
	return device{Name: name, Bridge: true, Alias: alias, Ports: ports, Addrs: prefixes(addrs...)}
}

func TestChoiceOfTheBridge(t *testing.T) {
	uplink := device{Name: "eth0", Addrs: prefixes("192.168.7.5/24")}
	hex := "mp-" + SubnetID(prefixes("10.88.0.0/16"))
	tests := []struct {
		name               string
		configured, stored string
		devices            []device
		routes             []route
		want, err          string
		outdated           string
	}{
		{name: "an empty host gets the usual name", devices: []device{uplink}, want: "monopod0"},
		{name: "the name of the configuration", configured: "pods0", want: "pods0"},
		{name: "the name of the last run", stored: hex, want: hex},
		{
			name: "our own bridge with its gateway and pods", devices: []device{bridge("monopod0", me, 3, "10.88.0.1/16", "fe80::1/64")},
			routes: []route{{Dst: netip.MustParsePrefix("10.88.0.0/16"), Device: "monopod0"}}, want: "monopod0",
		},
		{name: "a bridge without alias and address is taken", devices: []device{bridge("monopod0", "", 0)}, want: "monopod0"},
		{name: "another monopod has the usual name", devices: []device{bridge("monopod0", other, 1, "10.99.0.1/16")}, want: hex},
		{name: "the usual name is no bridge", devices: []device{{Name: "monopod0"}}, want: hex},
		{
			name: "another monopod has the same subnet", devices: []device{bridge("monopod0", other, 0, "10.88.0.1/16")},
			err: "overlaps the address 10.88.0.1/16 of monopod0, the bridge of another monopod (/srv/other)",
		},
		{
			name: "another monopod has the same subnet on the bridge of our last run", stored: "monopod0",
			devices: []device{bridge("monopod0", other, 0, "10.88.0.1/16")}, err: "another monopod",
		},
		{
			name: "another monopod took the name of our last run while our bridge was gone", stored: "monopod0",
			devices: []device{bridge("monopod0", other, 1, "10.99.0.1/16")}, want: hex,
		},
		{name: "the name of our last run is no bridge by now", stored: hex, devices: []device{{Name: hex}}, want: "monopod0"},
		{
			name: "our bridge got another address", stored: "monopod0", devices: []device{bridge("monopod0", me, 1, "10.88.0.1/16", "10.1.0.1/16")}, err: "which still has 1 pods",
		},
		{
			name: "another monopod has the configured name", configured: "pods0", devices: []device{bridge("pods0", other, 0, "10.99.0.1/16")},
			err: "bridge pods0 cannot be used for pods: it belongs to another monopod (/srv/other)",
		},
		{name: "the configured bridge has another address", configured: "br0", devices: []device{bridge("br0", "", 1, "10.1.0.1/16")}, err: "set bridgeName to another name"},
		{
			name:    "our bridge got another name when another monopod had the usual one, and our state is lost",
			devices: []device{bridge(hex, me, 1, "10.88.0.1/16")}, routes: []route{{Dst: netip.MustParsePrefix("10.88.0.0/16"), Device: hex}}, want: hex,
		},
		{name: "a bridge of ours without address is not it", devices: []device{bridge("mp-000000", me, 1)}, want: "monopod0"},
		{name: "the configured name is new, and no pod runs", configured: "pods0", devices: []device{bridge("monopod0", me, 0, "10.88.0.1/16")}, outdated: "monopod0", want: "pods0"},
		{
			name: "the configured name is new, and pods run", configured: "pods0", devices: []device{bridge("monopod0", me, 2, "10.88.0.1/16")},
			err: "which still has 2 pods of this monopod",
		},
		{name: "our former subnet still has pods", devices: []device{bridge("monopod0", me, 2, "10.77.0.1/16")}, want: hex},
		{name: "our former subnet still has pods and overlaps", devices: []device{bridge("monopod0", me, 2, "10.88.0.1/24")}, err: "still has 2 pods"},
		{name: "our former subnet is unused", devices: []device{bridge("monopod0", me, 0, "10.88.0.1/24")}, outdated: "monopod0", want: "monopod0"},
		{name: "a route within", routes: []route{{Dst: netip.MustParsePrefix("10.88.4.0/24"), Device: "wg0"}}, err: "overlaps the route 10.88.4.0/24 by wg0"},
		{name: "a route around", routes: []route{{Dst: netip.MustParsePrefix("10.0.0.0/8")}}, err: "overlaps the route 10.0.0.0/8 by several devices"},
		{
			name: "a route that came up while pods run", devices: []device{bridge("monopod0", me, 3, "10.88.0.1/16")},
			routes: []route{{Dst: netip.MustParsePrefix("10.88.4.0/24"), Device: "wg0"}}, want: "monopod0", err: "overlaps the route 10.88.4.0/24 by wg0",
		},
		{
			name: "a route that came up while no pod runs", devices: []device{bridge("monopod0", me, 0, "10.88.0.1/16")},
			routes: []route{{Dst: netip.MustParsePrefix("10.88.4.0/24"), Device: "wg0"}}, err: "overlaps the route 10.88.4.0/24 by wg0",
		},
		{name: "default routes are no claim", routes: []route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}, {Dst: netip.MustParsePrefix("0.0.0.0/1")}}, want: "monopod0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Choice{CIDRs: prefixes("10.88.0.0/16"), Configured: tt.configured, Stored: tt.stored, Owner: me}
			facts := Host{Devices: tt.devices, Routes: tt.routes}
			outdated := c.Outdated(facts)
			if strings.Join(outdated, " ") != tt.outdated {
				t.Errorf("outdated %v, want %q", outdated, tt.outdated)
			}
			for _, name := range outdated {
				facts = facts.Without(name)
			}
			got, err := c.Bridge(facts)
			if got != tt.want || (tt.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, tt.want, tt.err)
			}
			if overlaps := cause.Of(err).Kind == cause.PodCIDR; overlaps != (err != nil && strings.Contains(err.Error(), " overlaps the ")) {
				t.Errorf("the cause of %v is %+v", err, cause.Of(err))
			}
			if named := cause.Of(err).Fault == cause.BridgeName; named != (err != nil && strings.Contains(err.Error(), " set bridgeName ")) {
				t.Errorf("the cause of %v is %+v", err, cause.Of(err))
			}
		})
	}
}

// Whatever the host has: a subnet that is accepted overlaps nothing that is not on our own bridge.
func TestAcceptedSubnetsOverlapNothing(t *testing.T) {
	subnet := rapid.Custom(func(t *rapid.T) netip.Prefix {
		b := [4]byte{10, rapid.Byte().Draw(t, "b") % 4, rapid.Byte().Draw(t, "c"), 0}
		return netip.PrefixFrom(netip.AddrFrom4(b), rapid.IntRange(8, 28).Draw(t, "bits")).Masked()
	})
	rapid.Check(t, func(t *rapid.T) {
		c := Choice{CIDRs: []netip.Prefix{subnet.Draw(t, "podCIDR")}, Owner: me}
		var f Host
		for i := range rapid.IntRange(0, 4).Draw(t, "devices") {
			d := bridge([]string{"monopod0", "br1", "br2", "br3"}[i], rapid.SampledFrom([]string{"", me, other}).Draw(t, "alias"), 1)
			d.Addrs = []netip.Prefix{Gateway(subnet.Draw(t, "addr"))}
			f.Devices = append(f.Devices, d)
			f.Routes = append(f.Routes, route{Dst: d.Addrs[0].Masked(), Device: d.Name})
		}
		name, err := c.Bridge(f)
		if err != nil {
			if !slices.ContainsFunc(f.Routes, func(r route) bool { return r.Dst.Overlaps(c.CIDRs[0]) }) {
				t.Fatalf("%v refused although nothing overlaps it: %v", c.CIDRs, err)
			}
			return
		}
		for _, r := range f.Routes {
			if r.Device != name && r.Dst.Overlaps(c.CIDRs[0]) {
				t.Fatalf("%v accepted on %s in spite of %v", c.CIDRs, name, r)
			}
		}
		if len(name) > 15 {
			t.Fatalf("%s is too long for a device", name)
		}
	})
}

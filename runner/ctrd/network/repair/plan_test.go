package repair

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"monopod/runner/ctrd/network/link"
)

const bridge = 3

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// intact is an undamaged network with two pods.
func intact() (Desired, Observed) {
	d := Desired{Bridge: "monopod0", Names: map[string]bool{"vethmpa": true, "vethmpb": true}}
	o := Observed{Bridge: Bridge{Index: bridge}, Links: map[int]link.Port{}, Pods: map[string]link.State{}, Ports: true, Filter: true}
	for i, id := range []string{"a", "b"} {
		p := Pod{
			ID:       id,
			Addrs:    []netip.Prefix{prefix(fmt.Sprintf("10.1.0.%d/24", i+2)), prefix(fmt.Sprintf("fd00::%d/64", i+2))},
			Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1")},
		}
		d.Pods = append(d.Pods, p)
		o.Links[10+i] = link.Port{Index: 10 + i, Name: "vethmp" + id, Up: true, Master: bridge}
		o.Pods[id] = link.State{Exists: true, Veth: true, Up: true, Host: 10 + i, Addrs: slices.Clone(p.Addrs), Default4: true, Default6: true}
	}
	return d, o
}

// of changes what was found of pod a.
func of(change func(*link.State)) func(*Desired, *Observed) {
	return func(_ *Desired, o *Observed) {
		s := o.Pods["a"]
		change(&s)
		o.Pods["a"] = s
	}
}

func port(change func(*link.Port)) func(*Desired, *Observed) {
	return func(_ *Desired, o *Observed) {
		p := o.Links[10]
		change(&p)
		o.Links[10] = p
	}
}

func TestPlan(t *testing.T) {
	tests := []struct {
		name   string
		damage func(*Desired, *Observed)
		want   []string
	}{
		{"nothing is damaged", func(*Desired, *Observed) {}, nil},
		{"rules are gone", func(_ *Desired, o *Observed) { o.Ports, o.Filter = false, false }, []string{
			"SetPorts  (rules for masquerading or hostPorts were removed)", "SetFilter  (rules that let pods' traffic through were removed)",
		}},
		{"the bridge is gone, and its ports with it", func(_ *Desired, o *Observed) {
			o.Bridge = Bridge{}
			for i, l := range o.Links {
				l.Master = 0
				o.Links[i] = l
			}
		}, []string{"MakeBridge  (bridge monopod0 was deleted)", "Attach a (vethmpa was detached from the bridge)", "Attach b (vethmpb was detached from the bridge)"}},
		{"the bridge is down and lacks an address", func(_ *Desired, o *Observed) {
			o.Bridge.Down, o.Bridge.Lost = true, []string{"address 10.1.0.1/24 was removed"}
		}, []string{"MakeBridge  (bridge monopod0: it was down, address 10.1.0.1/24 was removed)"}},
		{"the bridge and a port heed router advertisements", func(_ *Desired, o *Observed) {
			o.Bridge.Lost = []string{"it heeded router advertisements"}
			port(func(p *link.Port) { p.HeedsRouters = true })(nil, o)
			o.Links[12] = link.Port{Index: 12, Name: "vethmpc", Up: true, Master: 99, HeedsRouters: true}
		}, []string{"MakeBridge  (bridge monopod0: it heeded router advertisements, vethmpa heeded router advertisements)"}},
		{"the bridge is another's: no pod is touched", func(_ *Desired, o *Observed) {
			o.Bridge.Foreign, o.Ports = "it belongs to another monopod (/x)", false
			delete(o.Links, 10)
		}, []string{"GiveUp  (bridge monopod0: it belongs to another monopod (/x))"}},
		{"a pair is deleted", of(func(s *link.State) { *s = link.State{} }), []string{"Connect a (its interface eth0 was deleted)"}},
		{"the other end is elsewhere", func(_ *Desired, o *Observed) { delete(o.Links, 10) }, []string{"Connect a (the other end of its interface eth0 is not on this machine)"}},
		{"eth0 is something else", of(func(s *link.State) { s.Veth = false }), []string{"GiveUp a (its interface eth0 was replaced by another device)"}},
		{"the pod is gone", of(func(s *link.State) { *s = link.State{Gone: true} }), nil},
		{"the pod cannot be read", func(_ *Desired, o *Observed) { delete(o.Pods, "a") }, nil},
		{"a port is detached", port(func(p *link.Port) { p.Master = 0 }), []string{"Attach a (vethmpa was detached from the bridge)"}},
		{"a port is on another bridge", port(func(p *link.Port) { p.Master = 99 }), []string{"Attach a (vethmpa was detached from the bridge)"}},
		{"a port is down", port(func(p *link.Port) { p.Up = false }), []string{"Attach a (vethmpa was down)"}},
		{"a port has no hairpin mode", port(func(p *link.Port) { p.NoHairpin = true }), []string{"Attach a (vethmpa had hairpin mode turned off)"}},
		{"a port is isolated", port(func(p *link.Port) { p.Isolated = true }), []string{"Attach a (vethmpa was isolated from other ports)"}},
		{"an address is removed", of(func(s *link.State) { s.Addrs = s.Addrs[1:] }), []string{"Complete a (eth0 of the pod: address 10.1.0.2/24 was removed)"}},
		{"the pod's end is down", of(func(s *link.State) { s.Up, s.Default4, s.Default6 = false, false, false }), []string{
			"Complete a (eth0 of the pod: it was down, default route by 10.1.0.1 was removed, default route by fd00::1 was removed)",
		}},
		{"a limit is removed", func(_ *Desired, o *Observed) { o.Unlimited = map[string]bool{"a": true} }, []string{"Limit a (the limit of its bandwidth was removed)"}},
		{"a limit goes with its pair, and comes with the new one", func(_ *Desired, o *Observed) {
			o.Unlimited, o.Pods["a"] = map[string]bool{"a": true}, link.State{}
		}, []string{"Connect a (its interface eth0 was deleted)"}},
		{"more addresses than ours are the pod's business", of(func(s *link.State) { s.Addrs = append(s.Addrs, prefix("172.16.0.1/12")) }), nil},
		{"a stray port", func(_ *Desired, o *Observed) {
			o.Links[12] = link.Port{Index: 12, Name: "vethmpc", Up: true, Master: bridge}
		}, []string{"Drop  (vethmpc belongs to no pod)"}},
		{"a stray port is left alone unless all is looked at", func(d *Desired, o *Observed) {
			d.Names = nil
			o.Links[12] = link.Port{Index: 12, Name: "vethmpc", Up: true, Master: bridge}
		}, nil},
		{"ports of others on our bridge stay", func(_ *Desired, o *Observed) {
			o.Links[12] = link.Port{Index: 12, Name: "tap0", Up: true, Master: bridge}
		}, nil},
		{"our ports elsewhere stay", func(_ *Desired, o *Observed) {
			o.Links[12] = link.Port{Index: 12, Name: "vethmpc", Up: true, Master: 99}
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, o := intact()
			tt.damage(&d, &o)
			var got []string
			for _, a := range Plan(d, o) {
				got = append(got, a.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("planned\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// apply is what an action does to the network.
func apply(d Desired, o *Observed, a Action) {
	i := slices.IndexFunc(d.Pods, func(p Pod) bool { return p.ID == a.Pod })
	switch a.Kind {
	case MakeBridge:
		if o.Bridge.Index == 0 {
			o.Bridge.Index = bridge + 1
		}
		o.Bridge.Down, o.Bridge.Lost = false, nil
		for i, l := range o.Links {
			l.HeedsRouters = l.HeedsRouters && l.Master != o.Bridge.Index
			o.Links[i] = l
		}
	case SetPorts:
		o.Ports = true
	case SetFilter:
		o.Filter = true
	case Drop:
		delete(o.Links, a.Port)
	case Connect:
		next := 20 + len(o.Links)
		o.Links[next] = link.Port{Index: next, Name: "vethmp" + a.Pod, Up: true, Master: o.Bridge.Index}
		o.Pods[a.Pod] = link.State{Exists: true, Veth: true, Up: true, Host: next, Addrs: d.Pods[i].Addrs, Default4: true, Default6: true}
	case Attach:
		l := o.Links[a.Port]
		l.Up, l.Master, l.HeedsRouters, l.NoHairpin, l.Isolated = true, o.Bridge.Index, false, false, false
		o.Links[a.Port] = l
	case Complete:
		s := o.Pods[a.Pod]
		s.Up, s.Default4, s.Default6, s.Addrs = true, true, true, d.Pods[i].Addrs
		o.Pods[a.Pod] = s
	}
}

// checkWhole looks for damage without asking Plan.
func checkWhole(t *rapid.T, d Desired, o Observed) {
	if o.Bridge.Index == 0 || o.Bridge.Down || !o.Ports || !o.Filter {
		t.Fatalf("the bridge or its rules are still damaged: %+v", o)
	}
	for _, p := range d.Pods {
		s := o.Pods[p.ID]
		l, ok := o.Links[s.Host]
		if !s.Exists || !s.Up || !s.Default4 || len(s.Addrs) != len(p.Addrs) || !ok || !l.Up || l.Master != o.Bridge.Index || l.HeedsRouters || l.NoHairpin || l.Isolated {
			t.Fatalf("%s is still damaged: %+v, port %+v", p.ID, s, l)
		}
	}
}

// TestARepairEnds: whatever is damaged, a plan that was carried out leaves nothing to plan, and planning changes nothing.
func TestARepairEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, o := intact()
		maybe := rapid.Bool()
		if maybe.Draw(t, "bridge gone") {
			o.Bridge.Index = 0
			for i, l := range o.Links {
				l.Master = 0
				o.Links[i] = l
			}
		}
		o.Bridge.Down, o.Ports, o.Filter = maybe.Draw(t, "down"), maybe.Draw(t, "ports"), maybe.Draw(t, "filter")
		for _, id := range slices.Sorted(maps.Keys(o.Pods)) {
			s := o.Pods[id]
			s.Exists, s.Up, s.Default4 = maybe.Draw(t, "exists"), maybe.Draw(t, "up"), maybe.Draw(t, "route")
			s.Addrs = s.Addrs[:rapid.IntRange(0, 2).Draw(t, "addresses")]
			o.Pods[id] = s
			switch rapid.IntRange(0, 3).Draw(t, "port") {
			case 0:
				delete(o.Links, s.Host)
			case 1:
				l := o.Links[s.Host]
				l.Master, l.Up = rapid.IntRange(0, 9).Draw(t, "master"), maybe.Draw(t, "port up")
				o.Links[s.Host] = l
				fallthrough
			case 2:
				l := o.Links[s.Host]
				l.HeedsRouters, l.NoHairpin, l.Isolated = maybe.Draw(t, "heeds routers"), maybe.Draw(t, "no hairpin"), maybe.Draw(t, "isolated")
				o.Links[s.Host] = l
			}
		}
		first := Plan(d, o)
		if fmt.Sprint(first) != fmt.Sprint(Plan(d, o)) {
			t.Fatal("the same network is planned differently")
		}
		for pass := 0; len(first) > 0; pass++ {
			if pass == 2 {
				t.Fatalf("after two passes there is still to do: %v", first)
			}
			for _, a := range first {
				apply(d, &o, a)
			}
			first = Plan(d, o)
		}
		checkWhole(t, d, o)
	})
}

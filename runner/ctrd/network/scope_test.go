package network

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeatedDamageIsRepairedLessOften(t *testing.T) {
	p, now := penalties{}, time.Now()
	looked := 0
	for range 600 { // a tenth of a second each
		if s := p.deferred(scope{pods: map[string]bool{"bad": true, "good": true}}, now); s.pods["bad"] {
			looked++
			p.add([]string{"bad", ""}, now)
		} else if !s.pods["good"] {
			t.Fatal("another pod has to wait too")
		}
		now = now.Add(100 * time.Millisecond)
	}
	if looked <= freely || looked > freely+7 {
		t.Errorf("in a minute it was repaired %d times", looked)
	}
	if next := p.add(nil, now); next == 0 || next > maxPenalty {
		t.Errorf("it is due in %v", next)
	}
	now = now.Add(2*maxPenalty + calm)
	if got := p.due(now); !slices.Equal(got, []string{"bad"}) {
		t.Errorf("due: %v", got)
	}
	p.add(nil, now)
	if len(p) != 0 {
		t.Error("after a calm time nothing is forgotten")
	}
}

func TestDamageIsReportedOnce(t *testing.T) {
	var r reports
	broken := Notice{Sandbox: "a", Damage: "x", Err: errors.New("y")}
	if !r.fresh(broken) || r.fresh(broken) || !r.pending() {
		t.Error("the same damage is news twice, or never")
	}
	if other := (Notice{Sandbox: "a", Damage: "z", Err: errors.New("y")}); !r.fresh(other) {
		t.Error("another damage is no news")
	}
	if !r.fresh(Notice{Sandbox: "a", Damage: "x"}) || r.pending() {
		t.Error("the repair is no news")
	}
}

func TestPortsOfAPod(t *testing.T) {
	p := Pod{PortMappings: []PortMapping{
		{HostPort: 80, ContainerPort: 8080},
		{ContainerPort: 1},
		{HostPort: 53, ContainerPort: 53, Protocol: "UDP", HostIP: "127.0.0.1"},
		{HostPort: 81, ContainerPort: 1, HostIP: "::"},
		{HostPort: 82, ContainerPort: 1, HostIP: "0.0.0.0"},
		{HostPort: 83, ContainerPort: 1, HostIP: "::ffff:1.2.3.4"},
	}}
	var got []string
	for _, n := range portsOf(p, []netip.Prefix{netip.MustParsePrefix("10.1.0.2/16"), netip.MustParsePrefix("fd00::2/64")}) {
		got = append(got, n.String())
	}
	want := []string{
		"tcp/*:80 -> 10.1.0.2:8080", "tcp/*:80 -> [fd00::2]:8080", "udp/127.0.0.1:53 -> 10.1.0.2:53",
		"tcp/*:81 -> [fd00::2]:1", "tcp/*:82 -> 10.1.0.2:1", "tcp/1.2.3.4:83 -> 10.1.0.2:1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPeriodicChecksAreAnnounced: an agent may then drop what they have mapped.
func TestPeriodicChecksAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		checks := 0
		n := New(Config{Checked: func() { checks++ }})
		done := make(chan struct{})
		go func() { n.loop(ctx, &pending{wake: make(chan struct{}, 1)}); close(done) }()
		time.Sleep(5 * checkEvery / 2)
		stop()
		<-done
		if checks != 2 {
			t.Errorf("%d checks", checks)
		}
	})
}

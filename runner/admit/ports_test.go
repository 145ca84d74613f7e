package admit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/admit"
)

func TestHostPortsAreAssignedOnce(t *testing.T) {
	type pods = []*manifests.Pod
	type known = map[manifests.Key]admit.Holding
	seen := func(all ...*manifests.Pod) known {
		m := known{}
		for _, p := range all {
			m[p.Key()] = admit.Holding{Seen: true}
		}
		return m
	}
	holding := func(m known, all ...*manifests.Pod) known {
		for _, p := range all {
			m[p.Key()] = admit.Holding{Seen: true, Pod: p}
		}
		return m
	}
	a, b := portPod("a", "80"), portPod("b", "80")
	tests := []struct {
		name     string
		desired  pods
		known    known
		unlisted bool
		max      int
		want     string // "name:Reason", sorted
	}{
		{"different ports are no conflict", pods{a, portPod("b", "81")}, nil, false, 0, ""},
		{"the first one gets the port", pods{a, b}, nil, false, 0, "b:HostPortConflict"},
		{"protocols have ports of their own", pods{a, portPod("b", "80/UDP")}, nil, false, 0, ""},
		{"addresses have ports of their own", pods{portPod("a", "127.0.0.1:80"), portPod("b", "192.0.2.1:80")}, nil, false, 0, ""},
		{"every address includes each", pods{portPod("a", "0.0.0.0:80"), portPod("b", "192.0.2.1:80")}, nil, false, 0, "b:HostPortConflict"},
		{"each address is in every one", pods{portPod("a", "192.0.2.1:80"), portPod("b", ":::80")}, nil, false, 0, "b:HostPortConflict"},
		{"what runs keeps its port, whatever comes before it", pods{a, b}, holding(seen(a), b), false, 0, "a:HostPortConflict"},
		{
			"an edit cannot take a port that another pod has",
			pods{a, portPod("b", "81", "80")},
			holding(seen(), a, portPod("b", "81")), false, 0, "b:HostPortConflict",
		},
		{"a pod that is being removed has its port until it is gone", pods{a}, holding(seen(a), portPod("old", "80")), false, 0, "a:HostPortConflict"},
		{"a port that was given up is free", pods{a}, holding(seen(a), portPod("b", "81")), false, 0, ""},
		{"a pod that waits does not keep others from its other ports", pods{a, portPod("b", "80", "81"), portPod("c", "81")}, nil, false, 0, "b:HostPortConflict"},
		{"until all pods are listed ports may be taken", pods{a, testPod("c", testContainer("a", ""))}, nil, true, 0, "a:Starting"},
		{"a running pod need not wait for the list", pods{a}, holding(seen(), a), true, 0, ""},
		{"an unwanted pod that has not been seen may have any port", pods{a}, known{a.Key(): {Seen: true}, key("x"): {}}, false, 0, "a:Starting"},
		{"a wanted pod that has not been seen may have its ports", pods{a, b}, known{a.Key(): {Seen: true}}, false, 0, "a:Starting b:Starting"},
		{"pods beyond the limit wait", pods{testPod("x"), testPod("y"), testPod("z")}, nil, false, 2, "z:OutOfpods"},
		{"what runs has its place", pods{testPod("x"), testPod("y")}, holding(seen(testPod("x")), testPod("y")), false, 1, "x:OutOfpods"},
		{"a pod that is being removed has a place until it is gone", pods{testPod("x")}, holding(seen(testPod("x")), testPod("old")), false, 1, "x:OutOfpods"},
		{"a pod that waits for a port takes no place", pods{a, b, testPod("c")}, nil, false, 2, "b:HostPortConflict"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := tt.known
			if k == nil {
				k = seen(tt.desired...)
			}
			held := admit.Decide(admit.Input{Desired: tt.desired, Known: k, Listed: !tt.unlisted, MaxPods: tt.max}).Held
			var got []string
			for key, h := range held {
				got = append(got, key.Name+":"+h.Reason)
				if h.Message == "" {
					t.Errorf("%s has no message", key)
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tt.want {
				t.Errorf("held: %v, want %q", got, tt.want)
			}
		})
	}
}

func TestAdmittedPodsNeverShareAPort(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		port := rapid.SampledFrom([]string{"80", "81", "80/UDP", "127.0.0.1:80", "192.0.2.1:80"})
		a := admit.Input{Known: map[manifests.Key]admit.Holding{}, Listed: rapid.Bool().Draw(rt, "listed")}
		for i := range rapid.IntRange(1, 6).Draw(rt, "pods") {
			p := portPod(fmt.Sprintf("p%d", i), rapid.SliceOfN(port, 0, 2).Draw(rt, "ports")...)
			a.Desired = append(a.Desired, p)
			a.Known[p.Key()] = admit.Holding{Seen: rapid.Bool().Draw(rt, "seen")}
		}
		held := admit.Decide(a).Held
		if again := admit.Decide(a).Held; !maps.Equal(held, again) {
			rt.Fatalf("two answers: %v, %v", held, again)
		}
		// Once the admitted pods run, none of them is held, and no pod that was held for a port may start.
		for _, p := range a.Desired {
			h := admit.Holding{Seen: true}
			if _, no := held[p.Key()]; !no {
				h.Pod = p
			}
			a.Known[p.Key()] = h
		}
		checkShared(rt, a)
		a.Listed = true
		next := admit.Decide(a).Held
		for _, p := range a.Desired {
			before, was := held[p.Key()]
			now, is := next[p.Key()]
			if !was && is {
				rt.Fatalf("%s was admitted, then held: %v", p.Key(), now)
			}
			if was && before.Reason == runner.ReasonHostPortConflict && !is {
				rt.Fatalf("%s was held (%s), but nothing is in its way", p.Key(), before.Message)
			}
		}
	})
}

// checkShared fails if two running pods have a port in common.
func checkShared(rt *rapid.T, a admit.Input) {
	type owned struct {
		pod  *manifests.Pod
		port corev1.ContainerPort
	}
	var all []owned
	for _, p := range a.Desired {
		if a.Known[p.Key()].Pod == nil {
			continue
		}
		for _, port := range p.Object.Spec.Containers[0].Ports {
			all = append(all, owned{p, port})
		}
	}
	every := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	for i, x := range all {
		for _, y := range all[i+1:] {
			sameIP := x.port.HostIP == y.port.HostIP || every(x.port.HostIP) || every(y.port.HostIP)
			if x.pod != y.pod && sameIP && x.port.HostPort == y.port.HostPort && x.port.Protocol == y.port.Protocol {
				rt.Fatalf("%s and %s share port %d", x.pod.Key(), y.pod.Key(), x.port.HostPort)
			}
		}
	}
}

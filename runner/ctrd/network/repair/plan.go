// Package repair decides what is to be done about a pod network that is not as it should be.
//
// It owns nothing and does nothing: Plan is a pure function. It has no goroutines.
package repair

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"monopod/runner/ctrd/network/link"
)

// Pod is a pod as it should be connected.
type Pod struct {
	// ID is the sandbox's.
	ID       string
	Addrs    []netip.Prefix
	Gateways []netip.Addr
}

// Desired is the network as it should be.
type Desired struct {
	// Bridge is its name.
	Bridge string
	// Pods are those to look at.
	Pods []Pod
	// Names are the host ends of all pods, also of those that are not looked at; nil: strays are left alone.
	Names map[string]bool
}

// Bridge is what was found of the bridge.
type Bridge struct {
	// Index is 0 when there is none.
	Index int
	// Foreign says why a device of its name is not ours.
	Foreign string
	Down    bool
	// Lost are addresses, routes and settings that it lacks.
	Lost []string
}

// Observed is the network as it is.
type Observed struct {
	Bridge Bridge
	// Links are the host's devices by index.
	Links map[int]link.Port
	// Pods are the ends of the desired pods by id; one that could not be read is missing.
	Pods map[string]link.State
	// Unlimited are the pods whose limit of bandwidth is not there.
	Unlimited map[string]bool
	// Ports says that masquerading and host ports are as they should be, Filter that pods' traffic is let through.
	Ports, Filter bool
}

// Kind is what is to be done.
type Kind string

// The kinds of actions, in the order in which they are done.
const (
	// GiveUp reports what cannot be repaired.
	GiveUp     Kind = "GiveUp"
	MakeBridge Kind = "MakeBridge"
	SetPorts   Kind = "SetPorts"
	SetFilter  Kind = "SetFilter"
	Connect    Kind = "Connect"
	Attach     Kind = "Attach"
	Complete   Kind = "Complete"
	// Limit sets the pod's bandwidth again; Connect does it, too.
	Limit Kind = "Limit"
	// Drop deletes a port of the bridge that belongs to no pod.
	Drop Kind = "Drop"
)

// Action is one step of a repair.
type Action struct {
	Kind Kind
	// Pod is the sandbox's id; empty: it is about all pods.
	Pod string
	// Port is the host end that Attach and Drop are about.
	Port int
	// Damage is what was found, for logs and events.
	Damage string
}

// String is for logs.
func (a Action) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s (%s)", a.Kind, a.Pod, a.Damage))
}

// Plan returns what is to be done, in order; nothing when all is as it should be.
func Plan(d Desired, o Observed) []Action {
	var out []Action
	b := o.Bridge
	switch {
	case b.Foreign != "":
		return []Action{{Kind: GiveUp, Damage: fmt.Sprintf("bridge %s: %s", d.Bridge, b.Foreign)}}
	case b.Index == 0:
		out = append(out, Action{Kind: MakeBridge, Damage: fmt.Sprintf("bridge %s was deleted", d.Bridge)})
	case b.Down || len(b.Lost) > 0:
		lost := slices.Clone(b.Lost)
		if b.Down {
			lost = append([]string{"it was down"}, lost...)
		}
		out = append(out, Action{Kind: MakeBridge, Damage: fmt.Sprintf("bridge %s: %s", d.Bridge, strings.Join(lost, ", "))})
	}
	if !o.Ports {
		out = append(out, Action{Kind: SetPorts, Damage: "rules for masquerading or hostPorts were removed"})
	}
	if !o.Filter {
		out = append(out, Action{Kind: SetFilter, Damage: "rules that let pods' traffic through were removed"})
	}
	for _, p := range d.Pods {
		s, ok := o.Pods[p.ID]
		if !ok {
			continue
		}
		steps := p.plan(s, b.Index, o.Links)
		if _, connected := o.Links[s.Host]; o.Unlimited[p.ID] && s.Exists && s.Veth && connected {
			steps = append(steps, Action{Kind: Limit, Pod: p.ID, Damage: "the limit of its bandwidth was removed"})
		}
		out = append(out, steps...)
	}
	return append(out, strays(d, o)...)
}

// plan is about one pod.
func (p Pod) plan(s link.State, bridge int, links map[int]link.Port) []Action {
	host, hasHost := links[s.Host]
	switch {
	case s.Gone:
		return nil
	case !s.Exists:
		return []Action{{Kind: Connect, Pod: p.ID, Damage: "its interface eth0 was deleted"}}
	case !s.Veth:
		return []Action{{Kind: GiveUp, Pod: p.ID, Damage: "its interface eth0 was replaced by another device"}}
	case !hasHost:
		return []Action{{Kind: Connect, Pod: p.ID, Damage: "the other end of its interface eth0 is not on this machine"}}
	}
	var out []Action
	switch {
	case host.Master != bridge || bridge == 0:
		out = append(out, Action{Kind: Attach, Pod: p.ID, Port: s.Host, Damage: host.Name + " was detached from the bridge"})
	case !host.Up:
		out = append(out, Action{Kind: Attach, Pod: p.ID, Port: s.Host, Damage: host.Name + " was down"})
	}
	if lost := p.lost(s); len(lost) > 0 {
		out = append(out, Action{Kind: Complete, Pod: p.ID, Damage: "eth0 of the pod: " + strings.Join(lost, ", ")})
	}
	return out
}

// lost is what the pod's end lacks. A default route of another kind is the pod's own business.
func (p Pod) lost(s link.State) []string {
	var lost []string
	if !s.Up {
		lost = append(lost, "it was down")
	}
	for _, a := range p.Addrs {
		if !slices.Contains(s.Addrs, a) {
			lost = append(lost, fmt.Sprintf("address %s was removed", a))
		}
	}
	for _, gw := range p.Gateways {
		if gw.Is4() && !s.Default4 || gw.Is6() && !s.Default6 {
			lost = append(lost, fmt.Sprintf("default route by %s was removed", gw))
		}
	}
	return lost
}

// strays are ports that a killed process left.
func strays(d Desired, o Observed) []Action {
	if o.Bridge.Index == 0 || d.Names == nil {
		return nil
	}
	var out []Action
	for i, l := range o.Links {
		if l.Master == o.Bridge.Index && strings.HasPrefix(l.Name, link.HostPrefix) && !d.Names[l.Name] {
			out = append(out, Action{Kind: Drop, Port: i, Damage: l.Name + " belongs to no pod"})
		}
	}
	slices.SortFunc(out, func(a, b Action) int { return cmp.Compare(a.Port, b.Port) })
	return out
}

// Package repair decides how to repair the network of pods, given its desired and its observed state.
//
// Plan is a pure function; it must not change or read the network.
package repair

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"monopod/runner/ctrd/network/link"
)

// Pod is the desired connection of a pod.
type Pod struct {
	// ID is the id of the sandbox.
	ID       string
	Addrs    []netip.Prefix
	Gateways []netip.Addr
}

// Desired is the desired network.
type Desired struct {
	// Bridge is the name of the bridge.
	Bridge string
	// Pods are the pods to check.
	Pods []Pod
	// Names are the host ends of all pods, including those that are not checked; nil: unknown ports stay.
	Names map[string]bool
}

// Bridge is the observed bridge.
type Bridge struct {
	// Index is 0 if it does not exist.
	Index int
	// Foreign is why a device with its name cannot be used.
	Foreign string
	Down    bool
	// Lost are missing addresses, routes and settings.
	Lost []string
}

// Observed is the observed network.
type Observed struct {
	Bridge Bridge
	// Links are the devices of the host by index.
	Links map[int]link.Port
	// Pods are the observed ends of desired pods by id, except those that could not be read.
	Pods map[string]link.State
	// Unlimited are the pods whose bandwidth limit is missing.
	Unlimited map[string]bool
	// Ports reports whether masquerading and host ports are intact, Filter whether the traffic of pods is accepted.
	Ports, Filter bool
}

// Kind is the kind of an action.
type Kind string

// The kinds of actions, in the order in which they are executed.
const (
	// GiveUp only reports damage that cannot be repaired.
	GiveUp     Kind = "GiveUp"
	MakeBridge Kind = "MakeBridge"
	SetPorts   Kind = "SetPorts"
	SetFilter  Kind = "SetFilter"
	Connect    Kind = "Connect"
	Attach     Kind = "Attach"
	Complete   Kind = "Complete"
	// Limit sets the bandwidth limit of the pod. Connect does that, too.
	Limit Kind = "Limit"
	// Drop deletes a port of the bridge that belongs to no pod.
	Drop Kind = "Drop"
)

// Action is a step of a repair.
type Action struct {
	Kind Kind
	// Pod is the id of the sandbox; empty: the action concerns all pods.
	Pod string
	// Port is the host end for Attach and Drop.
	Port int
	// Damage describes the damage, for logs and events.
	Damage string
}

// String describes the action for logs.
func (a Action) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s (%s)", a.Kind, a.Pod, a.Damage))
}

// Plan returns the actions that repair the network, in order.
func Plan(d Desired, o Observed) []Action {
	var out []Action
	b := o.Bridge
	switch {
	case b.Foreign != "":
		return []Action{{Kind: GiveUp, Damage: fmt.Sprintf("bridge %s: %s", d.Bridge, b.Foreign)}}
	case b.Index == 0:
		out = append(out, Action{Kind: MakeBridge, Damage: fmt.Sprintf("bridge %s was deleted", d.Bridge)})
	default:
		if lost := o.lost(); len(lost) > 0 {
			out = append(out, Action{Kind: MakeBridge, Damage: fmt.Sprintf("bridge %s: %s", d.Bridge, strings.Join(lost, ", "))})
		}
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

// lost returns what an existing bridge and its ports lack.
func (o Observed) lost() []string {
	var lost, ports []string
	if o.Bridge.Down {
		lost = append(lost, "it was down")
	}
	for _, l := range o.Links {
		if l.Master == o.Bridge.Index && l.HeedsRouters {
			ports = append(ports, l.Name+" heeded router advertisements")
		}
	}
	slices.Sort(ports)
	return slices.Concat(lost, o.Bridge.Lost, ports)
}

// plan returns the action for a pod.
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
	case host.NoHairpin:
		out = append(out, Action{Kind: Attach, Pod: p.ID, Port: s.Host, Damage: host.Name + " had hairpin mode turned off"})
	case host.Isolated:
		out = append(out, Action{Kind: Attach, Pod: p.ID, Port: s.Host, Damage: host.Name + " was isolated from other ports"})
	}
	if lost := p.lost(s); len(lost) > 0 {
		out = append(out, Action{Kind: Complete, Pod: p.ID, Damage: "eth0 of the pod: " + strings.Join(lost, ", ")})
	}
	return out
}

// lost returns what the pod's end lacks. A different default route is up to the pod.
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

// strays returns ports that a killed process left.
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
